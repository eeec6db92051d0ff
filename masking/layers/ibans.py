"""International bank account numbers with any sign between their groups, told by country and check digits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from presidio_analyzer.predefined_recognizers.generic.iban_patterns import regex_per_country

from weighbridge.masking.entities import Span

_SIGNS = r"[-. /_·,:]{0,3}"
_CANDIDATE = re.compile(
    rf"(?<![A-Za-z0-9])(?=(?P<all>[A-Za-z]{{2}}{_SIGNS}\d{_SIGNS}\d(?:{_SIGNS}[A-Za-z0-9]){{11,30}}))",
    re.ASCII,
)
_SIGN = re.compile(r"[-. /_·,:]+")
_BARE = {
    country: re.compile(expression.replace("[ ]?", "")) for country, expression in regex_per_country.items()
}
"""By country, the form without blanks."""


def ibans(text: str) -> Iterator[Span]:
    """Spans of `text`, which is folded. Linear in its length."""
    for hit in _CANDIDATE.finditer(text):
        written = hit["all"]
        form = _BARE.get(written[:2].upper())
        if form is None:
            continue
        bare = _SIGN.sub("", written).upper()
        number = form.match(bare)
        if number is None or not _checks(number.group()):
            continue
        yield hit.start(), hit.start() + _reach(written, len(number.group())), "IBAN"


def _checks(number: str) -> bool:
    turned = number[4:] + number[:4]
    return int("".join(str(int(char, 36)) for char in turned)) % 97 == 1


def _reach(written: str, count: int) -> int:
    """Where the letter or digit number `count` ends."""
    for at, char in enumerate(written):
        count -= char.isalnum()
        if not count:
            return at + 1
    return len(written)
