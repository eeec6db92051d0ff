"""Looking cue words up without trying each of them on each text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import add
from typing import Final

from weighbridge.policies.tasks import Task
from weighbridge.router.difficulty.cues_en import ENGLISH, Cue
from weighbridge.router.difficulty.cues_ko import KOREAN

_NOT_WORD: Final = re.compile(r"\W+")
_KEY: Final = 4


def normalise(lower: str) -> str:
    """Words of a lower-case text apart by one space, a space at either end."""
    return " " + _NOT_WORD.sub(" ", lower).strip() + " "


def _by_word(cues: Iterable[Cue]) -> dict[str, tuple[Cue, ...]]:
    """English cues by the first letters of their first word.

    A cue whose only word is shorter than the key is taken as a whole word, as it could not be found otherwise.
    """
    index: dict[str, list[Cue]] = {}
    for cue, task, weight in cues:
        words = cue.split()
        if len(words) == 1 and len(words[0]) < _KEY and not cue.endswith(" "):
            cue += " "
        index.setdefault(words[0][:_KEY], []).append((cue, task, weight))
    return {key: tuple(entries) for key, entries in index.items()}


def _by_pair(cues: Iterable[Cue]) -> dict[str, tuple[Cue, ...]]:
    """Korean cues by their first two characters."""
    index: dict[str, list[Cue]] = {}
    for entry in cues:
        index.setdefault(entry[0][:2], []).append(entry)
    return {key: tuple(entries) for key, entries in index.items()}


_ENGLISH: Final = _by_word(ENGLISH)
_KOREAN: Final = _by_pair(KOREAN)
_PAIRS: Final = frozenset(_KOREAN)


class Ballot:
    """Votes for tasks. A cue counts once, at the share it was first seen with.

    Votes are added in the order of the text and of the tables, so that two processes add the same figures up.
    """

    __slots__ = ("_seen", "votes")

    def __init__(self) -> None:
        self.votes: dict[Task, float] = {}
        self._seen: set[str] = set()

    def add(self, task: Task, weight: float) -> None:
        """Vote for a task."""
        self.votes[task] = self.votes.get(task, 0.0) + weight

    def read(self, words: str, tokens: list[str], share: float) -> None:
        """Look up the cues in normalised text (`tokens` are its words) and add them, weighed by `share`."""
        votes, seen, index = self.votes, self._seen, _ENGLISH
        for token in tokens:
            for cue, task, weight in index.get(token[:_KEY], ()):
                if cue not in seen and cue in words:
                    seen.add(cue)
                    votes[task] = votes.get(task, 0.0) + weight * share
        if words.isascii():
            return
        for pair in sorted(_PAIRS.intersection(map(add, words, words[1:]))):
            for cue, task, weight in _KOREAN[pair]:
                if cue not in seen and cue in words:
                    seen.add(cue)
                    votes[task] = votes.get(task, 0.0) + weight * share

    def best(self) -> float:
        """The highest count."""
        return max(self.votes.values(), default=0.0)

    def winner(self) -> Task:
        """The task with the highest count; of equals the first in the alphabet."""
        return max(sorted(self.votes), key=lambda task: self.votes[task])
