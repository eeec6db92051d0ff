"""How many people a request tells about, as an estimate.

The largest number of different values of one kind that people have one of: a table of thirty customers has thirty
telephone numbers, addresses of mail or names, while an article about fifteen people has their fifteen names. Kinds are
not added up, since one person has several.

Korean proper nouns (NAME) are mostly firms and places, so only those that look like a full Korean name (a surname and
two syllables) count, and seven in ten of them: in news, 78 of 100 of that shape were people. A name that is a part of
a longer one (`Smith` beside `John Smith`) is the same person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from weighbridge.masking.folding import fold_text

KINDS: dict[str, str] = {
    "RRN": "resident",
    "FRN": "resident",
    "SSN": "social",
    "ITIN": "social",
    "NHS": "health",
    "HEALTH": "health",
    "CARD": "card",
    "IBAN": "account",
    "ACCOUNT": "account",
    "LICENSE": "licence",
    "PASSPORT": "passport",
    "EMAIL": "mail",
    "PHONE": "phone",
    "PLATE": "plate",
    "KNOWN": "known",
}
"""Entity types that count whole, and what they are counted with. A list of the tenant's own (KNOWN) mostly names people
or customers. Left out: what firms, machines and days have (BRN, CRN, URL, UUID, MAC, IP, WALLET, ID, DATE, PLACE, ORG,
NUM), and ADDRESS, since branches of a shop have addresses too."""

_NAME_PERCENT = 70
_SEPARATORS = re.compile(r"[\s\-./()_,'’]+")
_SURNAMES = (
    "김이박최정강조윤장임한오서신권황안송류유전홍고문양손배백허남심노하곽성차주우구민나진지엄채원천방공현함변염여추도소석선설"
    "마길연위표명기반왕금옥육인맹제모탁국"
)
_KOREAN_NAME = re.compile(rf"(?:[{_SURNAMES}]|남궁|황보|제갈|선우|독고|사공|서문|동방)[가-힣]{{2}}\Z")


def people(values: Iterable[tuple[str, str]]) -> int:
    """The estimate.

    Args:
        values: entity type and text of each found value, in any order, the same one as often as it stands there.
    """
    kinds: dict[str, set[str]] = {}
    persons: set[str] = set()
    nouns: set[str] = set()
    for entity, written in values:
        if entity == "PERSON":
            persons.add(fold_text(written).casefold().strip())
        elif entity == "NAME":
            nouns.add(fold_text(written).casefold().strip())
        elif kind := KINDS.get(entity):
            kinds.setdefault(kind, set()).add(_SEPARATORS.sub("", fold_text(written)).casefold())
    most = max(map(len, kinds.values()), default=0)
    whole = _without_parts(persons)
    likely = [noun for noun in nouns if _KOREAN_NAME.match(noun) and noun not in persons]
    return max(most, len(whole) + len(likely) * _NAME_PERCENT // 100)


def _without_parts(names: set[str]) -> set[str]:
    parts = {word for name in names if " " in name for word in name.split()}
    return {name for name in names if name not in parts}
