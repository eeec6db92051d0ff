"""Finding many terms in one go.

The automaton keeps the ways on from each of its states in a list. With Hangul, of which there are eleven thousand
syllables, that list is long and every step slow; so characters are spread over four symbols of 256 each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import ahocorasick

Note = TypeVar("Note")
_SYMBOLS = 4


def _spread(text: str) -> str:
    return text.encode("utf-32-be", "surrogatepass").decode("latin-1")


class TermIndex(Generic[Note]):
    """Terms, each with a note. After `close` it is safe to use from several threads."""

    def __init__(self) -> None:
        self._automaton = ahocorasick.Automaton()

    def __len__(self) -> int:
        return len(self._automaton)

    def get(self, term: str) -> Note | None:
        """The note of a term, if it is there."""
        held = self._automaton.get(_spread(term), None)
        return None if held is None else held[1]

    def add(self, term: str, note: Note) -> None:
        """Add a term that is not empty, or change its note."""
        self._automaton.add_word(_spread(term), (len(term), note))

    def close(self) -> None:
        """No more terms."""
        self._automaton.make_automaton()

    def find(self, text: str) -> Iterator[tuple[int, int, Note]]:
        """Start, end and note of every place of every term."""
        if not len(self._automaton):
            return
        for last, (length, note) in self._automaton.iter(_spread(text)):
            end, rest = divmod(last + 1, _SYMBOLS)
            if not rest:
                yield end - length, end, note
