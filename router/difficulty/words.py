"""Which known words and neighbours of words a text holds, as numbers: the same code trains and serves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from typing import Final

from weighbridge.router.difficulty.language import word_set

Pair = tuple[str, str]

_TOKEN: Final = re.compile(r"[a-z]+(?:'[a-z]+)?|[가-힣]+|[^\w\s]{1,3}")
_FIRST_HANGUL: Final = "가"
_AFTER_HANGUL: Final = "\ud7a4"
_SYLLABLES: Final = 2
_SIGNS: Final = tuple('?:"(),./;-=%{[`|!<>*#+~&@$')
_LATIN_ONLY: Final = bytes(byte if 0x61 <= byte <= 0x7A else 0x20 for byte in range(256))
_WIDE_ONLY: Final = bytes(byte if byte >= 0x80 else 0x20 for byte in range(256))
NONE: Final = 0

UNTRUSTED: Final = word_set(
    "simple simply easy easily easier easiest quick quickly trivial trivially basic basically just only short task"
    " effortless straightforward 간단한 간단히 간단하게 쉬운 쉽게 단순한 단순히 빠르게 그냥 간단 단순"
)
"""Words by which a request may call itself easy. No weight is ever given to them, so that saying so changes nothing."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The numbers of what is known; 0 stands for what is not.

    Args:
        word: words of either language and runs of punctuation; `^` before the first and `$` before the last of a text.
        pair: two of them that follow each other.
        skip: two of them with one between, whichever that is.
        head: the first two syllables of a Korean word, which mostly are its stem.
        ending: its last two syllables, which mostly are its grammar.
        heads: the beginnings of two Korean words that follow each other.
    """

    word: Mapping[str, int] = field(default_factory=dict)
    pair: Mapping[Pair, int] = field(default_factory=dict)
    skip: Mapping[Pair, int] = field(default_factory=dict)
    head: Mapping[str, int] = field(default_factory=dict)
    ending: Mapping[str, int] = field(default_factory=dict)
    heads: Mapping[Pair, int] = field(default_factory=dict)


def found_in_asking(text: str, known: Vocabulary) -> set[int]:
    """The numbers of everything known in a lower-case text, each once however often it is there.

    Numerals, letters of other scripts and underscores are passed over.
    """
    tokens: list[str] = _TOKEN.findall(text)
    if not tokens:
        return set()
    look: Callable[..., map[int]] = map
    found = set(look(known.word.get, tokens, repeat(NONE)))
    found.update(
        (known.word.get("^" + tokens[0], NONE), known.word.get("$" + tokens[-1][-_SYLLABLES:], NONE))
    )
    found.update(look(known.pair.get, pairwise(tokens), repeat(NONE)))
    found.update(look(known.skip.get, zip(tokens, tokens[2:], strict=False), repeat(NONE)))
    if not text.isascii():
        heads = _korean([token for token in tokens if token >= _FIRST_HANGUL], known, found)
        found.update(look(known.heads.get, pairwise(heads), repeat(NONE)))
    found.discard(NONE)
    return found


def found_in_other(text: str, known: Vocabulary) -> set[int]:
    """The same for material: without neighbours, which tell little there, so that cutting into words is left to C."""
    raw = text.encode("utf-8", "replace")
    look: Callable[..., map[int]] = map
    found = set(look(known.word.get, raw.translate(_LATIN_ONLY).decode().split(), repeat(NONE)))
    found.update([known.word.get(mark, NONE) for mark in _SIGNS if mark in text])
    if len(raw) != len(text):
        tokens = raw.translate(_WIDE_ONLY).decode("utf-8", "replace").split()
        hangul = [token for token in tokens if _FIRST_HANGUL <= token < _AFTER_HANGUL]
        found.update(look(known.word.get, hangul, repeat(NONE)))
        _korean(hangul, known, found)
    found.discard(NONE)
    return found


def _korean(hangul: list[str], known: Vocabulary, found: set[int]) -> list[str]:
    """Add beginnings and ends of Korean words; returns the beginnings."""
    look: Callable[..., map[int]] = map
    heads = [token[:_SYLLABLES] for token in hangul]
    found.update(look(known.head.get, heads, repeat(NONE)))
    found.update(look(known.ending.get, [token[-_SYLLABLES:] for token in hangul], repeat(NONE)))
    return heads
