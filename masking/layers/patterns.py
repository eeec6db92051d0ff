"""Our own recognisers, for what presidio does not know or cannot see.

All run on folded text, with `regex.ASCII`: a Korean particle glued to a value is not a word character and cannot hide
it. Every quantifier that could run over a whole text is bounded, so that hostile input costs linear time.
"""

from __future__ import annotations

_GLUE = r"[-. )/]{0,3}"
_AREA = r"(?:2|[3-6][1-5]|70|80|50\d?)"
_PLATE = "가나다라마거너더러머버서어저고노도로모보소오조구누두루무부수우주바사아자배하허호"
# What people put between the groups of a plate or a passport number.
_SPREAD = r"(?: ?[-./_·] ?| )?"
_TOP = r"(?:com|net|org|edu|gov|biz|info|io|kr|jp|cn|de|fr|uk|eu|company|local|internal|lan)"
_DAY = r"(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"

PATTERNS: tuple[tuple[str, str, str], ...] = (
    # Any host: presidio wants a public suffix, but intranet mail (a@host, a@corp.local) is mail too. Blanks may stand
    # where dots should.
    (
        "EMAIL",
        "mail address",
        r"(?<![A-Z0-9])[A-Z0-9._%+'-]{1,64}@"
        rf"(?:[A-Z0-9-]{{1,63}}(?: [A-Z0-9-]{{1,63}}){{0,2}} {_TOP}(?![A-Z0-9@.-])"
        r"|[A-Z0-9](?:[A-Z0-9-]{0,62}[A-Z0-9])?(?:\.[A-Z0-9](?:[A-Z0-9-]{0,62}[A-Z0-9])?){0,8})",
    ),
    # An `@` written as a word, or as quoted-printable mail writes it.
    (
        "EMAIL",
        "mail address with a written at sign",
        r"(?<![A-Z0-9])[A-Z0-9._%+'-]{1,64} ?(?:[\[({<] ?at ?[\])}>]|골뱅이|=40) ?"
        r"[A-Z0-9-]{1,63}(?:\.[A-Z0-9-]{1,63}){0,7}\.[A-Z]{2,63}",
    ),
    # Any scheme (a database URL holds a password). The host ends where ASCII does; a path may hold any script.
    (
        "URL",
        "address with scheme",
        r"(?<![A-Z0-9])[A-Z][A-Z0-9+.-]{1,15}://[A-Z0-9._~%:@\[\]!$&'()*+,;=-]{1,512}(?:[/?#][^\s<>\"'`]{0,2048})?",
    ),
    ("URL", "www address", r"(?<![A-Z0-9.])www\.[A-Z0-9.-]{1,253}(?::\d{1,5})?(?:[/?#][^\s<>\"'`]{0,2048})?"),
    # Presidio takes a bare hyphen only between the halves; people also write spaces, dots, tildes, or hide the tail.
    ("RRN", "resident number", rf"(?<!\d)\d{{2}}{_DAY} ?[-~./·]? ?[1-4](?:\d{{6}}(?!\d)|[*xX●○•]{{6,8}})"),
    ("FRN", "foreigner number", rf"(?<!\d)\d{{2}}{_DAY} ?[-~./·]? ?[5-8](?:\d{{6}}(?!\d)|[*xX●○•]{{6,8}})"),
    (
        "PHONE",
        "Korean mobile",
        rf"(?<![\d.])(?:\(?(?:\+|00)82{_GLUE}\(?0?\)?|\(?0)1[016789]{_GLUE}\d{{3,4}}{_GLUE}\d{{4}}(?!\d)",
    ),
    (
        "PHONE",
        "Korean landline, internet and safe numbers",
        rf"(?<![\d.])(?:\(?(?:\+|00)82{_GLUE}|\(?0){_AREA}[-. )]{_GLUE}\d{{3,4}}{_GLUE}\d{{4}}(?!\d)",
    ),
    # Two to four groups joined by hyphens, ten to sixteen digits in all: the shapes of Korean banks. 3-3-4 is a
    # telephone number.
    (
        "ACCOUNT",
        "Korean bank account",
        r"(?<![\d-])(?!\d{3}-\d{3}-\d{4}(?!\d))(?=(?:\d-?){10,16}(?![\d-]))\d{2,6}(?:-\d{1,8}){1,3}(?![\d-])",
    ),
    ("PASSPORT", "letters and seven or eight digits", r"(?<![A-Z0-9])[A-Z]{1,2}\d{7,8}(?![A-Z0-9])"),
    (
        "PASSPORT",
        "Korean passport",
        rf"(?<![A-Z0-9])[DGMORS]{_SPREAD}\d{{3}}{_SPREAD}(?:[A-Z]{_SPREAD}\d{{4}}|\d{{5}})(?![A-Z0-9])",
    ),
    (
        "PLATE",
        "Korean vehicle plate",
        rf"(?<!\d)\d{{2,3}}{_SPREAD}[{_PLATE}]{_SPREAD}\d{{4}}(?!\d)",
    ),
    # A letter where a hyphen is wanted, the same one twice.
    (
        "PHONE",
        "telephone number with letters between",
        r"(?<![A-Z0-9])0\d{1,2}(?P<letter>[A-Z]{1,3}|[가-힣])\d{3,4}(?P=letter)\d{4}(?!\d)",
    ),
    # A birthday cannot be told from another day, so every full date is masked; a year or a month alone is not.
    ("DATE", "full Korean date", r"(?<!\d)\d{2}(?:\d{2})?년 ?\d{1,2}월 ?\d{1,2}일"),
    (
        "DATE",
        "full date",
        r"(?<!\d)(?:19|20)\d{2} ?[-./] ?(?:0?[1-9]|1[0-2]) ?[-./] ?(?:0?[1-9]|[12]\d|3[01])(?!\d)",
    ),
    (
        "DATE",
        "full English date",
        r"(?<!\d)(?:\d{1,2}(?:st|nd|rd|th)? (?:of )?)?(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
        r" (?:\d{1,2}(?:st|nd|rd|th)?,? )?(?:19|20)\d{2}(?!\d)",
    ),
)
"""Entity type, name, regular expression."""
