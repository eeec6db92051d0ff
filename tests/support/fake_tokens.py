"""The fake engine's tokens: bytes, as a real model's are, so that a character may be spread over two or three."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

WORDS: Final = (
    "ab",
    "oak",
    "river",
    "stone",
    "one",
    "two",
    "blue",
    "가람",
    "나무",
    "late",
    "soft",
    "iron",
    "day",
)
"""Whole words; each stands in the text after a blank."""

_SPLIT: Final = (("한", 1), ("글", 1, 2), ("🙂", 2, 3))
"""Characters and the bytes at which they are cut."""


def _vocabulary() -> tuple[list[bytes], dict[int, int], list[int]]:
    tokens = [b" " + word.encode() for word in WORDS]
    starters = list(range(len(tokens)))
    followers: dict[int, int] = {}
    for character, *cuts in _SPLIT:
        whole = character.encode()
        # Twice, so that a third of the tokens are pieces.
        starters += [len(tokens)] * 2
        for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
            if begin:
                followers[len(tokens) - 1] = len(tokens)
            tokens.append(whole[begin:end])
    return tokens, followers, starters


VOCABULARY, _FOLLOWERS, _STARTERS = _vocabulary()


def make_ids(prompt: str, before: Iterable[int]) -> Iterator[int]:
    """Token ids without end, each a hash of the prompt and all ids before it; characters come out whole."""
    state = hashlib.sha256(prompt.encode()).digest()
    last = -1
    for last in before:
        state = hashlib.sha256(state + bytes([last])).digest()
    while True:
        last = _FOLLOWERS[last] if last in _FOLLOWERS else _STARTERS[state[0] % len(_STARTERS)]
        state = hashlib.sha256(state + bytes([last])).digest()
        yield last


class Text:
    """The text of an answer's tokens, as far as it may go out.

    Args:
        stops: texts that end the answer and are no part of it; what could be the beginning of one is held back.
        sent: characters that went out before.
    """

    def __init__(self, stops: list[str], sent: int = 0) -> None:
        self.stopped = False
        self._stops = stops
        self._held_back = max((len(stop) for stop in stops), default=1) - 1
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._sent = sent

    def add(self, token: int) -> None:
        """Read one more token; a character that is not whole yet waits."""
        self._text += self._decoder.decode(VOCABULARY[token])
        cut = min((at for stop in self._stops if (at := self._text.find(stop)) >= 0), default=None)
        if cut is not None:
            self.stopped = True
            self._text = self._text[:cut]

    def release(self, *, whole: bool) -> str:
        """What may go out now and has not; `whole` when no more tokens will come."""
        until = len(self._text) - (0 if whole or self.stopped else self._held_back)
        text = self._text[self._sent : max(self._sent, until)]
        self._sent += len(text)
        return text
