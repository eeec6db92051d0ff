"""Terms and document markings that keep a request in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import regex

from weighbridge.config.clock import Clock, SystemClock
from weighbridge.masking.folding import fold_text
from weighbridge.masking.squeezed import gaps_of, lower, one_term, places_of, squeeze
from weighbridge.masking.term_index import TermIndex
from weighbridge.masking.views import MAX_ROUNDS, unescape

MAX_PATTERN = 2_000
"""Characters of one pattern."""
_SPACED = re.compile(r"(?<!\w)\w(?:[^\w\r\n]{1,2}\w){3,}(?!\w)")
_NOT_WORD = re.compile(r"[^\w]+")


class BlockedTerms:
    """Words and patterns, searched in the text as it is, folded, with its escapes read, and written apart.

    A word counts in any case and spelling. In Latin letters it must stand for itself: `CONFIDENTIAL` is found in
    `confidential_2024.pdf` and `C O N F I D E N T I A L`, not in `confidentiality`. In Hangul it counts inside longer
    words too, since particles and compounds are glued to it; written apart it must begin and end where words do.

    Safe to use from several threads.
    """

    def __init__(
        self,
        words: TermIndex[frozenset[int]],
        patterns: Sequence[regex.Pattern[str]],
        limit_s: float,
        clock: Clock,
    ) -> None:
        self._words = words
        self._patterns = patterns
        self._limit_s = limit_s
        self._clock = clock

    def found(self, texts: Sequence[str], *, within_s: float | None = None) -> bool:
        """Whether a word or pattern stands in one of them. All patterns together have `limit_s`; after that: yes.

        Raises:
            TimeoutError: the patterns took more than `within_s`, which is less, so it is not known yet.
        """
        limit_s = self._limit_s if within_s is None else min(within_s, self._limit_s)
        until = self._clock.monotonic() + limit_s
        try:
            return any(self._in_text(text, until) for text in texts)
        except TimeoutError:
            if limit_s < self._limit_s:
                raise
            return True

    def _in_text(self, text: str, until: float) -> bool:
        for reading in _readings(text):
            if len(self._words) and self._word_in(reading):
                return True
            if self._patterns and self._pattern_in(reading, until):
                return True
        return bool(self._patterns) and text != fold_text(text) and self._pattern_in(text, until)

    def _word_in(self, reading: str) -> bool:
        low = lower(reading)
        places: list[int] | None = None
        for start, end, own_gaps in self._words.find(squeeze(low)):
            if places is None:
                places = places_of(low)
            if one_term(low, places[start:end], own_gaps=own_gaps):
                return True
        return False

    def _pattern_in(self, reading: str, until: float) -> bool:
        together = _SPACED.sub(lambda apart: _NOT_WORD.sub("", apart.group()), reading)
        for pattern in self._patterns:
            for text in {reading, together}:
                left = until - self._clock.monotonic()
                if left <= 0:
                    raise TimeoutError
                if pattern.search(text, timeout=left, concurrent=True):
                    return True
        return False


def _readings(text: str) -> Iterator[str]:
    """The folded text, and the parts of it that escapes hide."""
    reading = fold_text(text)
    yield reading
    for _ in range(MAX_ROUNDS):
        further = unescape(reading)
        if further is None:
            return
        for first, last in further.windows():
            yield fold_text(further.text[first:last])
        reading = further.text


def compile_blocked(
    words: Iterable[str], patterns: Sequence[str], limit_s: float, *, clock: Clock | None = None
) -> BlockedTerms:
    """Make the search.

    Args:
        words: terms, each of two characters or more.
        patterns: regular expressions of the `regex` package.
        limit_s: seconds all patterns together may take for one request.

    Raises:
        ValueError: a word or pattern cannot be used. Names its number (from 0), never its text.
    """
    if not limit_s > 0:
        raise ValueError("the time limit must be above 0")
    made: list[regex.Pattern[str]] = []
    for at, pattern in enumerate(patterns):
        if len(pattern) > MAX_PATTERN:
            raise ValueError(f"pattern {at} is longer than {MAX_PATTERN} characters")
        try:
            one = regex.compile(pattern)
            if one.fullmatch("", timeout=limit_s) is not None:
                raise ValueError(f"pattern {at} matches the empty text")
        except (regex.error, RecursionError, OverflowError, TimeoutError):
            raise ValueError(f"pattern {at} is no regular expression") from None
        made.append(one)
    index = TermIndex[frozenset[int]]()
    for at, word in enumerate(words):
        term = lower(fold_text(word)).strip()
        plain = squeeze(term)
        if len(plain) < 2:
            raise ValueError(f"word {at} has fewer than 2 letters and digits")
        index.add(plain, gaps_of(term) | (index.get(plain) or frozenset()))
    return BlockedTerms(index, made, limit_s, clock or SystemClock())
