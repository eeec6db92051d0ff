"""Other readings of a text: what percent signs, HTML entities and backslash escapes hide.

Each reading is a second text to look at, beside the first and never instead of it. Every character of it knows the
escape it came from, so a hit masks whole escapes of the original.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

from weighbridge.masking.word_borders import back_to_space, on_to_space

MAX_ROUNDS = 4
_REACH, _FAR = 64, 1024

_ESCAPE = re.compile(
    # A line's end between two percent signs may cut the bytes of one character.
    r"(?P<percent>(?:%[0-9A-Fa-f]{2})+(?:[ \t]{0,8}\r?\n[ \t]{0,8}(?:%[0-9A-Fa-f]{2})+)*)"
    r"|(?P<hex>(?:\\x[0-9A-Fa-f]{2})+)"
    r"|(?P<unit>(?:[\\%]u[0-9A-Fa-f]{4})+)"
    r"|(?P<point>\\u\{[0-9A-Fa-f]{1,6}\}|\\U[0-9A-Fa-f]{8})"
    r"|(?P<entity>&(?:\#[0-9]{1,7};?|\#[xX][0-9A-Fa-f]{1,6};?|[A-Za-z][A-Za-z0-9]{1,31};))"
    r"|(?P<plain>\\[\"'/\\nrtbf])"
)
_PERCENTS = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "b": " ", "f": " "}
_REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Unescaped:
    """A text read one round of escapes further.

    Attributes:
        text: the reading.
        starts, ends: for each of its characters the place in the source that it stands for.
        changed: the stretches of `text` that were escapes.
    """

    text: str
    starts: list[int]
    ends: list[int]
    changed: list[tuple[int, int]]

    def original_span(self, start: int, end: int) -> tuple[int, int]:
        """The place in the source of a non-empty span of `text`."""
        return self.starts[start], self.ends[end - 1]

    def windows(self) -> Iterator[tuple[int, int]]:
        """The parts of `text` in which a value could hold an escape: around each, up to white space."""
        first = last = -1
        # End of the last escape from which white space was not looked for yet: once for a run of escapes, not for each.
        behind = -1
        for start, end in self.changed:
            if behind >= 0 and start - _REACH <= behind + _REACH:
                behind = end
                continue
            if behind >= 0:
                last = on_to_space(self.text, behind, _REACH, _FAR)
            begin = back_to_space(self.text, start, _REACH, _FAR)
            if first >= 0 and begin > last:
                yield first, last
                first = begin
            elif first < 0:
                first = begin
            behind = end
        if behind >= 0:
            yield first, on_to_space(self.text, behind, _REACH, _FAR)


def unescape(text: str) -> Unescaped | None:
    """One round; None when there is no escape."""
    if "\\" not in text and "%" not in text and "&" not in text:
        return None
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    changed: list[tuple[int, int]] = []
    done = 0
    for hit in _ESCAPE.finditer(text):
        starts.extend(range(done, hit.start()))
        ends.extend(range(done + 1, hit.start() + 1))
        pieces.append(text[done : hit.start()])
        begun = len(starts)
        for char, start, end in _decoded(hit):
            pieces.append(char)
            starts.append(start)
            ends.append(end)
        changed.append((begun, len(starts)))
        done = hit.end()
    if not changed:
        return None
    starts.extend(range(done, len(text)))
    ends.extend(range(done + 1, len(text) + 1))
    pieces.append(text[done:])
    return Unescaped("".join(pieces), starts, ends, changed)


def escapes(text: str) -> list[tuple[int, int]]:
    """The places of all escapes but the one-letter ones."""
    return [hit.span() for hit in _ESCAPE.finditer(text) if hit.lastgroup != "plain"]


def _decoded(hit: re.Match[str]) -> Iterator[tuple[str, int, int]]:
    """The characters of an escape, each with the part of the source it came from."""
    start, end, written = hit.start(), hit.end(), hit.group()
    match hit.lastgroup:
        case "percent":
            yield from _percent(written, start)
        case "hex":
            yield from _bytes(bytes.fromhex(written.replace("\\x", "")), start, 4)
        case "unit":
            yield from _units(written, start)
        case "point":
            code = int(written.strip("\\uU{}"), 16)
            yield _char(code), start, end
        case "entity":
            for char in html.unescape(written) or _REPLACEMENT:
                yield char, start, end
        case _:
            yield _PLAIN.get(written[1], written[1]), start, end


def _percent(written: str, start: int) -> Iterator[tuple[str, int, int]]:
    """The bytes as characters; a line's end inside a character is left out, any other stays."""
    runs = [hit.span() for hit in _PERCENTS.finditer(written)]
    if len(runs) == 1:
        yield from _bytes(bytes.fromhex(written.replace("%", "")), start, 3)
        return
    places = [at for first, last in runs for at in range(first, last, 3)]
    data = bytes(int(written[at + 1 : at + 3], 16) for at in places)
    done = 0
    for char, first, last in _bytes(data, 0, 1):
        begin = places[first]
        yield from ((written[at], start + at, start + at + 1) for at in range(done, begin))
        done = places[last - 1] + 3
        yield char, start + begin, start + done


def _bytes(data: bytes, start: int, width: int) -> Iterator[tuple[str, int, int]]:
    """UTF-8 where it is, else one character a byte."""
    at = 0
    while at < len(data):
        length = 1 if data[at] < 0xC0 else 2 if data[at] < 0xE0 else 3 if data[at] < 0xF0 else 4
        try:
            char = data[at : at + length].decode()
        except UnicodeDecodeError:
            length, char = 1, chr(data[at])
        yield char, start + at * width, start + (at + length) * width
        at += length


def _units(written: str, start: int) -> Iterator[tuple[str, int, int]]:
    """UTF-16 units of six characters each; two may be one character."""
    units = [int(written[at + 2 : at + 6], 16) for at in range(0, len(written), 6)]
    at = 0
    while at < len(units):
        high, low = units[at], units[at + 1] if at + 1 < len(units) else 0
        pair = 0xD800 <= high < 0xDC00 <= low < 0xE000
        code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00) if pair else high
        width = 2 if pair else 1
        yield _char(code), start + at * 6, start + (at + width) * 6
        at += width


def _char(code: int) -> str:
    return _REPLACEMENT if code > 0x10FFFF or 0xD800 <= code < 0xE000 else chr(code)
