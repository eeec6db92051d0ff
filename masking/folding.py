"""Folding: one spelling for detectors to read, with a way back to the original places.

Compatibility forms (NFKC, character by character), digits of any script, and every dash become their plain form;
Hangul written in single letters becomes syllables; invisible characters and combining marks (a keycap around a digit)
are taken out. A text folded once does not change when folded again.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Invisible though not in category Cf: combining grapheme joiner, Hangul fillers, Mongolian and variation selectors.
_INVISIBLE = {
    0x034F,
    0x115F,
    0x1160,
    0x17B4,
    0x17B5,
    0x3164,
    0xFFA0,
    *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE10),
}
# Dash-like though not in category Pd: soft uses of minus, hyphen bullet, box drawing, and the vowel and the numeral
# that Korean and Chinese keyboards offer where a dash is wanted.
_DASHES = {0x2043, 0x2212, 0x02D7, 0x2500, 0x30FC, 0xFF70, 0x3161, 0x1173, 0x4E00}
_MARKS = frozenset({"Mn", "Me"})
# Letters of one syllable, as decomposed text has them.
_LETTERS = re.compile("[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|[가-힣][\u11a8-\u11c2]")


class _Table(dict[int, str]):
    """A `str.translate` table that learns each character when it first meets it."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = _fold_char(chr(code))
        return folded


def _fold_char(char: str) -> str:
    code = ord(char)
    if code < 0x80:
        return char
    if code in _INVISIBLE or 0xE0100 <= code <= 0xE01EF or unicodedata.category(char) == "Cf":
        return ""
    if unicodedata.category(char) in _MARKS:
        return ""
    if code in _DASHES or unicodedata.category(char) == "Pd":
        return "-"
    if unicodedata.category(char) == "Nd":
        return str(unicodedata.decimal(char))
    plain = unicodedata.normalize("NFKC", char)
    return plain if plain == char else "".join(map(_fold_char, plain))


_TABLE = _Table()


@dataclass(frozen=True, slots=True)
class Folded:
    """A folded text. Folded character `i` stands for `starts[i]` to `ends[i]` of the original, the combining marks
    behind it included; both are None when nothing changed."""

    text: str
    starts: Sequence[int] | None
    ends: Sequence[int] | None

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """The place in the original of a non-empty span of the folded text."""
        if self.starts is None or self.ends is None:
            return start, end
        return self.starts[start], self.ends[end - 1]


def fold(text: str) -> Folded:
    """Fold `text` and keep the way back."""
    folded = fold_text(text)
    if folded == text:
        return Folded(text, None, None)
    plain: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for first, last, char in _syllables(text):
        for part in _TABLE[ord(char)]:
            plain.append(part)
            starts.append(first)
            ends.append(last)
        if not _TABLE[ord(char)] and ends and ends[-1] == first and unicodedata.category(char) in _MARKS:
            ends[-1] = last
    # Letters of other widths, or with something invisible between, have become neighbours only now.
    read = "".join(plain)
    if _LETTERS.search(read):
        composed = list(_syllables(read))
        starts = [starts[first] for first, _, _ in composed]
        ends = [ends[last - 1] for _, last, _ in composed]
    return Folded(folded, starts, ends)


def fold_text(text: str) -> str:
    """The folded text alone."""
    return text if text.isascii() else _composed(_composed(text).translate(_TABLE))


def _composed(text: str) -> str:
    return _LETTERS.sub(lambda hit: unicodedata.normalize("NFC", hit.group()), text)


def _syllables(text: str) -> Iterator[tuple[int, int, str]]:
    """Begin, end and reading of every character, the letters of a syllable as one."""
    done = 0
    for hit in _LETTERS.finditer(text):
        yield from ((at, at + 1, text[at]) for at in range(done, hit.start()))
        whole = unicodedata.normalize("NFC", hit.group())
        if len(whole) == 1:
            yield *hit.span(), whole
        else:
            yield from ((at, at + 1, text[at]) for at in range(*hit.span()))
        done = hit.end()
    yield from ((at, at + 1, text[at]) for at in range(done, len(text)))
