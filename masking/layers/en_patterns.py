"""Values that an English label, or their own form, gives away: identifiers, telephones, ages, birthdays, domains.

Group `v` is the value where the rule has one; else the whole hit counts. All quantifiers are bounded.
"""

from __future__ import annotations

import regex

from weighbridge.masking.layers.en_words import COUNTRIES

_IS = (
    r"(?:[^\S\r\n]{0,3}(?:number|numbers|no|num|nr|id|code|ref|#)\b\.?)?[^\S\r\n]{0,3}"
    r"(?:\(?(?:ending|starting)(?: (?:in|with))?)?"
)
_THEN = r"(?:[^\S\r\n]{0,3}(?:is|was|are|:|=|#|-|->)){0,2}[\s\"'*_`#(]{0,6}"
_VALUE = (
    r"(?P<v>(?=[A-Z0-9/.:-]{0,24}\d)(?:[A-Z0-9]{1,24}(?:[-/.:](?:\r?\n[^\S\r\n]{0,4})?[A-Z0-9]{1,24}){0,5}"
    r"|\d{1,6}(?: \d{1,6}){1,6}))(?![A-Z0-9])"
)


def _labelled(labels: str) -> str:
    return rf"(?<![A-Z0-9])(?:{labels})(?![A-Z]){_IS}{_THEN}(?=[A-Z0-9/.: -]{{3}}){_VALUE}"


_TLDS = (
    "com|net|org|edu|gov|mil|int|info|biz|io|ai|app|dev|xyz|online|site|shop|club|tech|store|cloud|blog|eu|uk"
    "|co\\.uk"
    "|org\\.uk|ac\\.uk|de|fr|nl|ch|dk|se|fi|pl|cz|pt|gr|hu|ro|ru|jp|co\\.jp|kr|co\\.kr|or\\.kr|go\\.kr|ac\\.kr"
    "|cn|br"
    "|com\\.br|mx|ca|au|com\\.au|nz|co\\.nz|za|co\\.za|tv|me|us|es|ie|no|lt|lv|ee|si|sk|bg|hr|tr|ua|il|sg|hk|tw"
    "|th|vn"
)
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_DAY = (
    rf"(?:\d{{1,4}}[./ -]\d{{1,2}}[./ -]\d{{1,4}}|\d{{1,2}}(?:st|nd|rd|th)?[ -](?:of )?{_MONTH}\.?(?:,?["
    rf" -]\d{{2,4}})?"
    rf"|{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{2,4}})?|\d{{8}}|(?:19|20)\d{{2}})"
)
_TENS = "(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)"
_AGE_WORDS = (
    rf"(?:{_TENS}(?:[ -](?:one|two|three|four|five|six|seven|eight|nine))?|ten|eleven|twelve|(?:thir|four|fif"
    rf"|six|seven|eigh|nine)teen"
    r"|one|two|three|four|five|six|seven|eight|nine)"
)
_YEARS = rf"(?:\d{{1,3}}|{_AGE_WORDS})"

