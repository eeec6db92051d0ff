"""Which finds in a closed-up reading (see `joins`) are one value in pieces, and which are neighbours by accident.

Columns of numbers, lists and rows of tables end and begin with digits too. What only digits say counts in running
text alone, and where a piece that tells something is not masked already.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cache

import tldextract

from weighbridge.masking.entities import Span
from weighbridge.masking.joins import Closed

_OF_DIGITS = frozenset(
    "RRN FRN SSN ITIN NHS CARD BRN CRN LICENSE HEALTH PHONE ACCOUNT NUM ID WALLET UUID".split()
)
_EXACT = frozenset({"IBAN", "IP", "MAC", "PLATE"})
_LOOSE = frozenset({"NUM", "ID"})
_TELLING = 4
"""Letters and digits of a piece that is worth masking beside a piece that is masked already."""
_FEW, _FEW_GROUPED = 8, 7
"""Digits that are a number when no rule but their count says so; the second where a hyphen stands among them."""
_SPELLED = 5
"""Joins in one mail address that nothing but a blank behind every character makes."""
_LINE_REACH = 120
_MARKER = re.compile(r"\d{1,2}[.)](?!\S)")
_INK = re.compile(r"[^\W_]")
_LETTER = re.compile(r"[^\W\d_]")
_ENDS_OPEN = re.compile(r"[-._+%/?=&#]\Z")
_BEGINS_OPEN = re.compile(r"[-._+%/?=&#\d]")


def crossing(text: str, closed: Closed, hits: Sequence[Span], known: Sequence[Span]) -> list[Span]:
    """Those of `hits` in the closed-up reading that count, as spans of `text`.

    Args:
        known: merged spans that were found in `text` as it is.
    """
    starts = [start for start, _, _ in known]

    def masked(place: int) -> bool:
        before = bisect_right(starts, place) - 1
        return before >= 0 and place < known[before][1]

    spans: list[Span] = []
    for start, end, entity in hits:
        if (
            (joins := closed.crossed(start, end))
            and closed.whole(start, end)
            and _counts(text, closed, (start, end, entity), joins, masked)
        ):
            spans.append((*closed.original_span(start, end), entity))
    return spans


def _counts(
    text: str, closed: Closed, hit: Span, joins: Sequence[int], masked: Callable[[int], bool]
) -> bool:
    start, end, entity = hit
    written = closed.text[start:end]
    ink = [at for at in range(start, end) if _INK.match(closed.text[at])]
    left = [at for at in ink if not masked(closed.places[at])]
    if not left:
        return False
    match entity:
        case "EMAIL":
            return _mail(closed.text, start, end, joins)
        case "URL":
            return all(_open(closed.text, start, join, end) for join in joins)
        case "PASSPORT":
            # `is` or `a` before a number that begins the next line are no passport's letters.
            head = closed.text[start : joins[0]].lower()
            return head not in ("a", "i") and not (len(head) == 2 and head.isalpha() and written[0].islower())
        case "DATE":
            return not _LETTER.search(written) and not _marker(closed.text, joins[-1])
        case "ADDRESS":
            return _address(closed, start, end, joins, masked)
        case _ if entity in _EXACT:
            return True
        case _ if entity not in _OF_DIGITS:
            return False
    if _marker(closed.text, joins[-1]):
        return False
    if len(left) < len(ink):
        return len(left) >= _TELLING and not (entity in _LOOSE and _column(text, closed, joins))
    if entity not in _LOOSE:
        return True
    digits = sum(map(str.isdigit, written))
    return digits >= (_FEW_GROUPED if "-" in written else _FEW) and not _column(text, closed, joins)


def _marker(text: str, place: int) -> bool:
    """Whether a number of a list begins at `place`."""
    return _MARKER.match(text, place, place + 4) is not None


def _open(text: str, start: int, join: int, end: int) -> bool:
    """Whether a sign on one side of a join says that it goes on."""
    return bool(_ENDS_OPEN.search(text, start, join) or _BEGINS_OPEN.match(text, join, end))


def _column(text: str, closed: Closed, joins: Sequence[int]) -> bool:
    """Whether no letter stands in one of the lines that meet at a join: a column, a table, a matrix."""
    return any(
        not (
            _LETTER.search(_line_before(text, closed.places[join - 1] + 1))
            and _LETTER.search(_line_behind(text, closed.places[join]))
        )
        for join in joins
    )


def _line_before(text: str, place: int) -> str:
    return text[max(0, place - _LINE_REACH) : place].rsplit("\n", 1)[-1]


def _line_behind(text: str, place: int) -> str:
    return text[place : place + _LINE_REACH].split("\n", 1)[0]


def _address(
    closed: Closed, start: int, end: int, joins: Sequence[int], masked: Callable[[int], bool]
) -> bool:
    """A whole address that ends a line does not go on in the next one."""
    return not any(masked(closed.places[join - 1]) for join in joins)


def _mail(text: str, start: int, end: int, joins: Sequence[int]) -> bool:
    at = text.find("@", start, end)
    if at < 0 or len(joins) >= _SPELLED:
        return True
    for join in joins:
        if join <= at:
            continue
        before = text[at + 1 : join]
        if text[join] in ".-" or _suffix(text[join:end]):
            continue
        if _complete(before):
            return False
    return True


@cache
def _extract() -> tldextract.TLDExtract:
    """The list that comes with the package; asks no network."""
    return tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)


def _complete(host: str) -> bool:
    read = _extract()(host.rstrip(".-"))
    return bool(read.domain and read.suffix)


def _suffix(host: str) -> bool:
    """Whether it is the end of an address and nothing else, such as `co.kr`."""
    read = _extract()(host)
    return bool(read.suffix and not read.domain)
