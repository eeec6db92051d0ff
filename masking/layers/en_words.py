"""Words the English layers know: what stands before a name, what is no name, and what an address is made of."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


COMMON = words(
    """
    a about above according across after afterwards again against ago all almost alone along already also although
    always am among an and another any anybody anyone anything anyway are aren't around as ask at away back bad be
    because been before behind being below best better between both bot but by call called came can can't cannot cc come
    coming could couldn't currently did didn't do does doesn't doing don't done down during each either else enough etc
    even ever every everybody everyone everything except excuse far few finally find fine first for forward free from
    full further get getting give given go going gone good got great had hadn't happy has hasn't have haven't having he
    he's hello hence her here here's hers herself hey hi him himself his home how however i i'd i'll i'm i've if in
    including indeed instead into is isn't it it's its itself just keep kind kindly last late later least less let
    let's like likely little long look looking lost made make many may maybe me mean might mine more moreover most much
    must my myself near need neither never new next no nobody none nor not nothing now of off often oh ok okay old on
    once one only onto or other others otherwise our ours out over own per perhaps please possible put quite rather
    re really regarding right said same saw say says see seen seems send sent several shall she she's should
    shouldn't since so some somebody someone something sometimes soon sorry still such sure take than thank thanks that
    that's the their theirs them themselves then there there's therefore these they they're this those though through
    thus to today together tomorrow tonight too toward towards under unless unfortunately until up upon us use used user
    using usually very via want was wasn't we we're welcome well went were weren't what what's whatever when when's
    where where's whether which while who who's whoever whole whom whose why will with within without won't would
    wouldn't yes yesterday yet you you're your yours yourself
    dear sir madam sirs all team everyone folks there customer support friend friends colleagues
    regards sincerely cheers best yours truly faithfully respectfully cordially warmly hugs love
    monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun
    january february march april june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec spring summer autumn winter morning afternoon evening night
    name names address phone mobile fax office email e-mail mail website url date time birth born age sex gender
    dob ssn mrn tel phone cell ref cc attn re fw fwd
    subject message note notes number no id account card order invoice question answer example task step section
    chapter figure table page part version summary total amount price status error warning info true false null
    yes no ok true when where who what
    """
)
"""Lower-case words that end a name, or are none, however they are written."""

TITLES = _listed(
    "mr mrs ms miss mx dr prof professor doctor sir madam lady lord dame rev reverend herr frau señor señora "
    "mme mlle monsieur madame signor signora captain capt lieutenant lt sergeant sgt colonel col general gen major "
    "judge justice senator sen congressman congresswoman president chancellor minister mayor governor officer"
    " nurse "
    "coach pastor father sister brother uncle aunt grandma grandpa king queen prince princess sheikh rabbi imam"
)

LOOSE_TITLES = _listed("mr mrs ms miss mx dr prof")
"""Those after which a name may be written small."""

PARTICLES = _listed(
    "van von der den de del della di da dos das du la le las los el al bin bint ibn abu ter ten zu zum zur af"
    " av y e "
    "of und and"
)

GIVEN = words(
    """
    aaron abigail adam adrian ahmed aisha alan albert alejandro alex alexander alexandra ali alice alison amanda amber
    amelia amy ana andrea andreas andrew angela anita ann anna anne anthony antonio arthur ashley barbara ben benjamin
    betty beth bianca bill bob bobby brandon brenda brian bruce bryan carl carla carlos carmen carol caroline catherine
    charles charlotte cheryl chloe chris christian christina christine christopher cindy claire clara colin craig
    cynthia dan daniel daniela danielle dave david deborah dennis derek diana diane diego dmitri dominic donald donna
    dorothy doug douglas dylan edward elena eleanor elizabeth ella ellen emily emma eric erik erin ethan eugene eva
    evelyn fatima felix fernando fiona francesca francis francisco frank fred gabriel gareth gary george gerald gloria
    gordon graham greg gregory hannah hans harold harry hassan heather helen henry hiroshi howard hugo ian ibrahim
    igor ingrid irene isaac isabel isabella ivan jack jackie jacob jacqueline james jamie jan jane janet jasmine jason
    javier jean jeff jeffrey jennifer jeremy jerry jesse jessica jill jim jimmy joan joanna joe joel johan johannes john
    johnny jonathan jordan jorge jose joseph joshua joyce juan judith judy julia julian julie justin karen karl kate
    katherine kathleen kathryn katie keith kelly ken kenneth kevin kim kimberly kyle larry laura lauren laurie lee leo
    leon leonard leslie linda lisa liz louis louise lucas lucy luis luke maggie marcus margaret maria marie marilyn
    mario mark marta martha martin mary matthew maurice max megan mehmet melissa michael michelle miguel mike mohamed
    mohammed monica muhammad nadia nancy natalia natalie natasha nathan neil nicholas nick nicole nigel nina noah nora
    norman oliver olivia omar oscar pablo pamela patricia patrick paul paula pedro peggy peter philip phil phillip
    priya rachel raj ralph ray raymond rebecca richard rick rita rob robert roberto robin roger ron ronald rosa rosie
    roy russell ruth ryan sally sam samantha samuel sandra sara sarah scott sean sergei sharon sheila shirley simon
    sofia sophia sophie stanley stefan stella stephanie stephen steve steven stuart sue susan suzanne sven sylvia tanya
    tara ted teresa terry theresa thomas tiffany tim timothy tina todd tom tommy tony tracy tyler valentina vanessa
    mateo lucia matteo giulia luca marco chiara pierre camille manon antoine klaus heike sabine uwe anja lars nils bjorn
    astrid freya olga irina svetlana dmitry alexei pavel tomas jana petra zsofia katalin agnieszka magda piotr pawel
    krzysztof arjun rahul anil sunita deepa lakshmi rajesh sanjay layla zainab kwame amina chidi ngozi emeka siobhan
    niamh aoife kenji haruto ming xiao jing linh minh thanh siti putri dieter jurgen giovanni francesco alessandro
    eduardo rafael santiago valeria ximena thiago joao goran milan zoran dragan nikola elif emre murat ayse hamza bilal
    vera veronica victor victoria vincent virginia vladimir walter wayne wendy wei will william xavier yasmin yuki yusuf
    zachary zoe
    """
)
"""Given names, small letters."""

WORDS_TOO = words(
    "amber bill bob carol christian craig dan don dean drew frank gene grace grant guy hugo igor jack jan jean"
    " jesse joe"
    " julia kim ken leo louise mark max may mike nick noah norman oscar pat pierce ray rich rick rob robin rosa"
    " ron rose"
    " roy sandy sue ted terry tom tony victor victoria virginia wei will xavier dick art faith hope joy dawn"
    " april june"
)
"""Those that are words, places or tools too; they count only beside another capitalised word."""

SURNAMES = words(
    """
    adams allen anderson baker barnes bell bennett brooks brown butler campbell carter clark collins cook cooper cox
    cruz davis diaz edwards evans fisher fleming foster garcia gomez gonzalez gray green griffin hall harris hernandez
    hill hughes jackson jenkins johnson jones kelly khan king kowalski kumar lewis lopez martinez miller mitchell
    moore morgan morris murphy murray myers nelson nguyen novak parker patel perez peterson phillips pierce porter
    powell price ramirez ramos reed reyes reynolds richardson rivera roberts robinson rodriguez rogers ross russell
    sanchez sanders schmidt scott simmons singh smith stewart sullivan taylor thompson torres turner walker ward watson
    watts webb wells white williams wilson wood wright young
    """
)

KOREAN_SURNAMES = _listed(
    "Kim Gim Lee Yi Rhee Park Pak Bak Choi Choe Jung Jeong Chung Chong Kang Gang Cho Jo Yoon Yun Jang Chang Lim"
    " Im Rim "
    "Han Oh Seo Suh Shin Sin Kwon Gwon Hwang Ahn An Song Ryu Yoo Yu Hong Jeon Jun Chun Ko Goh Koh Moon Mun Yang"
    " Son "
    "Sohn Bae Pae Baek Paik Heo Hur Huh Nam Sim Shim Noh Roh No Ha Kwak Gwak Sung Seong Cha Joo Ju Woo Koo Gu"
    " Min Na Ra "
    "Jin Um Eom Won Chae Cheon Bang Gong Kong Hyun Hyeon Byun Byeon Yeo Chu Choo Do So Seok Sun Seol Ma Gil Wi Pyo "
    "Myung Ki Ban Wang Geum Ok Yook Yuk In Maeng Je Mo Tak Guk Eun Pyeon Yong Ye Kyung Bong Sa Boo Ga Bok Tae Mok "
    "Hyung Doo Ji Eo"
)

SYLLABLE = (
    r"(?:[gkndtrlmbpsjhcywGKNDTRLMBPSJHCYW]|[cCsS]h|kk|tt|pp|ss|jj)?(?:yeo|yae|wae|eo|eu|ae|oe|ui|ya|yo|yu|ye"
    r"|wa|wo|we|wi|ee|oo"
    r"|ou|a|e|i|o|u)(?:ng|[nmklpbtgh])?"
)
"""A regular expression: a syllable of romanised Korean."""

TECH = words(
    """
    cpu gpu ram ssd usb pdf png jpg gif svg utf ascii sdk ide cli gui orm dns tcp udp vpn lan wan faq ceo cto cfo hr it
    pr qa ui ux kpi roi sla crm erp seo llm ai ml nlp ocr gpt ssn dob pin atm vat gdp iot crud rest soap oauth
    jwt sso mfa smtp imap ftp
    valueerror typeerror keyerror indexerror runtimeerror importerror oserror exception
    select insert update delete where order group join inner outer desc asc limit varchar values having union distinct
    ajax android ansible apache api arduino asana aws azure bash bitcoin bluetooth boolean chatgpt chrome cloudflare
    confluence css csv debian django docker dockerfile dropbox edge elasticsearch english excel expressjs fastapi
    fedora firefox flask flutter gemini git github gitlab gmail google grafana gradle graphql hadoop haskell heroku html
    http https hypervisor instagram internet ios iphone java javascript jenkins jira json jupyter kafka keras kotlin
    kubernetes lambda latex linux llama mac macos makefile markdown matlab maven mongodb mysql netflix nginx node nodejs
    npm numpy nvidia openai oracle outlook pandas pdf perl php pip postgres postgresql powerpoint powershell prometheus
    python pytorch rabbitmq rails react redis ruby rust safari sass scala shopify slack spark spotify sql sqlite ssh
    stackoverflow swift tableau tensorflow terraform tls trello typescript ubuntu unicode unix vscode vue webpack
    whatsapp wikipedia windows wordpress xcode xml yaml youtube zoom
    """
)
"""Names of common tools: no one's personal data, and asked about often."""