NUMBERED: tuple[tuple[str, regex.Pattern[str]], ...] = tuple(
    (entity, regex.compile(rule, regex.IGNORECASE))
    for entity, rule in (
        ("PASSPORT", _labelled(r"passports?")),
        (
            "LICENSE",
            _labelled(
                r"(?:driv(?:er'?s?|ing) |medical |nursing |professional )?licen[sc]e|driver'?s? lic|dl|npi|dea"
            ),
        ),
        (
            "HEALTH",
            _labelled(
                r"mrn|medical record|patient|chart|medicare|medicaid|health (?:card|plan|insurance|id)|nhs"
                r"|prescription|rx"
                r"|subscriber|insurance(?: policy)?|hospital"
            ),
        ),
        (
            "ACCOUNT",
            _labelled(
                r"(?:bank |checking |savings |current |my )?acc(?:oun)?ts?|acct|a/c|routing(?: transit)?|aba"
                r"|rtn|sort code|swift"
                r"|bic|iban|bsb|ifsc|clabe"
            ),
        ),
        ("SSN", _labelled(r"ssn|social security|social|sin|national insurance|nino?|nin")),
        (
            "NUM",
            _labelled(
                r"cvv2?|cvc2?|security code|expir(?:y|es|ation)(?: date)?|exp|last (?:four|4)(?: digits)?"
                r"|extension|ext"
            ),
        ),
        (
            "ID",
            _labelled(
                r"(?:member(?:ship)?|customer|client|employee|staff|student|user|loyalty|badge|policy|claim"
                r"|order|invoice|ticket"
                r"|case|booking|confirmation|reservation|reference|ref|tracking|serial|contract|application"
                r"|registration|file"
                r"|national|citizen|voter|tax(?:payer)?|vat|device|frequent flyer|pnr|parcel|shipment|account"
                r" holder|docket|visa"
                r"|green card|alien|pension|meter|license plate|plate|group|transaction|payment|delivery"
                r"|purchase order|po"
                r"|work order|vehicle|apn|matter|crew|personnel|payroll|roll|enrol?lment|library card|gift card"
                r"|id(?:entification)?|ein"
                r"|tin|fein|imei|iccid|imsi|vin|uuid|guid)"
            ),
        ),
        (
            "PHONE",
            _labelled(
                r"(?:tele)?phone|tel|mobile|cell(?:phone)?|fax|call|text|whatsapp|desk|direct|landline|pager"
                r"|ring|dial"
            ),
        ),
        # By its form alone
        (
            "SSN",
            r"(?<![A-Z0-9])(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d{2} ?\d{2} ?\d{2} "
            r"?[A-D](?![A-Z0-9])",
        ),
        (
            "IBAN",
            r"(?<![A-Z0-9])[A-Z]{2}\d{2}[ -]?(?:[A-Z0-9]{4}[ -]?){2,7}[A-Z0-9]{1,4}(?![A-Z0-9])(?<=\d.{0,12})",
        ),
        (
            "ID",
            r"(?<![A-Z0-9])(?=[A-HJ-NPR-Z\d]{0,16}\d[A-HJ-NPR-Z\d]{0,16})(?=\d{0,16}[A-HJ-NPR-Z]"
            r")[A-HJ-NPR-Z\d]{8}[\dX][A-HJ-NPR-Z\d]{2}\d{6}(?![A-Z0-9])",
        ),
        ("ID", r"(?<![\d-])\d{2}-\d{7}(?![\d-])"),
        ("SSN", r"(?<![\d-])\d{3}[- .]\d{2}[- .]\d{4}(?![\d-])"),
        # Two letters and five digits, or one letter and six to nine: passports, licences, members
        ("ID", r"(?<![A-Z0-9_./=-])(?:[A-Z]{2,4}-?\d{5,10}|[A-Z]-?\d{6,12}|\d{6,9}[A-Z]{1,2})(?![A-Z0-9_])"),
        (
            "PHONE",
            r"(?<![\w.+-])[+(]?\d{1,4}(?:[\s().\-/]{1,3}\d{1,5}){1,6}[^\S\r\n]?(?:x|ext\.?|extension)[^\S\r\n]"
            r"?\d{1,6}(?!\w)",
        ),
        ("PHONE", r"(?<![\w.+-])(?:\+|00)\d{1,3}(?:[\s().\-/]{0,3}\d{1,4}){2,6}(?![\w])"),
        ("PHONE", r"(?<![\w.,/-])\(\d{2,5}\)[ -]?\d{2,4}(?:[ -]\d{2,4}){0,3}(?![\w])"),
        # Ages
        ("NUM", r",[^\S\r\n](?P<v>\d{2}),(?=\s)"),
        # Birthdays, however short
        (
            "DATE",
            rf"(?:\b(?:d\.?o\.?b\.?|birth ?(?:date|day)|date of birth|born(?: on| in)?|birthday|b\.)(?: is| was"
            rf"|:|=|,|-|\?)?(?: on| it'?s)?[\s\"']{{1,4}}){{1,2}}(?P<v>{_DAY})(?!\d)",
        ),
        ("DATE", rf"date of birth\b[^.\n]{{0,12}}\.[^\S\r\n]it'?s (?P<v>{_DAY})(?!\d)"),
        (
            "DATE",
            r"(?<![\d/.-])(?:0?[1-9]|[12]\d|3[01])([/.-])(?:0?[1-9]|[12]\d|3[01])\1(?:19|20)\d{2}(?!\d)",
        ),
    )
)
"""Rules that need a digit, and read capitals and small letters alike."""

ANYWHERE: tuple[tuple[str, regex.Pattern[str]], ...] = tuple(
    (entity, regex.compile(rule, regex.IGNORECASE))
    for entity, rule in (
        # Two letters and more between dots, and a suffix that exists
        (
            "URL",
            rf"(?<![@\w.-])(?:[A-Z0-9](?:[A-Z0-9-]{{0,61}}[A-Z0-9])?\.){{1,4}}(?:{_TLDS})(?![\w-])(?!\.\w)("
            rf"?:[:/?#][^\s<>\"']{{0,512}})?",
        ),
        (
            "NUM",
            rf"(?P<v>(?<![\w.]){_YEARS})(?:[ -]?(?:years?|yrs?|months?)[ -]old|[ -]?y/?o\b| years? of age)",
        ),
        (
            "NUM",
            rf"\b(?:aged?|age is|age was|turn(?:s|ed|ing)?|age of)(?: just| now)?[ :=]{{1,3}}(?P<v>{_YEARS})("
            rf"?![\w%])",
        ),
        (
            "NUM",
            rf"\b(?:i am|i'm|he is|he's|she is|she's|they are|we are|who is|is only|am only) (?:now |only |just"
            rf" |almost |about )?(?P<v>{_YEARS})(?=[.,;!?)]|\s*$| and\b| but\b)",
        ),
    )
)
"""Rules that need no digit, and read capitals and small letters alike."""

