"""Proper nouns by the morphological analyser kiwipiepy, and what looks like a name that it took to pieces."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from operator import attrgetter
from typing import Any

from weighbridge.masking.entities import Span
from weighbridge.masking.layers.base import LayerMissing, LayerOptions
from weighbridge.masking.layers.korean import GIVEN, NO_NAMES, TITLES, name_shaped, surname_length
from weighbridge.masking.layers.public_nouns import PUBLIC_NOUNS
from weighbridge.masking.layers.windows import by_windows

_HANGUL = re.compile("[가-힣]")

_CUTOFF = 5.0
_word = attrgetter("word_position")


class KiwiNouns:
    """The layer."""

    names = frozenset({"ko"})
    decoded = False

    def __init__(self) -> None:
        try:
            from kiwipiepy import Kiwi

            self.version = f"kiwi-{version('kiwipiepy')}-{version('kiwipiepy_model')}"
        except (ImportError, PackageNotFoundError):
            raise LayerMissing("the package kiwipiepy is not installed") from None
        with warnings.catch_warnings():
            # With one worker or more it starts threads, which a fork would lose; it warns that none is a new meaning.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._kiwi = Kiwi(num_workers=0)
        # Fewer unlikely analyses are kept than by default (8.0): a tenth less time, and the same names found.
        self._kiwi.global_config.cutoff_threshold = _CUTOFF
        # The first analysis builds tables for a second and a half, and none of the later ones do.
        self._kiwi.tokenize("처음")

    def find(self, text: str) -> list[Span]:
        """Spans, overlapping or not; none without Hangul."""
        return by_windows(text, self._look) if _HANGUL.search(text) else []

    def _look(self, text: str) -> list[Span]:
        spans: list[Span] = []
        before: Any = None
        for _, group in groupby(self._kiwi.tokenize(text), key=_word):
            word = list(group)
            spans.extend(_in_word(text, word))
            first = word[0]
            if before is not None and first.start == before.end + 1 and first.tag[0] == "N":
                spaced = before.len == 1 and first.len == 2 and name_shaped(before.form + first.form)
                # A foreign name of two words, of which the analyser knows the first as a common one: 하산 알리프.
                foreign = before.len > 1 and first.oov and first.len > 2 and not surname_length(first.form)
                if spaced or foreign:
                    spans.append((before.start, first.end, "PERSON" if spaced else "NAME"))
            before = first if len(word) == 1 and first.tag[0] in "NM" else None
        return spans


_NOUNS = frozenset({"NNG", "NNP", "NNB", "NR", "NP", "MM", "XPN", "XSN", "XR", "IC", "MAG"})
_REST = frozenset({"NNG", "XSN", "NR", "XPN"})
# What the analyser makes of the last syllable of a foreign name: 스 of 이글레시아스 as a verb.
_CUT_OFF = frozenset({"VV", "VA", "XSA", "XSV"})
_ENDS_WORD = ("S", "W")
_MARKS = {"W_EMAIL": "EMAIL", "W_URL": "URL", "W_SERIAL": "NUM", "W_HASHTAG": "NAME", "W_MENTION": "NAME"}
_HONORIFICS = frozenset({"씨", "님", "군", "양", "들", "측", "쪽"})
_TITLES = frozenset(TITLES.split("|")) - {"모"}
_SYLLABLE = re.compile("[가-힣]")
_MOST_PIECES = 5
# Logarithm of the model's probability of three syllables below which their analysis as common words is not believed:
# 박지빈 as 박 + 지 + 빈, 도지원 as 도 + 지원. Common words with a particle are at -10 to -18.
_UNLIKELY = -20.5
_LIKELY = -15.0
# By syllable, for words of any other shape.
_STRANGE = -6.5
_BEGINS_NO_NAME = frozenset({"NNB", "XSN", "NP"})
_SUFFIXES = frozenset("자별권치률율명시중관세구표평벽당청군읍면학")
_PERHAPS_SUFFIXES = frozenset("원성용인일동기화지도장")


def _in_word(text: str, tokens: Sequence[Any]) -> Iterator[Span]:
    """What a word between spaces holds; `tokens` are its morphemes."""
    run: list[Any] = []
    for token in tokens:
        tag = token.tag
        if tag[0] in _ENDS_WORD:
            if tag in _MARKS:
                yield token.start, token.end, _MARKS[tag]
            if run:
                yield from _in_run(text, run)
                run = []
        else:
            run.append(token)
    if run:
        yield from _in_run(text, run)


def _in_run(text: str, run: Sequence[Any]) -> Iterator[Span]:
    """What a run of Hangul holds."""
    for place, token in enumerate(run):
        tag = token.tag
        if token.oov and tag[0] == "N":
            if _SYLLABLE.search(token.form) and token.form not in PUBLIC_NOUNS:
                whole = place == 0 and name_shaped("".join(piece.form for piece in run))
                yield token.start, run[-1].end if whole else _with_rest(run, place), "NAME"
        elif tag == "NNP" and token.form not in PUBLIC_NOUNS:
            full = token.len == 3 and surname_length(token.form)
            yield token.start, _with_rest(run, place), "PERSON" if full else "NAME"
    head = 0
    while head < len(run) and run[head].tag in _NOUNS:
        head += 1
    # Titles and what is glued to names end a name too.
    while head > 1 and (run[head - 1].form in _HONORIFICS or run[head - 1].form in _TITLES):
        head -= 1
    if head > 1:
        yield from _in_pieces(run[:head])
    first = run[0].start
    last = first + 3
    if (
        len(run) > 1
        and last <= run[-1].end
        and name_shaped(text[first:last])
        and text[first:last] not in NO_NAMES
    ):
        cost = sum(token.score for token in run if token.start < last)
        if cost < _UNLIKELY:
            yield first, last, "PERSON"


def _in_pieces(pieces: Sequence[Any]) -> Iterator[Span]:
    """A name that the analyser does not know and took to pieces."""
    word = ""
    # It says itself that the first syllable is a surname.
    told = pieces[0].tag == "NNP" and pieces[0].len == 1
    for count, piece in enumerate(pieces[:_MOST_PIECES], 1):
        word += piece.form
        if (
            count > 1
            and len(word) > 2
            and (name_shaped(word) or (told and len(word) == 3))
            and word not in NO_NAMES
        ):
            if not _compound(pieces[:count]):
                yield pieces[0].start, piece.end, "PERSON"
            return
    if pieces[0].tag in _BEGINS_NO_NAME or not 2 <= len(word) <= _MOST_PIECES or len(pieces) > _MOST_PIECES:
        return
    if sum(piece.len == 1 for piece in pieces) < 2 or word in NO_NAMES:
        return
    if sum(piece.score for piece in pieces) < _STRANGE * len(word):
        yield pieces[0].start, pieces[-1].end, "NAME"


def _compound(pieces: Sequence[Any]) -> bool:
    """Whether pieces with the shape of a name are common words put together: 안전+성, 신+도시, 두+여자."""
    first, last = pieces[0], pieces[-1]
    if first.tag == "NNP":
        return first.len == 2 and last.form in _SUFFIXES
    cost = sum(piece.score for piece in pieces)
    if cost > _LIKELY:
        return True
    if first.len == 2 and last.len == 1:
        return last.form in _SUFFIXES or (last.form in _PERHAPS_SUFFIXES and cost > _UNLIKELY)
    return False


def _with_rest(run: Sequence[Any], place: int) -> int:
    """The end of a proper noun with the syllables that were cut off it."""
    end: int = run[place].end
    for further in run[place + 1 :]:
        if further.len != 1 or further.start != end:
            break
        if not (further.tag in _CUT_OFF or (further.tag in _REST and further.form in GIVEN)):
            break
        end = further.end
    return end


def build(options: LayerOptions) -> KiwiNouns:
    """Missing without the package."""
    del options
    return KiwiNouns()
