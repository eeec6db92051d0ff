"""English words and phrases that tell a task, and how much each says.

They are looked up in normalised text: lower case, everything but letters, digits and `_` one space, a space at
either end, so that a leading space starts a word and a trailing one ends it. The weights are set by hand: 2 and
more settles a task alone, 1 needs company, 0.5 is a hint.
"""

from __future__ import annotations

from typing import Final

from weighbridge.policies.tasks import Task

Cue = tuple[str, Task, float]


def table(rows: dict[Task, dict[float, str]]) -> tuple[Cue, ...]:
    """Flatten rows of `|`-separated cues. Cues of one request are added up, each once."""
    return tuple(
        (cue, task, weight)
        for task, weights in rows.items()
        for weight, cues in weights.items()
        for cue in cues.split("|")
    )


ENGLISH: Final = table(
    {
        "summarization": {
            2.8: (
                " summar| tl dr | tldr | sum up | sum this| sum it up| condense| cliff notes"
                "| in a nutshell| executive brief| recap | main idea | key takeaways| main takeaways"
            ),
            1.9: (
                " boil | shorten | shorter | main point| key point| main argument| highlights of| gist "
                "| in short | takeaways| overview of the| brief overview| quick overview| an abstract"
                "| abstract of| abstract for| digest | brief me| briefing| essence of| minutes of the"
                "| what is this about| a synopsis| synopsis| short version| catch me up| compact form"
                "| one tweet| the minutes| plain sentences| digest of| cut this down| trim this"
                "| most important points"
            ),
            0.9: (
                " a headline| a title for| bullets | in one paragraph| sentences max| in two sentences"
                "| in three sentences| in one sentence| few sentences| words or less| at most | condensed"
                "| crisp "
            ),
        },
        "classification": {
            2.8: (
                " classif| categoriz| categoris| sentiment| spam | toxic| entail| moderat| multi label"
                "| which category| what category| intent of | the intent | intents| which label"
                "| label the| label each| label this| you label | hate speech| offensive| sarcas"
                "| paraphrase| what emotion| which emotion| which class | classifier| fake or "
                "| otherwise 0| output 1 if| is it a scam| which severity| grade level"
            ),
            1.9: (
                " label | labelling| tag the | tag each| tag this| urgency | urgent is| priority | bucket"
                "| which department| which team| one team| which queue| which of our| what language is"
                "| which language is| needs a human| need a human| sort these| sort the following into"
                "| group these| route each| route the| route this| best describes| best represents"
                "| the tone of| polarity| true or false| formal or informal| positive or negative"
                "| negative or positive| satisfied or| same meaning| duplicate| which genre| which topic"
                "| which section| star rating| how many stars| mark all| which word | what word among"
                "| word among| use to describe| is this a piece"
            ),
            0.9: (
                " labels| category | categories | topics | topic of| topic is| yes or no | yes no or "
                "| one word| low medium high| assign | p1 p2| options | departments| rate the| feeling"
                "| emotion| tone | stance| genre | true false| recommend the product| type of question"
                "| kind of question| fits best| belongs| false | fall under"
            ),
        },
        "extraction": {
            2.8: (
                " extract| named entit| key value| action items| fill the schema| fill in the schema"
                "| structured json| structured data| unstructured| into structured| parse the| parse this"
                "| pull the | pull out| ner | tagger| entity | fill in the form| fill out the form| vcard"
            ),
            1.9: (
                " entities | find all | find every| list all the| list every| give me all the"
                "| collect the| collect all| gather all| grab the | keywords| key phrases| out of this"
                "| out of these| record this| person names| return only json| mentioned in the"
                "| is mentioned| are mentioned| identify all| contact details| as bullet fields"
                "| tab separated| the fields| return the fields| turn this into a csv| into a csv"
                "| as json| to json| into json| appear in the| occur in the| diseases mentioned"
                "| proper nouns| abbreviation"
            ),
            0.9: (
                " json | csv | fields | table | columns| each line | one per line | comma separated "
                "| names | amounts| dates | list them| all the | spreadsheet"
            ),
        },
        "rag": {
            2.8: (
                " using only the | only the context| only from the| from the notice| from the context"
                "| from the passage| from the document| from the article| based on the| based on this"
                "| according to the | according to this| retrieved| ground every| ground your"
                "| use the passage| use the context| following context| the above text| following passage"
                "| reference material| using this document| using the document| outside knowledge"
                "| search results| given the context| given the passage| given the document"
                "| answer from the| knowledge base| read the text and| read the passage"
                "| read the following| i pasted| pasted here| per the | handbook| with reference to"
                "| looking at the"
            ),
            1.9: (
                " excerpts| passage| context | source id| cite the | cite your| answer the question"
                "| the question below| does the manual| does the document| does the contract"
                "| does the text| does the policy say| in the text| supplied| attached| quote the"
                "| here is our| here is the| from the meeting| does the manual say| following question"
                "| question about| answer depends on"
            ),
            0.9: (
                " document | documents | question | q | the manual | the report | the letter| the notice"
                "| faq| source "
            ),
        },
        "decision": {
            2.2: (
                " should we approve| decide whether| go no go| approve reject| approve or reject"
                "| should we hire| pricing committee| decision assistant| underwriting"
                "| make a recommendation| vendor risk| give a decision| decide and justify"
                "| should we choose| should we go for| would you extend| is this claim| claim allowed"
                "| would you approve| pick one of the"
            ),
            1.4: (
                " should we | should i | approve | approval| eligib| recommend go| determine if| decide "
                "| decision| trade offs| weigh the | meets our| do we do| choose between| our rules"
                "| our policy| justify| offers| what would you do| which supplier| which vendor"
                "| which option| which offer| which plan| whom to| is it worth| allowed | or move "
                "| return or| invest in| worth it| our cap| must haves| do we let| who goes where"
                "| your call| the right move| upgrade now| now or wait| which one do i| go ahead"
                "| accept counter| worth the| should he| should she| should they| who gets"
            ),
            0.7: (
                " policy | rules | risk | budget| conditions | constraints | compliance| claim | loan "
                "| supplier| contract | margin | candidate| discount | refund| reject | escalate"
                "| deadline| lease | rent | cost| offer | insured| limit | terms | stock | client"
                "| customer | applicants| option 1| roi "
            ),
        },
        "code": {
            2.8: (
                " python function| write a function| stack trace| traceback| unit test| refactor"
                "| dockerfile| bash script| shell script| sql query| regex| regular expression"
                "| github actions| code review| the diff | this code| the bug | debug| compile| pytest"
                "| react hook| lru cache| linked list| segfault| docstring| type hint| pandas| numpy"
                "| terraform| s3 bucket| source code| pull request| nginx| postgres| mysql| mongodb"
                "| redis| webpack| pytorch| tensorflow| kubectl| helm | ansible| graphql| grpc| jwt"
                "| cors | cron | makefile| cmake| gradle| vba | php | ruby | laravel| rails| angular"
                "| vue | flutter| haskell| scala | matlab| cuda| stack overflow| git | times out"
                "| off by one| deadlock| race condition| syntax error| compiler| data structure| big o "
                "| o n | slugify| struct | websocket| cannot read properties| null pointer"
            ),
            1.5: (
                " python| javascript| typescript| java | kotlin| c c 17| c 17 | golang | rust | sql "
                "| bash | react | docker| fastapi| django| bug | bugs | code | function that| class below"
                "| script that| workflow that| implement an| implement a | algorithm in| to go "
                "| typeerror| exception | kubernetes| html | css | in c | swift | npm | linux| vim "
                "| excel formula| spreadsheet formula| thread | config | trigger | json parse| decode "
                "| backend| frontend| command line| terminal| docstrings| snippet| boilerplate| crud "
                "| dataframe| async | endpoint| binary tree| recursion| api call| my component"
                "| my program| undefined "
            ),
            0.6: (
                " function | script | error | api | array | fails | build | yaml | query | test | ci "
                "| method| library| typed | hook | variable| loop | string | pointer| memory leak"
                "| database| schema "
            ),
        },
        "math": {
            2.4: (
                " solve for| prove that| prove by| a proof that| integral| derivative| eigenvalue"
                "| probability that| show that every| divisible by| how many ways| square root"
                "| determine all| compounded| factorial| polynomial| infinitely many| limit of| simplify "
                "| differentiate | factor the| least common| greatest common| standard deviation"
                "| what is the value of x"
            ),
            1.4: (
                " prove | proof | equation| probability| compute | calculate| evaluate | solve | matrix "
                "| triangle| integer| area of| volume of| frac | sqrt | sum of| percent of| per hour"
                "| remainder| perimeter| induction| prime| what does each cost| tip on | how old| how far"
                "| how fast| average speed| ratio of| in total| catch up| at what time| sum of the"
                "| rectangle| circle | radius| its sides| by contradiction| rational | irrational"
                "| logarithm| vector| modulo| mod | sequence | series | slope| maximize| minimize"
                "| decimal| fraction| odd numbers| even numbers| digits | dice| coin | cards"
            ),
            0.6: (
                " altogether | total | x | n | half as| times as| average | each | more than| compact "
                "| continuous| percent | hours | cost | costs "
            ),
        },
        "reasoning": {
            2.4: (
                " step by step| puzzle| riddle| knights| knaves| flaw in| logical| logically"
                "| can we conclude| does it follow| can we infer| who is telling| think through"
                "| think it through| reason carefully| clue| satisfies all| houses in a row| weighings"
                "| cross a river| in which order did| how can both| work it out| argue both| who did it"
                "| most likely explanation| critique | fallacy| brain teaser| paradox| deduce| murderer"
                "| jug "
            ),
            1.3: (
                " conclude | conclusion| argument | hypothes| suppose | truth | lies | liar"
                "| why or why not| taller than| shorter than| left of| right of| opposite the| schedule "
                "| constraints | strategy | pattern| finished before| finished after| only child"
                "| frictionless| incline| velocity| acceleration| mass of| kinetic| who is the "
                "| assumption| what day is| every | some | which switch| related | if all | therefore"
                "| explain your reasoning| what would happen if"
            ),
            0.5: (
                " why | next to| older than| assume | how does he| must | cannot | only once| sits | sit "
                "| exactly one"
            ),
        },
        "translation": {
            2.9: (
                " translat| how do you say| how would you say| how do i say| localis| localiz"
                "| interpreter| interpret each| in english mean| mean in english| render this| render the"
            ),
            1.0: " subtitle| version of this| natural | localized| native speaker",
        },
        "chat": {
            2.2: (
                " hello | hi there| how are you| how s it going| how is it going| good morning"
                "| good evening| thanks| thank you| joke | haiku| limerick| poem | poems| birthday"
                "| role play| roleplay| companion| who are you| can you help me | just saying hi"
                "| can we talk| good night| nice to meet| bye | gift ideas| do you ever| are you a "
                "| what s your| pretend you| song about| your favorite| your favourite| let s chat"
            ),
            1.5: (
                " hi | hey | let s play| pretend| story | a letter| draft a | polite email| suggest "
                "| recommendations| write a short| write me a| i feel| should i cook| names for| cheerful"
                "| coherent paragraph| brainstorm| reword | rewrite | rephrase| sounds friendlier"
                "| friendlier| recommend me| recommend a| ideas for| slogan| tagline| blog post"
                "| speech for| invitation| long day| fun fact| toast | continue the story| compose a"
                "| i just got| without a fight| advice| how do i tell| how do i bring"
            ),
            0.6: (
                " write a | write me | compose | cover letter| bored| ideas | weekend | feel | tonight "
                "| email to | message | my colleague| fun | gift | my dad| my mom| creative| ok | okay "
                "| please "
            ),
        },
        "knowledge": {
            1.3: (
                " what is the capital| difference between| which of the following| history of| define "
                "| who wrote| side effects| is it true| what year| which countries| background on"
                "| who was the| who invented| why is the | why do | why are | how do | how does"
                "| what causes| meaning of"
            ),
            0.8: (
                " what is | what s the| what are | who | when did| when was| when is| tell me about"
                "| explain how| list the| explain the| what was| where is| where are| which | symptom"
                "| called | what does| can dogs| facts about| name three| name two| name five| name the "
                "| used for| how long does it| explain | describe | what type| what kind| how did"
                "| the most"
            ),
        },
    }
)

LANGUAGES: Final = (
    "english|french|german|korean|japanese|chinese|mandarin|spanish|italian|portuguese|brazilian|dutch|swedish"
    "|russian|arabic|vietnamese|thai|indonesian|turkish|polish|hindi|norwegian|danish|czech|greek|hebrew|latin"
)
"""Names of languages, a regular expression's alternatives."""
