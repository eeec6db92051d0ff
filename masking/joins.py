"""A reading with what cuts a value in two taken out: line ends, inline HTML tags, one blank behind every character.

It is looked at beside the text itself, and only around the places where something was taken out. What is found there
counts by the rules of `crossing`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from weighbridge.masking.word_borders import back_to_space, on_to_space

_REACH, _FAR = 40, 24
"""Characters on each side of a join that are read, and how much further at most to the next white space."""
_NEAR = 20
"""Characters on each side of a join among which a digit or an `@` must stand."""

_BLANKS = r"[^\S\r\n\v\f\x85\u2028\u2029]{0,8}"
_LINE_END = rf"(?:{_BLANKS}(?:\r?\n|[\r\v\f\x85\u2028\u2029])[^\S\r\n\v\f\x85\u2028\u2029]{{0,16}})"
# Tags inside a line of text. Those of cells, items and paragraphs stand between values of their own.
_TAG = (
    r"(?:</?(?:a|abbr|b|bdi|bdo|big|br|cite|code|del|em|font|i|ins|kbd|mark|nobr|q|s|samp|small|span|strike|strong"
    r"|sub|sup|tt|u|var|wbr)(?:[\s/][^<>]{0,160})?>|<!--[^<>]{0,160}-->)"
)
_CUT = re.compile(rf"{_LINE_END}(?:{_TAG}{{1,8}}{_LINE_END}?)?|{_TAG}{{1,8}}{_LINE_END}?", re.IGNORECASE)
# Characters that stand one by one: six or more, all with the same sign between them.
_SPELLED = re.compile(
    r"(?<![^\s(\[\"':])(?=[^\s]([ ·_./-])[^\s]\1[^\s]\1)[^\s](?:\1[^\s]){5,255}(?![^\s.,;:!?)\]\"'가-힣])"
)
# What begins a line of its own: a label, an item of a list.
_BEGINS = re.compile(
    r"[가-힣A-Za-z][가-힣A-Za-z0-9 ()/·_-]{0,24}[ \t]?[:=|\t](?![0-9A-Fa-f:/])"
    r"|[-*+·•>#|=]{1,8}[ \t]+(?!\d)|\d{1,2}[.)][ \t]|\d{1,6}\t|[-=*_#]{3}"
)
_CALM = r"[\w@:.\-/+%(),·#&=~*]"
_CALM_BEFORE, _CALM_BEHIND = re.compile(rf"{_CALM}[ \t]?\Z"), re.compile(rf"[ \t]?{_CALM}")
_BEFORE_HANGUL = re.compile(r"[가-힣0-9\-/_·.,]")
_BEHIND_HANGUL = re.compile(r"[0-9\-/_·.,]")
_OF_PLACES = frozenset("도시군구읍면동리가로길층호지")
_PLATE_BEGINS = re.compile(r"\d[-./_· ]?[가-힣]\Z")
_HANGUL_GOES_ON = re.compile(
    rf"[가-힣][-./_· ]?\d|[가-힣0-9]{{0,12}}[{''.join(sorted(_OF_PLACES))}](?:[ \d\-/_·.,]|\Z)"
    r"|[가-힣A-Za-z]{1,8}[- ]?\d{1,4}[동호층]"
)
# The rest of the name of a road or a neighbourhood, with the number behind it: 도움|3로 85, 역삼|1동 12.
_NUMBERED_NAME = re.compile(r"\d{1,3}(?:[로동리가]|번?[가-하]?길)[\s\-_/·.,]{0,4}(?:지하[ ]?|산[ ]?)?\d")
_HOUSE_NUMBER = re.compile(r"[로길동리가][ ]?\d")
_UNIT = re.compile(r"(?:번?지|호|층)(?:(?![가-힣])|입|인|이|예|에|로|으로)")
_PROVINCE = re.compile("서울|부산|대구|인천|광주|대전|울산|세종|경기|강원|[충전경][북남]|제주")
_TELLS = re.compile(r"[0-9@]")
_APART = "\n\n\n"


@dataclass(frozen=True, slots=True)
class Closed:
    """The parts of a text around its joins, closed up, one behind the other.

    Attributes:
        text: the parts, with empty lines between them.
        places: for each character of `text` its place in the source; that of an empty line is -1.
        joins: the places in `text` before which something was taken out, ascending.
        borders: where a new part begins, ascending.
    """

    text: str
    places: list[int]
    joins: list[int]
    borders: list[int]

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """The place in the source of a non-empty span of `text` that lies in one part."""
        return self.places[start], self.places[end - 1] + 1

    def crossed(self, start: int, end: int) -> list[int]:
        """The joins inside a span."""
        return self.joins[bisect_right(self.joins, start) : bisect_left(self.joins, end)]

    def whole(self, start: int, end: int) -> bool:
        """Whether a span lies in one part."""
        return bisect_right(self.borders, start) == bisect_right(self.borders, end - 1) and not (
            self.places[start] < 0 or self.places[end - 1] < 0
        )


def close(text: str) -> Closed | None:
    """The reading; None when nothing in `text` could be one value in pieces. Linear in its length."""
    cuts: list[tuple[int, int]] = []
    for start, end in sorted(_cuts(text)):
        if not cuts or start > cuts[-1][1]:
            cuts.append((start, end))
    if not cuts:
        return None
    made: list[str] = []
    places: list[int] = []
    joins: list[int] = []
    borders: list[int] = []
    for first, last, begin, stop in _parts(text, cuts):
        if places:
            made.append(_APART)
            places.extend([-1] * len(_APART))
            borders.append(len(places))
        at = first
        for start, end in cuts[begin:stop]:
            made.append(text[at:start])
            places.extend(range(at, start))
            joins.append(len(places))
            at = end
        made.append(text[at:last])
        places.extend(range(at, last))
    return Closed("".join(made), places, joins, borders)


def _cuts(text: str) -> Iterator[tuple[int, int]]:
    for hit in _CUT.finditer(text):
        start, end = hit.span()
        # A tag may stand beside a blank.
        if not (_CALM_BEFORE.search(text, max(0, start - 2), start) and _CALM_BEHIND.match(text, end)):
            continue
        near = _TELLS.search(text, max(0, start - _NEAR), start) or _TELLS.search(text, end, end + _NEAR)
        if near and _goes_on(text, start, end):
            yield start, end
    for hit in _SPELLED.finditer(text):
        if _TELLS.search(text, *hit.span()):
            yield from ((at, at + 1) for at in range(hit.start() + 1, hit.end(), 2))


def _goes_on(text: str, start: int, end: int) -> bool:
    """Whether a value could go on behind a cut. Beside Hangul that is a plate or an address."""
    left, right = text[start - 1], text[end]
    if (left.isdigit() or left == "번") and _UNIT.match(text, end):
        return True
    begins = _BEGINS.match(text, end)
    # What holds the number of a house is the end of an address, and no label.
    if begins and not _HOUSE_NUMBER.search(begins.group()):
        return False
    if "가" <= right <= "힣":
        if _PROVINCE.match(left + right) and text[end + 1 : end + 2].isspace():
            return True
        return _BEFORE_HANGUL.match(left) is not None and _HANGUL_GOES_ON.match(text, end) is not None
    if "가" <= left <= "힣":
        return _BEHIND_HANGUL.match(right) is not None and (
            left in _OF_PLACES
            or _NUMBERED_NAME.match(text, end) is not None
            or _PLATE_BEGINS.search(text, max(0, start - 4), start) is not None
        )
    return True


def _parts(text: str, cuts: list[tuple[int, int]]) -> Iterator[tuple[int, int, int, int]]:
    """Begin and end of each part, and which cuts lie in it."""
    first = last = -1
    begin = 0
    for number, (start, end) in enumerate(cuts):
        near = back_to_space(text, start, _REACH, _FAR)
        if last >= 0 and near > last:
            yield first, last, begin, number
            first, begin = near, number
        elif last < 0:
            first = near
        last = on_to_space(text, end, _REACH, _FAR)
    yield first, last, begin, len(cuts)
