"""One number broken over lines, table cells or odd separators.

A view beside the others: it only adds. What stands between two groups of digits is read as a hyphen, and only shapes
that say much about themselves count, since columns of ordinary numbers look like this too. Text is folded already.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from weighbridge.masking.entities import Span

_DAY = r"(?:0-?[1-9]|1-?[0-2])-?(?:0-?[1-9]|[12]-?\d|3-?[01])"
# A comma or a dot right before a digit belongs to an amount, and is for the other views.
_STRETCH = re.compile(r"(?<![\d.,])\d++(?![.,]\d)(?:(?:[^\w]|_){1,6}\d++(?![.,]\d))+")
_GROUP = re.compile(r"\d+")
# Only a line end or a bar, the same throughout: nothing but one value in pieces.
_COLUMN = re.compile(r"\d+(?:[^\S\r\n]*(?:\r?\n|\|)[^\S\r\n]*\d+){1,4}")
_COLUMN_SHAPES = frozenset(
    {
        (3, 2, 4),
        (3, 2, 5),
        (3, 3, 4),
        (2, 2, 6, 2),
        (3, 3, 6),
        (3, 2, 6),
        (6, 2, 6),
        (4, 3, 6),
        (3, 4, 4, 2),
        (3, 6, 5),
        (4, 4, 4, 4),
    }
)
_MOBILE = re.compile(r"(?<!\d)(?:(?:0-?0-?)?8-?2-?(?:0-?)?|0-?)1-?[016789](?:-?\d){7,8}(?!\d)", re.ASCII)
_LANDLINE = re.compile(
    r"(?<!\d)(?:(?:00-?)?82-?0?|0)(?:2|[3-6][1-5]|70|80|50\d?)-\d{3,4}-\d{4}(?!\d)", re.ASCII
)
_RESIDENT = re.compile(rf"(?<!\d)\d-?\d-?{_DAY}-?([1-8])(?:-?\d){{6}}(?!\d)", re.ASCII)
_CARD = re.compile(
    r"(?<!\d)(?=([3-6]\d{3}-\d{4}-\d{4}-\d{1,7}|3\d{3}-\d{6}-\d{4,5}|(?:[3-6](?:-?\d){13,18}))(?!\d))",
    re.ASCII,
)
_FEW_GROUPS = 6


def joined(text: str) -> list[Span]:
    """Numbers in pieces, as spans of `text`, in no order. Linear in its length."""
    spans: list[Span] = []
    for stretch in _STRETCH.finditer(text):
        if stretch.end() - stretch.start() < 9:
            continue
        spans.extend(_in_stretch(text, stretch.start(), stretch.end()))
    return spans


def _in_stretch(text: str, start: int, end: int) -> list[Span]:
    groups = [group.span() for group in _GROUP.finditer(text, start, end)]
    plain = "-".join(text[first:last] for first, last in groups)
    # Where each group begins in `plain`.
    begins: list[int] = []
    at = 0
    for first, last in groups:
        begins.append(at)
        at += last - first + 1
    spans: list[Span] = []

    def add(first: int, last: int, entity: str) -> None:
        head = bisect_right(begins, first) - 1
        tail = bisect_right(begins, last - 1) - 1
        spans.append((groups[head][0] + first - begins[head], groups[tail][0] + last - begins[tail], entity))

    for hit in _MOBILE.finditer(plain):
        if set(hit.group()) - set("01-"):
            add(*hit.span(), "PHONE")
    for hit in _LANDLINE.finditer(plain):
        add(*hit.span(), "PHONE")
    for hit in _RESIDENT.finditer(plain):
        if hit.group().count("-") < _FEW_GROUPS or _singly(hit.group()):
            add(*hit.span(), "RRN" if hit[1] in "1234" else "FRN")
    for hit in _CARD.finditer(plain):
        few = hit[1].count("-") < _FEW_GROUPS or _singly(hit[1])
        if few and _luhn(hit[1]):
            add(*hit.span(1), "CARD")
    if len(groups) < 6 and _COLUMN.fullmatch(text, start, end):
        lengths = tuple(last - first for first, last in groups)
        if lengths in _COLUMN_SHAPES:
            add(0, len(plain), "ACCOUNT")
    return spans


def _singly(number: str) -> bool:
    """Whether every digit stands alone."""
    return all(len(group) == 1 for group in number.split("-"))


def _luhn(number: str) -> bool:
    digits = [int(digit) for digit in number if digit != "-"]
    doubled = [digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
