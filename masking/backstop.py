"""The second look at text that the detectors have already masked.

It knows no formats: seven or more digits in a row, whatever separates them, and everything around an `@`. It reads the
text as it is (no folding), so a fault in the first pass's folding or offsets cannot blind it. Let through by their
exact shape are amounts grouped in thousands (1,234,567), a pair of years (2019-2023), a time or two (10:30:45.123),
and two short numbers with one sign between them (1920:1080).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from weighbridge.masking.entities import Span, merge

MIN_DIGITS = 7
_LOCAL_REACH, _DOMAIN_REACH, _WORD_REACH = 64, 255, 40

# What may stand between two digits of one number: spaces but no line break, dashes, dots, slashes, round brackets,
# invisible characters, combining marks, and a comma before three or more digits.
_SEPARATOR = (
    r"(?:[^\S\r\n]|[\-./_·•()"
    r"\u02d7\u2010-\u2015\u2043\u2212\u2500\u30fb\u30fc\u3002\ufe58\ufe63\uff08\uff09\uff0d\uff0e\uff0f\uff65"
    r"\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u3164\ufe00-\ufe0f\ufeff\uffa0"
    r"\u0300-\u034e\u0350-\u036f\u20d0-\u20f0\u3161\u4e00"
    r"]|,(?=\d{3}))"
)
# Digits that `\d` does not know: circled, bracketed, raised and lowered ones.
_ODD_DIGITS = "".join(
    chr(code)
    for first, last in ((0xB2, 0xBA), (0x2070, 0x208A), (0x2460, 0x2500), (0x2776, 0x2794), (0x3250, 0x32C0))
    for code in range(first, last)
    if unicodedata.category(chr(code)) == "No"
    and unicodedata.normalize("NFKC", chr(code)).strip("().").isdigit()
)
_DIGIT = rf"[\d{_ODD_DIGITS}]"
# Signs that stand between numbers of their own as well; they join only without a space.
_ODD = r"[~*|:=+→'`´’′\\#\uff5e\u301c\uff0a\uff5c\uff1a\uff1d\uff0b\uff07\uff3c\uff03]"
_LEADING = "+(\uff08\uff0b"
_NEXT = rf"(?:(?:{_SEPARATOR}{{0,3}}|{_ODD}){_DIGIT})"
_RUN = re.compile(rf"[{_LEADING}]{{0,2}}{_DIGIT}{_NEXT}{{{MIN_DIGITS - 1},}}")
_MORE = re.compile(rf"{_NEXT}*")
_AMOUNT = r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]{1,2})?"
_SMALL = r"[0-9]{1,4}"
_TIME = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]{1,6})?)?"
_HARMLESS = re.compile(
    rf"{_AMOUNT}(?:{_ODD}{_AMOUNT})*"
    r"|(?:19|20)[0-9]{2} ?[-\u2013~] ?(?:19|20)[0-9]{2}"
    rf"|{_TIME}(?: ?[-\u2013~] ?{_TIME})?"
    rf"|{_SMALL}{_ODD}{_SMALL}"
)
_WORD_CHAR = re.compile(r"[A-Za-z0-9_]")
_AT = re.compile("[@\uff20\ufe6b]")
_AT_STOP = re.compile(r"[\s<>\"'(),;:\[\]{}|\\=]")
# What may be put between an `@` and the rest of an address: brackets, quotes, spaces, one line end.
_BEFORE_AT = re.compile(r"[\[({<\"'` \t]{0,4}(?:\r?\n)?[\])}>\"'` \t]{0,4}\Z")
_AFTER_AT = re.compile(r"[\])}>\"'` \t]{0,4}(?:\r?\n)?[\[({<\"'` \t]{0,4}")
_PUT_BETWEEN = 10
_QUOTED = re.compile(r"\"[^\"\r\n]{1,64}\"\Z")


_WINDOW, _SHORTEST, _LOOKS_ON = 8_192, 64, 8
"""Characters searched at a time; more than the first seven digits of a run take with all that stands between and before
them; more than the pattern looks at behind its end."""


def leftovers(text: str) -> list[Span]:
    """What must not leave in a text that was masked before: merged spans of type NUM and EMAIL.

    Linear in the length of the text.
    """
    spans: list[Span] = []
    for start, end in _runs(text):
        if not _HARMLESS.fullmatch(text[start:end].lstrip(_LEADING)):
            spans.append((*_whole_word(text, start, end), "NUM"))
    spans.extend(_around_at(text))
    return merge(spans)


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """What `_RUN.finditer` gives, some thousand characters at a time: a search holds the interpreter to its end."""
    start = 0
    while True:
        end = min(start + _WINDOW, len(text))
        run = _RUN.search(text, start, end)
        if run is None:
            if end == len(text):
                return
            # One with seven digits before the end would have been found.
            start = end - _SHORTEST
            continue
        first, last = run.span()
        while end < len(text) and last >= end - _LOOKS_ON:
            end = min(end + _WINDOW, len(text))
            more = _MORE.match(text, last, end)
            last = last if more is None else more.end()
        yield first, last
        start = last


def _whole_word(text: str, start: int, end: int) -> tuple[int, int]:
    """Take the letters glued to a number along: AB1234567 is one value."""
    first, last = max(0, start - _WORD_REACH), min(len(text), end + _WORD_REACH)
    while start > first and _WORD_CHAR.match(text[start - 1]):
        start -= 1
    while end < last and _WORD_CHAR.match(text[end]):
        end += 1
    return start, end


def _around_at(text: str) -> list[Span]:
    spans: list[Span] = []
    done = 0
    while mark := _AT.search(text, done):
        at, end = mark.span()
        before, after = _gap_before(text, done, at), _gap_after(text, end)
        last = _domain_end(text, after)
        apart = last > after > end
        if not apart:
            last = _domain_end(text, end)
        start = _local_start(text, done, at)
        if start == at and (apart or "." in text[end:last]):
            start = _local_start(text, done, before)
            start = at if start == before else start
        spans.append((start, last, "EMAIL"))
        done = last
    return spans


def _gap_before(text: str, first: int, at: int) -> int:
    gap = _BEFORE_AT.search(text, max(first, at - _PUT_BETWEEN), at)
    return at if gap is None else gap.start()


def _gap_after(text: str, end: int) -> int:
    gap = _AFTER_AT.match(text, end)
    return end if gap is None else gap.end()


def _local_start(text: str, done: int, end: int) -> int:
    """Where the word or the quoted name that ends at `end` begins."""
    first = max(done, end - _LOCAL_REACH)
    if quoted := _QUOTED.search(text, max(done, first - 2), end):
        return quoted.start()
    start = end
    while start > first and not _AT_STOP.match(text[start - 1]):
        start -= 1
    return start


def _domain_end(text: str, start: int) -> int:
    end, last = start, min(len(text), start + _DOMAIN_REACH)
    while end < last and not _AT_STOP.match(text[end]):
        end += 1
    return end