STREET_SUFFIXES = _listed(
    "street st avenue ave av road rd boulevard blvd lane ln drive dr court ct place pl square sq terrace ter way "
    "highway hwy parkway pkwy circle cir trail trl crescent cres close grove gardens gdns mews alley plaza loop"
    " row "
    "walk path pike turnpike expressway freeway esplanade quay wharf rise green hill heights hts common commons "
    "crossing xing point pt ridge run view vista bend cove creek falls field fields ford forest fork fort"
    " garden glen "
    "harbor haven hollow inlet island isle junction key keys knoll lake landing light loaf manor meadow meadows"
    " mill "
    "mission mountain orchard oval park pass pine pines plain plains port prairie ramp ranch rapids rest river"
    " shoal "
    "shore spring springs spur station stream summit track tunnel union valley viaduct village ville well wells "
    "extension extensions stravenue overpass underpass causeway bypass motorway corner corners estate estates"
    " brook "
    "burg bluff branch bridge camp canyon cape center centre cliff club course dale dam divide flat"
)
SURE_SUFFIXES = _listed(
    "street st avenue ave road rd boulevard blvd lane ln drive dr court ct terrace highway hwy parkway "
    "pkwy crescent mews alley turnpike esplanade"
)
"""Those that make an address of a number and words even when all is written small."""