_FIRM = (
    "Inc|Incorporated|Ltd|Limited|LLC|L\\.L\\.C\\.|LLP|PLC|plc|Corp|Corporation|GmbH|AG|KG|S\\.A\\.|SA|SAS|SARL|BV"
    "|B\\.V\\.|NV|AB|AS|ASA|ApS|A/S|Oy|Oyj|SpA|S\\.p\\.A\\.|Srl|S\\.r\\.l\\.|Pty|Co|Company|Group|Holdings"
    "|Partners|Associates|Bank"
    "|Insurance|University|College|Institute|Hospital|Clinic|School|Academy|Church|Foundation|Solutions"
    "|Technologies|Systems"
    "|Services|Consulting|Industries|Enterprises|Ventures|Capital|Labs|Laboratories|Studios|Media|Airlines"
    "|Airways|Motors"
    "|Pharmaceuticals|Sons|Brothers|Bros|Ministry|Agency|Council|Orchestra|Union|Trust|Logistics"
)
_CAP = r"\p{Lu}[\p{L}\d'’&.-]{0,30}"

CAPITALISED: tuple[tuple[str, regex.Pattern[str]], ...] = tuple(
    (entity, regex.compile(rule))
    for entity, rule in (
        ("ORG", rf"(?<![\p{{L}}\d])(?:{_CAP} |and |& |of ){{0,4}}{_CAP},? (?:{_FIRM})\.?(?![\p{{L}}\d])"),
        (
            "ORG",
            rf"(?<![\p{{L}}\d])(?:University|Bank|College|Institute|Ministry|Department|Hospital) of (?:the )"
            rf"?{_CAP}(?: {_CAP}){{0,3}}",
        ),
        ("PLACE", rf"(?<![\p{{L}}\d])(?:{COUNTRIES})(?: \(\p{{Lu}}\p{{Ll}}{{1,20}}\))?(?![\p{{L}}\d])"),
        ("PLACE", r"\b(?i:in|from|near|to) (?P<v>\p{Lu}{5,30}(?: \p{Lu}{1,30}){0,3})(?![\p{L}\d_])"),
        # Clark, Romero and Hall; Vazquez-Riggs
        (
            "ORG",
            r"(?<![\p{L}\d])\p{Lu}\p{Ll}{2,20}, \p{Lu}\p{Ll}{2,20},? (?:and|&) \p{Lu}\p{Ll}{2,20}(?!\p{L})",
        ),
        ("NAME", r"(?<![\p{L}\d-])\p{Lu}\p{Ll}{2,20}-\p{Lu}\p{Ll}{2,20}(?![\p{L}-])"),
        (
            "ORG",
            rf"\b(?i:work(?:s|ed|ing)? (?:for|at)|employed (?:by|at)|employer(?: is|:)|ceo of|founder of"
            rf"|company(?: is|:| called| named)|offices? of|join(?:ed|ing)) (?:the )?(?P<v>(?:{_CAP} ?|and |of "
            rf"|& ){{1,5}}(?<=\S))",
        ),
        (
            "ORG",
            r"\b(?i:i work(?:ed)? for|used to work for) (?P<v>\p{L}[\p{L}\d'’.-]{1,30}(?:, \p{L}[\p{L}-]{1,30})"
            r"?(?: (?!as\b|and\b|but\b|in\b|at\b|with\b|for\b|the\b)\p{L}[\p{L}\d'-]{1,30}){0,2})",
        ),
        (
            "PLACE",
            rf"\b(?i:liv(?:e|es|ed|ing) in|moved (?:here )?(?:to|from)|come from|comes from|came from"
            rf"|originally from|born in|grew up in|raised in|travel(?:l?ing)? to|flew to|visit(?:ed|ing)?"
            rf"|hometown(?: is|:)|trip to|returned to|based in|coming to) (?:the )?(?P<v>{_CAP}(?: {_CAP}| ("
            rf"?:de|la|del|upon|on|of|al|el|am|sur|an der)(?= \p{{Lu}})){{0,4}})",
        ),
        (
            "PLACE",
            r"\b(?i:liv(?:e|es|ed) in|moved here from|originally from|born in|grew up in|my friend lives in) ("
            r"?P<v>(?!the\b|a\b|an\b|my\b|his\b|her\b|their\b|this\b|that\b|our\b|your\b|it\b|one\b|fear\b"
            r")\p{Ll}[\p{L}'’-]{2,30})",
        ),
        # A person's origin or faith
        (
            "PLACE",
            r"\b(?:I am|I'm|i am|i'm|[Hh]e is|[Ss]he is|[Hh]e's|[Ss]he's|[Ww]e are|[Tt]hey are) (?:an? )?("
            r"?:\d{1,3}[- ]year[- ]old )?(?P<v>\p{Lu}\p{Ll}{2,20}(?:ese|ian|ean|an|ish|ch|i|ic|im|ist|ew|eek))("
            r"?![\p{L}-])",
        ),
        (
            "PLACE",
            r"\b[Ii](?: am|'m) (?P<v>(?!(?:veget|librar|pedestr|civil|comed|histor|barbar|guard|custod|agrar"
            r"|human|octogenar)ian)\p{Ll}{3,16}(?:nese|vian|nian|sian|lian|rian|dian|zian|cian|tian|bian|ican"
            r"|ish|eian|ani))(?=[.,!?]| but\b| and\b| by\b|$)",
        ),
    )
)
"""Rules that need the capitals."""
