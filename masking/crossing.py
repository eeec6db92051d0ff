"""Which finds in a closed-up reading (see `joins`) are one value in pieces, and which are neighbours by accident.

Columns of numbers, lists and rows of tables end and begin with digits too. What only digits say counts in running
text alone, and where a piece that tells something is not masked already.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import takewhile

from weighbridge.masking.backstop import MIN_DIGITS
from weighbridge.masking.entities import Span
from weighbridge.masking.joins import Closed
from weighbridge.masking.layers.ibans import ibans
from weighbridge.masking.layers.ko_addresses import BEHIND, addresses
from weighbridge.masking.suffixes import offline

_OF_DIGITS = frozenset(
    {"RRN", "FRN", "SSN", "ITIN", "NHS", "CARD", "BRN", "CRN", "LICENSE", "HEALTH", "WALLET", "UUID", "PHONE"}
    | {"ACCOUNT", "ID", "NUM"}
)
_EXACT = frozenset({"IP", "MAC", "PLATE"})
_LOOSE = frozenset({"NUM", "ID"})
_TELLING = 4
"""Letters and digits of a piece that is worth masking beside a piece that is masked already."""
_SPELLED = 5
"""Joins in one mail address that nothing but a blank behind every character makes."""
_LINE_REACH = 120
_MARKER = re.compile(r"\d{1,2}[.)](?!\S)")
# The rest of an address that was masked up to the line's end.
_REST = re.compile(
    r"(?:번?길|로|동|호|층|번지)(?![가-힣])|[가-힣A-Za-z]{0,8}[- ,]{0,2}\d{1,4}[ ]?[동호층]"
    r"|\d{1,5}(?:-\d{1,5})?(?:[ ]?[,)]|번|\Z|[ ][가-힣A-Za-z]{1,12}[ ]?\d{1,4}[ ]?동"
    rf"|{BEHIND}|[ ]{{0,2}}\n)"
    r"|\d{1,3}(?:번|[가나다])?[가-힣]?길[ ]?\d"
)
_HYPHEN = re.compile(r"-\d|\d-\d")
_HOST = re.compile(r"[A-Za-z0-9.-]+")
_INTRANET = (".local", ".internal", ".intranet", ".lan", ".corp", ".home", ".localdomain")
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

    def masked(place: int) -> str:
        before = bisect_right(starts, place) - 1
        return known[before][2] if before >= 0 and place < known[before][1] else ""

    spans: list[Span] = []
    for start, end, entity in hits:
        if (
            (joins := closed.crossed(start, end))
            and closed.whole(start, end)
            and _counts(text, closed, (start, end, entity), joins, masked)
        ):
            spans.append((*closed.original_span(start, end), entity))
    return spans


def _counts(text: str, closed: Closed, hit: Span, joins: Sequence[int], masked: Callable[[int], str]) -> bool:
    start, end, entity = hit
    written = closed.text[start:end]
    ink = [at for at in range(start, end) if _INK.match(closed.text[at])]
    left = [at for at in ink if not masked(closed.places[at])]
    if not left:
        return False
    match entity:
        case "IBAN":
            # Some layers take any word of such a length for one.
            return any(ibans(written))
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
            # A whole one that ends a line does not go on in the next one.
            doubtful = [
                join
                for join in joins
                if masked(closed.places[join - 1]) == "ADDRESS"
                and not _REST.match(closed.text, join)
                and not _HYPHEN.match(closed.text, join - 1)
            ]
            return not doubtful or _runs_through(closed.text, start, end, doubtful)
        case _ if entity in _EXACT:
            return True
        case _ if entity not in _OF_DIGITS:
            return False
    if _marker(closed.text, joins[-1]):
        return False
    if len(left) < len(ink):
        return len(left) >= _TELLING and not (entity in _LOOSE and _column(text, closed, joins))
    if entity not in _LOOSE and not written.isdigit():
        return True
    digits = sum(map(str.isdigit, written))
    return digits >= MIN_DIGITS and not _column(text, closed, joins)


def _marker(text: str, place: int) -> bool:
    """Whether a number of a list begins at `place`."""
    return _MARKER.match(text, place, place + 4) is not None


def _runs_through(text: str, start: int, end: int, joins: Sequence[int]) -> bool:
    """Whether addresses known by their own form, not by a label before them, stand on both sides of each join.

    Between two digits their form says nothing: 12 and 3 make 123 as well.
    """
    if any(text[join - 1].isdigit() and text[join].isdigit() for join in joins):
        return False
    formed = list(addresses(text[start:end]))
    return all(any(first < join - start < last for first, last, _ in formed) for join in joins)


def _open(text: str, start: int, join: int, end: int) -> bool:
    """Whether a sign on one side of a join says that it goes on."""
    return bool(_ENDS_OPEN.search(text, start, join) or _BEGINS_OPEN.match(text, join, end))


def _column(text: str, closed: Closed, joins: Sequence[int]) -> bool:
    """Whether two lines that meet hold no letter, or one of them and its neighbour: a column, a table, a matrix."""
    return any(_bare_lines(text, closed.places[join - 1] + 1, closed.places[join]) > 1 for join in joins)


def _bare_lines(text: str, end: int, start: int) -> int:
    """Lines of digits and signs in a row, up to two that end at `end` and two that begin at `start`."""
    before = text[max(0, end - 2 * _LINE_REACH) : end].split("\n")[:-3:-1]
    behind = text[start : start + 2 * _LINE_REACH].split("\n")[:2]
    return sum(len(list(takewhile(_bare, lines))) for lines in (before, behind))


def _bare(line: str) -> bool:
    return not _LETTER.search(line) and any(map(str.isdigit, line))


def _mail(text: str, start: int, end: int, joins: Sequence[int]) -> bool:
    at = text.find("@", start, end)
    if at < 0 or len(joins) >= _SPELLED:
        return True
    for join in joins:
        if join <= at:
            continue
        if text[join] in ".-" or _suffix(text[join:end]) or _complete(text[at + 1 : end]):
            continue
        if _complete(text[at + 1 : join]):
            return False
    return True


def _complete(written: str) -> bool:
    """Whether it is a host's whole name, particles behind it aside."""
    found = _HOST.search(written)
    host = found.group().rstrip(".-") if found else ""
    read = offline()(host)
    return bool(read.domain and read.suffix) or host.lower().endswith(_INTRANET)


def _suffix(host: str) -> bool:
    """Whether it is the end of an address and nothing else, such as `co.kr`."""
    read = offline()(host)
    return bool(read.suffix and not read.domain)