STREET_ENDINGS = _listed(
    "vej vejen gade gaden alle allé stræde torv toften parken bakken gatan gata gate vägen väg veien vegen"
    " gränd torg "
    "straße strasse gasse platz allee weg damm ufer laan straat plein dreef kade singel steeg tie katu kuja polku "
    "braut stræti stígur gerði bakki utca tér körút ulice ulica náměstí mäe tee"
)
STREET_PREFIXES = _listed(
    "Rue Via Viale Vicolo Piazza Piazzale Corso Largo Calle Avenida Avda Av Carrera Paseo Plaza Ronda Camino Rua "
    "Avenue Boulevard Place Route Travessa Praça Praca Estrada Rúa Chemin Impasse Allée Quai Strada Bulevardul"
    " Boulevard Aleea ul al os pl "
    "Ulica Ulice Plac Aleja Carretera Colonia Jalan"
)

STATES = _listed(
    "AL AK AZ AR CA CO CT DE FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE NV NH NJ NM NY NC ND OH"
    " OK OR PA "
    "RI SC SD TN TX UT VT VA WA WV WI WY DC PR GU AS VI MP AB BC MB NB NL NS NT NU ON PE QC SK YT NSW VIC QLD"
    " TAS ACT"
)

COUNTRIES = (
    "Afghanistan|Albania|Algeria|Andorra|Angola|Argentina|Armenia|Australia|Austria|Azerbaijan|Bahamas|Bahrain"
    "|Bangladesh"
    "|Barbados|Belarus|Belgium|Belize|Benin|Bhutan|Bolivia|Bosnia(?: and Herzegovina)?|Botswana|Brazil|Brunei"
    "|Bulgaria"
    "|Burkina Faso|Burundi|Cambodia|Cameroon|Canada|Chile|China|Colombia|Congo|Costa Rica|Croatia|Cuba|Cyprus"
    "|Czechia"
    "|Czech Republic|Denmark|Djibouti|Dominican Republic|Ecuador|Egypt|El Salvador|England|Eritrea|Estonia|Eswatini"
    "|Ethiopia|Fiji|Finland|France|Gabon|Gambia|Georgia|Germany|Ghana|Great Britain|Greece|Greenland|Guatemala"
    "|Guinea|Guyana"
    "|Haiti|Honduras|Hungary|Iceland|India|Indonesia|Iran|Iraq|Ireland|Israel|Italy|Ivory Coast|Jamaica|Japan"
    "|Jordan"
    "|Kazakhstan|Kenya|Kosovo|Kuwait|Kyrgyzstan|Laos|Latvia|Lebanon|Lesotho|Liberia|Libya|Liechtenstein|Lithuania"
    "|Luxembourg|Madagascar|Malawi|Malaysia|Maldives|Mali|Malta|Mauritania|Mauritius|Mexico|Moldova|Monaco|Mongolia"
    "|Montenegro|Morocco|Mozambique|Myanmar|Namibia|Nepal|Netherlands|New Zealand|Nicaragua|Niger|Nigeria|North"
    " Korea"
    "|North Macedonia|Northern Ireland|Norway|Oman|Pakistan|Palestine|Panama|Papua New Guinea|Paraguay|Peru"
    "|Philippines"
    "|Poland|Portugal|Puerto Rico|Qatar|Romania|Russia|Rwanda|Samoa|Saudi Arabia|Scotland|Senegal|Serbia|Sierra"
    " Leone"
    "|Singapore|Slovakia|Slovenia|Somalia|South Africa|South Korea|South Sudan|Spain|Sri Lanka|Sudan|Suriname"
    "|Sweden"
    "|Switzerland|Syria|Taiwan|Tajikistan|Tanzania|Thailand|Togo|Trinidad|Tunisia|Turkey|Turkmenistan|Uganda"
    "|Ukraine"
    "|United Arab Emirates|United Kingdom|United States(?: of America)?|Uruguay|Uzbekistan|Vanuatu|Venezuela"
    "|Vietnam|Wales"
    "|Yemen|Zambia|Zimbabwe|USA|UAE"
)
"""A regular expression."""
