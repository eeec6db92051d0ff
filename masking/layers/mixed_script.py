"""Words of look-alike letters from several scripts, which blind detectors and no reader.

Hangul beside Latin is ordinary Korean. Greek letters in formulas are ordinary too: lower-case ones count only inside a
word of Latin letters, capitals only where they look like Latin ones.
"""

from __future__ import annotations

import re
import unicodedata

import regex

from weighbridge.masking.entities import MIXED, Span, merge
from weighbridge.masking.layers.base import LayerOptions

_SUSPECT = re.compile(
    "[\u0370-\u03ff\u0400-\u058f\u10a0-\u10ff\u13a0-\u13ff\u1400-\u167f\u1c80-\u1caf\u1d00-\u1d2b\u1f00-\u1fff"
    "\u2c80-\u2cff\u2d00-\u2d2f\ua4d0-\ua4ff\ua640-\ua69f\uab30-\uabbf\U00010400-\U0001044f\U0001f130-\U0001f189]"
)
_WORD = regex.compile(r"[\p{L}\p{Nd}]{2,}+", regex.V1)
_LATIN = regex.compile(r"\p{Latin}", regex.V1)
_GREEK_CAPITALS = frozenset("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹϺ")
# Omicron is never a symbol of its own, since it cannot be told from `o`.
_GREEK_ALWAYS = frozenset("οόϲϳ")
_GREEK_ALIKE = frozenset("αιΐίϊκνρυύϋτχηγωά")
_FUNCTIONS = re.compile(
    r"(?:arc)?(?:sin|cos|tan|cot|sec|csc|sinh|cosh|tanh)|log|ln|exp|lim|max|min|sup|inf|arg|det|dim|rad|deg|mod|tr|d|p"
)
_GREEK = regex.compile(r"\p{Greek}+", regex.V1)
_SMALL_CAPITALS = re.compile("[\u1d00-\u1d2b\u0262\u026a\u0274\u0280\u028f\u0299\u029c\u029f\ua730\ua731]")
_ENCLOSED = re.compile("[\U0001f130-\U0001f189](?:[ \u200b-\u200d]?[\U0001f130-\U0001f189]){2,}")
# A telephone number in which letters stand for ones and noughts.
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9])(?=[-. 0-9]{0,14}[OoIl])[0Oo][1Il][0Oo16-9Il][-. ]?[0-9OoIl]{3,4}[-. ]?[0-9OoIl]{4}"
    r"(?![A-Za-z0-9])"
    r"|(?<![A-Za-z0-9])(?=[-0-9]{0,14}[OoIl])[0-9OoIl]{6}-[0-9OoIl]{7}(?![A-Za-z0-9])"
)
_LEAST_DIGITS = 5
_ALIKE_SCRIPTS = ("CYRILLIC", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "GEORGIAN", "CANADIAN", "DESERET")


class MixedScript:
    """The layer."""

    names: frozenset[str] = frozenset()
    decoded = True
    version = f"mixed-{unicodedata.unidata_version}"

    def __init__(self) -> None:
        self._scripts: dict[str, str] = {}

    def find(self, text: str) -> list[Span]:
        """Merged spans of whole words."""
        spans: list[Span] = [
            (*hit.span(), MIXED)
            for hit in _NUMBER.finditer(text)
            if sum(map(str.isdigit, hit.group())) >= _LEAST_DIGITS
        ]
        if text.isascii() or not (_SUSPECT.search(text) or _SMALL_CAPITALS.search(text)):
            return merge(spans)
        spans.extend((*word.span(), MIXED) for word in _WORD.finditer(text) if self._mixed(word.group()))
        spans.extend((*hit.span(), MIXED) for hit in _ENCLOSED.finditer(text))
        return merge(spans)

    def _mixed(self, word: str) -> bool:
        if word.isascii():
            return False
        if len(_SMALL_CAPITALS.findall(word)) >= 2 and _mostly_small_capitals(word):
            return True
        scripts = {self._script(char) for char in word}
        if "LATIN" not in scripts:
            return "GREEK" in scripts and "CYRILLIC" in scripts
        if not scripts.isdisjoint(_ALIKE_SCRIPTS):
            return True
        return "GREEK" in scripts and _greek_hides(word)

    def _script(self, char: str) -> str:
        known = self._scripts.get(char)
        if known is None:
            known = self._scripts[char] = unicodedata.name(char, "").split(" ")[0]
        return known


def _mostly_small_capitals(word: str) -> bool:
    return len(_SMALL_CAPITALS.findall(word)) * 2 >= len(word)


def _greek_hides(word: str) -> bool:
    """Whether Greek letters stand for Latin ones rather than for quantities."""
    letters = set(word)
    if letters & _GREEK_ALWAYS or letters & _GREEK_CAPITALS:
        return True
    latin = [piece for piece in _GREEK.split(word) if piece]
    if len(_LATIN.findall(word)) < 3 or all(_FUNCTIONS.fullmatch(piece.lower()) for piece in latin):
        return False
    # Between Latin letters, one at a time, and each a double of one.
    return any(
        hit.start() > 0 and hit.end() < len(word) and set(hit.group()) <= _GREEK_ALIKE
        for hit in _GREEK.finditer(word)
    )


def build(options: LayerOptions) -> MixedScript:
    """Never missing."""
    return MixedScript()
