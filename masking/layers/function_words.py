"""Small words by which a language is told, without accents: prose of any length is full of them.

Words that are also English, names or parts of names (de, la, van, von, di, el, in, die, no …) are left out or counted
by half.
"""

from __future__ import annotations

ENGLISH = frozenset(
    """
    the of and to in is that it for was on are as with his they at be this from have or by had not
    but what all were when your can said there use an each which she do how their if will up other
    about out many then them these so some her would make like him into time has look two more go
    see no way could people my than first been call who its now find down day did get come made may
    part i you we he me us our a am because while should must does where why
    """.split()  # noqa: SIM905
)

WORDS: dict[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "es": (
            "que los las una para con por como pero mas este esta esto muy sin sobre cuando donde quien porque "
            "hay fue ser estar tiene soy eres somos estoy nombre llamo vivo mi su sus nuestro nuestra del al se "
            "lo le nos usted ustedes gracias hola favor numero telefono correo direccion ayer hoy manana "
            "tambien ya desde hasta entre puede quiero necesito senor senora cliente es un y tengo anos"
        ),
        "fr": (
            "que qui les des une est dans pour avec sur pas vous nous je il elle ils ce cette ces mais ou donc "
            "sont ete etre avoir suis sommes etes ont aux par plus mon ma mes son sa ses notre votre leur tres "
            "bien merci bonjour appelle habite numero adresse monsieur madame hier aujourd demain aussi comme "
            "quand parce depuis chez et un le ne du au se y quel quelle veuillez"
        ),
        "de": (
            "der das und ist nicht ein eine einen einem einer mit auf fur von dem den des sich auch als wir ich "
            "sie er es ihr mein meine ihre sein seine wird werden wurde haben hat habe sind aber oder wenn nach "
            "bei aus um noch nur kann konnen uber dass bitte danke heisse heit name wohne strasse sehr geehrte "
            "herr frau gestern heute morgen unser unsere zu zum zur im vom durch geboren kunde"
        ),
        "it": (
            "che non per una sono con del della dei delle gli nel nella come anche piu questo questa ma mi si "
            "ho hai ha abbiamo essere stato grazie buongiorno ciao chiamo abito via mio mia suo sua nostro cosa "
            "quando dove perche molto il lo e al alla dal dalla numero telefono signor signora ieri oggi domani "
            "cliente sul"
        ),
        "pt": (
            "que nao uma para com por como mas mais este esta isso muito sem sobre quando onde quem porque ha "
            "foi ser estar tem sou somos estou nome chamo moro meu minha seu sua nosso nossa do da dos das ao "
            "aos no na nos nas em um e voce voces obrigado ola numero telefone endereco ontem hoje amanha "
            "tambem ja desde ate entre pode quero preciso senhor senhora cliente se os eu ele ela"
        ),
        "nl": (
            "het een van en niet dat met voor zijn ook maar aan bij uit als naar wordt deze dit ik je jij wij "
            "hij zij u mijn uw onze heb heeft hebben ben bent naam woon wel nog meer geen door over om te kan "
            "kunnen graag bedankt hallo heer mevrouw gisteren vandaag morgen klant telefoonnummer adres is in "
            "op de"
        ),
        "vi": (
            "la cua va co khong duoc toi ten cho voi nguoi nay trong mot nhung cac da o anh chi em ong ba ban "
            "chung hay xin chao cam on so dien thoai dia khach hang rat nhieu khi neu vi thi ma se dang den tu "
            "song tai sinh nam"
        ),
        "id": (
            "yang dan dengan untuk tidak ini itu dari pada adalah saya kami kita anda akan bisa sudah telah "
            "juga atau oleh karena seperti ke nama tinggal terima kasih selamat nomor telepon alamat pelanggan "
            "di ada dalam tersebut bahwa"
        ),
        "tr": (
            "ve bir bu icin ile olarak daha cok gibi var yok degil ben sen biz siz benim adim numara telefon "
            "adres musteri tesekkurler merhaba ama ancak sonra kadar olan her ne mi mu ise en da de"
        ),
        "pl": (
            "nie jest sie na to ze jak ale czy dla przez przy po od tak juz tylko moze jestem mam moje moj "
            "mieszkam nazywam dziekuje prosze pan pani numer telefonu adres klient oraz ktory ktora jego jej "
            "byl byla w z i o do"
        ),
        "sv": (
            "och att det som ar pa inte jag du vi ni han hon med for av den ett en om kan har var mitt min "
            "heter bor tack hej nummer kund ska till fran eller men mycket igar idag"
        ),
        "da": (
            "og at det som er pa ikke jeg du vi han hun med for af den et en om kan har var mit min hedder bor "
            "tak hej nummer kunde skal til fra eller men meget i gar"
        ),
        "fi": (
            "ja on ei se etta oli han mutta ovat ole myos kun niin kuin mina sina olen nimeni asun kiitos hei "
            "numero puhelin osoite asiakas minun jos voi sen tama joka"
        ),
        "cs": (
            "je se na to ze jako ale pro pri po od tak uz jen muze jsem mam moje muj bydlim jmenuji dekuji "
            "prosim pan pani cislo telefon adresa zakaznik ktery ktera jeho jeji byl byla nebo by v i do"
        ),
        "tl": (
            "ang ng mga sa ako ikaw siya kami tayo kayo sila ay na at hindi po opo ito iyan salamat pangalan "
            "nakatira numero para kung dahil may mayroon ko mo niya namin natin"
        ),
        "ro": (
            "si nu este sunt pentru cu din la care pe un o mai dar sau ca fost avea am numele meu locuiesc "
            "multumesc buna numar telefon adresa domnul doamna client sa se al ale lui ei"
        ),
        "hu": (
            "es hogy nem az egy is van volt csak de mint vagy meg ez ezt nagyon vagyok nevem lakom koszonom "
            "szia szam telefon cim ugyfel ha mar fel ki be"
        ),
    }.items()
}
"""Language and its words, in small letters and without accents."""

HALF = frozenset(
    """
    de del da do dos das du des di el la le los las van von den der al y e i o a u en em in on no na
    se me te si so to we she he is an as at by my or son men must mi ma sa lo ne tu il per con via
    ha mit hat war die name um was ben dan ten tan han hon era sin for are not can ban anh ong bo
    song nam kim hay her age ale pan mar jan ist san santa mon mes dame art est au pour par port ai
    nos et ex sed non om var till av min of w z v k s ay may po ng ko mo para ja ei sen meg ki be ez
    fel nu am un pe lui ca din care mai sau bin ibn abu ad
    """.split()  # noqa: SIM905
)
"""Counted by half: also English, also a name, or an abbreviation."""
