"""Prose that no layer reads, in another script or another language.

A few letters of another script (`金哲洙`, `Иван`) may be a name and are masked as one; prose refuses. Languages in
Latin letters are told by their small words, and only where a clause is full of them: names, addresses, titles and
phrases in English text are no prose.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import regex

from weighbridge.masking.entities import LANGUAGE, Span, merge
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.function_words import ENGLISH, HALF, WORDS

_V1 = regex.V1
# Folding turns the long-vowel sign and the numeral one into hyphens.
_EAST = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}]"
_EAST_RUN = regex.compile(rf"{_EAST}(?:[-・·]?{_EAST})*+-?", _V1)
_OTHER = r"[\p{L}--[\p{Latin}\p{Hangul}\p{Greek}\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Common}\p{Inherited}]]"
_BETWEEN = r"[ '.\-]{1,2}"
_OTHER_RUN = regex.compile(
    rf"{_OTHER}[{_OTHER}\p{{M}}]*+(?:{_BETWEEN}{_OTHER}[{_OTHER}\p{{M}}]*+)*+"
    rf"|\p{{Greek}}{{4,}}+(?:{_BETWEEN}\p{{Greek}}{{2,}}+)*+",
    _V1,
)
_MAY_HOLD = regex.compile(rf"[{_OTHER}{_EAST}]|\p{{Greek}}{{4}}", _V1)
_LETTER = regex.compile(r"\p{L}", _V1)
_LONGEST_NAME = 7
"""Characters of Han and kana in a row that may be a name, a title or a gloss; a clause is longer."""
_LONGEST_WORDS = 30
"""The same for alphabets: three or four words of a name."""
_FEW, _SHARE = 3, 0.25
"""Names of full length that are masked in one text at most, unless they are a small part of its letters."""

_CLAUSE = re.compile(r"[^.!?;:\n\r()|\"“”«»<>{}\[\]]{12,}")
_WORD = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]+(?:['’][A-Za-z\u00c0-\u024f\u1e00-\u1eff]+)?")
_PIECE = 2_000
"""Characters of a clause looked at in one go."""
_BY_WORD = {
    word: tuple(name for name, words in WORDS.items() if word in words)
    for word in set().union(*WORDS.values())
}
_LEAST_WORDS, _LEAST_SCORE, _LEAST_KINDS = 5, 3.0, 3
_LEAST_SHARE = 0.28
_ELIDED = re.compile("(?:qu|[a-z])['’](?=[a-z]{2})")
_LETTERS = {
    ord("đ"): "d",
    ord("ß"): "ss",
    ord("ł"): "l",
    ord("ø"): "o",
    ord("ı"): "i",
    ord("æ"): "ae",
    ord("œ"): "oe",
}
_MOST_KEPT = 20_000
"""Words whose plain form is remembered."""


class Languages:
    """The layer."""

    names: frozenset[str] = frozenset()
    decoded = True
    version = f"languages-{len(WORDS)}-{unicodedata.unidata_version}"

    def __init__(self) -> None:
        self._bare: dict[str, str] = {}

    def find(self, text: str) -> list[Span]:
        """Merged spans, of type LANGUAGE, and NAME for a few letters of another script."""
        spans = list(self._clauses(text))
        if not text.isascii() and _MAY_HOLD.search(text):
            spans.extend(_scripts(text))
        return merge(spans)

    def _clauses(self, text: str) -> Iterator[Span]:
        for clause in _CLAUSE.finditer(text):
            for start in range(clause.start(), clause.end(), _PIECE):
                end = min(clause.end(), start + _PIECE)
                if self._foreign(text[start:end]):
                    yield start, end, LANGUAGE

    def _foreign(self, clause: str) -> bool:
        words = _WORD.findall(clause)
        if len(words) < _LEAST_WORDS:
            return False
        english = latin = 0
        scores: dict[str, float] = {}
        seen: dict[str, set[str]] = {}
        for word in words:
            bare = self._bare.get(word)
            if bare is None:
                bare = self._plain(word)
            latin += 1
            known = bare in ENGLISH
            english += known
            for name in _BY_WORD.get(bare, ()):
                scores[name] = scores.get(name, 0) + (0.5 if known or bare in HALF else 1)
                seen.setdefault(name, set()).add(bare)
        if not scores or latin < _LEAST_WORDS:
            return False
        best = max(scores, key=lambda name: scores[name])
        score = scores[best]
        if len(seen[best]) < _LEAST_KINDS or score < _LEAST_SHARE * latin:
            return False
        # A short clause of many small words and none of English.
        if english == 0 and score >= 2 and score >= 0.4 * latin:
            return True
        return score >= _LEAST_SCORE and score > 1.5 * english

    def _plain(self, word: str) -> str:
        """The word in small letters without accents."""
        if word.isascii():
            bare = word.lower()
        else:
            letters = unicodedata.normalize("NFD", word.lower().translate(_LETTERS))
            bare = "".join(char for char in letters if not unicodedata.combining(char))
        # `l'adresse`, `j'habite`
        elided = _ELIDED.match(bare)
        bare = bare[elided.end() :] if elided else bare
        if len(self._bare) > _MOST_KEPT:
            self._bare.clear()
        self._bare[word] = bare
        return bare


def _scripts(text: str) -> Iterator[Span]:
    runs = [(*run.span(), _LONGEST_NAME) for run in _EAST_RUN.finditer(text)]
    runs.extend((*run.span(), _LONGEST_WORDS) for run in _OTHER_RUN.finditer(text))
    runs = [run for run in runs if len(_LETTER.findall(text, run[0], run[1])) >= 2]
    total = sum((end - start) / longest for start, end, longest in runs)
    letters = sum(end - start for start, end, _ in runs)
    much = total > _FEW and letters > _SHARE * len(_LETTER.findall(text))
    for start, end, longest in runs:
        yield start, end, LANGUAGE if much or end - start > longest else "NAME"


def build(options: LayerOptions) -> Languages:
    """Never missing."""
    return Languages()
