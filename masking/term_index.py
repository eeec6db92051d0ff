"""Finding many terms in one go.

An automaton would be built in one step that holds the interpreter, most of a second for 50,000 terms, and thrown away
in another, while every stream waits. So terms stand in a plain table, and two characters of the text say which lengths
are worth looking up.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import add
from typing import Generic, TypeVar

Note = TypeVar("Note")


class TermIndex(Generic[Note]):
    """Terms, each with a note. Once nothing is added any more it is safe to use from several threads."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}
        self._lengths: dict[str, tuple[int, ...]] = {}
        """Lengths of the terms that begin with these two characters."""
        self._single: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self._notes)

    def get(self, term: str) -> Note | None:
        """The note of a term, if it is there."""
        return self._notes.get(term)

    def add(self, term: str, note: Note) -> None:
        """Add a term that is not empty, or change its note."""
        self._notes[term] = note
        if len(term) == 1:
            self._single |= {term}
            return
        lengths = self._lengths.get(term[:2], ())
        if len(term) not in lengths:
            self._lengths[term[:2]] = (*lengths, len(term))

    def find(self, text: str) -> Iterator[tuple[int, int, Note]]:
        """Start, end and note of every place of every term."""
        if not self._notes:
            return
        known, notes = self._lengths, self._notes
        for start, pair in enumerate(map(add, text, text[1:])):
            if pair in known:
                for length in known[pair]:
                    end = start + length
                    if (term := text[start:end]) in notes and len(term) == length:
                        yield start, end, notes[term]
        if self._single:
            for start, char in enumerate(text):
                if char in self._single:
                    yield start, start + 1, notes[char]
