"""How a placeholder comes back from a model, and putting its value there.

Models copy most placeholders as they are. Some come back changed: in small letters, with spaces inside the brackets, a
space or a hyphen for the underscore, a backslash before what Markdown would read, wide brackets, or JSON escapes for
any of it. Whatever its spelling, it must have both brackets, a known type and all eight characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from weighbridge.masking.entities import TOKEN_LENGTH, TYPES
from weighbridge.masking.vault import Vault

OPENINGS = "[\uff3b\u3010"
_OPENING, _CLOSING = rf"[{re.escape(OPENINGS)}]", "[\\]\uff3d\u3011]"
_SPACE = "[ \\t\u00a0\u200b\u202f\u3000]"
_BETWEEN = rf"(?:{_SPACE}{{0,2}}\\?[_\uff3f\-\u2010\u2011\u2013]{_SPACE}{{0,2}}|{_SPACE}{{1,2}})"
_SIGN = "[A-Z2-7]"
_FLAGS = re.ASCII | re.IGNORECASE
_SPELLING = re.compile(
    rf"(\\?){_OPENING}{_SPACE}{{0,2}}({'|'.join(TYPES)}){_BETWEEN}({_SIGN}{{{TOKEN_LENGTH}}})"
    rf"{_SPACE}{{0,2}}(\\?){_CLOSING}",
    _FLAGS,
)
_LONGEST_TYPE = max(map(len, TYPES))
# What a spelling looks like from its bracket up to any place in it.
_BEGUN = re.compile(
    rf"{_OPENING}{_SPACE}{{0,2}}(?:([A-Z]{{1,{_LONGEST_TYPE}}})"
    rf"(?:{_SPACE}{{0,2}}\\?|{_BETWEEN}({_SIGN}{{0,{TOKEN_LENGTH}}})"
    rf"|{_BETWEEN}({_SIGN}{{{TOKEN_LENGTH}}}){_SPACE}{{0,2}}\\?)?)?\Z",
    _FLAGS,
)
LONGEST_SPELLING = 1 + 1 + 2 + _LONGEST_TYPE + 6 + TOKEN_LENGTH + 2 + 1 + 1
"""Length of the longest spelling in characters, each JSON escape counted as the one that it stands for."""

_MAY_BEGIN = re.compile(rf"{_OPENING}|\\")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(?!u[0-9A-Fa-f]{0,3}\Z)(.))", re.DOTALL)
_CONTROL = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class _Reading:
    """A text as its reader will see it: with `escaped`, JSON escapes are read as what they stand for.

    Attributes:
        text: without an escape that has only begun at its end.
        places: where each character of `text` begins in the text as given, and where the last one ends.
    """

    __slots__ = ("_given", "places", "text")

    def __init__(self, given: str, escaped: bool) -> None:
        self._given = self.text = given
        self.places: Sequence[int] = range(len(given) + 1)
        if escaped and "\\" in given:
            self._unescape()

    def _unescape(self) -> None:
        given, done = self._given, 0
        pieces: list[str] = []
        places: list[int] = []
        for escape in _ESCAPE.finditer(given):
            start = escape.start()
            pieces.append(given[done:start])
            places.extend(range(done, start + 1))
            code, char = escape.groups()
            pieces.append(chr(int(code, 16)) if code else _CONTROL.get(char, char))
            done = escape.end()
        # All escapes but one that has only begun are behind us.
        end = given.find("\\", done)
        end = len(given) if end < 0 else end
        pieces.append(given[done:end])
        places.extend(range(done, end + 1))
        self.text, self.places = "".join(pieces), places

    def restored(self, vault: Vault, end: int, escaped: bool) -> str:
        """The text as given up to the character `end` of the reading, with the values put in."""
        out: list[str] = []
        done = 0
        for hit in _SPELLING.finditer(self.text, 0, end):
            before, kind, token, after = hit.groups()
            # A backslash in front belongs to the bracket only when both brackets have one.
            start = hit.start() + (0 if after else len(before))
            value = vault.original(self.text[hit.start() + len(before) : hit.end()])
            if value is None:
                value = vault.likely(f"[{kind}_{token}]".upper())
            if value is not None:
                out.append(self._given[done : self.places[start]])
                out.append(json.dumps(value, ensure_ascii=False)[1:-1] if escaped else value)
                done = self.places[hit.end()]
        out.append(self._given[done : self.places[end]])
        return "".join(out)


def substitute(vault: Vault, text: str, *, escaped: bool) -> str:
    """`text` with every known placeholder replaced; `escaped` writes values as they stand inside a JSON string."""
    if not _MAY_BEGIN.search(text):
        return text
    reading = _Reading(text, escaped)
    last = reading.places[-1]
    return reading.restored(vault, len(reading.text), escaped) + text[last:]


class Held:
    """The end of one channel's text that may still become a placeholder; never as long as `LONGEST_SPELLING`."""

    __slots__ = ("_escaped", "_vault", "text")

    def __init__(self, vault: Vault, escaped: bool) -> None:
        self._vault = vault
        self._escaped = escaped
        self.text = ""

    def push(self, text: str) -> str:
        """Take text in, give out what is settled."""
        if not self.text and not _MAY_BEGIN.search(text):
            return text
        text = self.text + text
        reading = _Reading(text, self._escaped)
        end = _settled(self._vault, reading.text)
        self.text = text[reading.places[end] :]
        return reading.restored(self._vault, end, self._escaped)

    def flush(self) -> str:
        """Give out the rest: it did not become a placeholder."""
        rest, self.text = self.text, ""
        return rest


def _settled(vault: Vault, text: str) -> int:
    """Where the beginning of a placeholder that is still open at the end of `text` stands; else the end."""
    first = max(0, len(text) - LONGEST_SPELLING)
    opening = text.rfind("[", first)
    if not text.isascii():
        opening = max(text.rfind(bracket, first) for bracket in OPENINGS)
    if opening >= 0 and (begun := _BEGUN.match(text, opening)):
        kind, some, whole = begun.groups("")
        read = f"[{kind}" if begun.end(1) in (-1, len(text)) else f"[{kind}_{some}{whole}"
        if vault.could_begin(read.upper()):
            return opening - 1 if opening and text[opening - 1] == "\\" else opening
    return len(text) - 1 if text.endswith("\\") else len(text)
