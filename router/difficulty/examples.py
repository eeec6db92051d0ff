"""Prompts to fit on, each looked at once."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from weighbridge.router.difficulty.looking import Seen, look
from weighbridge.router.difficulty.model import KINDS
from weighbridge.router.difficulty.stuffing import stuffed
from weighbridge.router.difficulty.words import UNTRUSTED, Vocabulary

FOLDS: Final = 6
FITTED: Final = ("knowledge", "reasoning", "math", "code")
"""Tasks that prompts with outcomes exist of."""

SOURCE_WEIGHT: Final = 0.3
"""What a prompt counts whose task is that of its source, not of a hand."""

STUFFED: Final = 3
"""How often each of those is looked at again with easy-sounding words around it."""

STUFFED_WEIGHT: Final = 1.0
"""What it counts then."""

_FROM_SOURCES: Final = 100
_FROM_ONE: Final = 20
_DOCUMENT: Final = 1_000
_LONG_LINE: Final = 60


class Collected(dict[Any, int]):
    """Gives every key a number at first sight; a dictionary cannot do that through `get`."""

    def __init__(self, kind: str, names: list[tuple[str, Any]]) -> None:
        super().__init__()
        self._kind, self._names = kind, names

    def get(self, key: Any, default: Any = None, /) -> Any:
        """The number of a key; `default` for one that must not be learnt."""
        number = super().get(key)
        if number is None:
            if not UNTRUSTED.isdisjoint(key if isinstance(key, tuple) else (key.lstrip("^$"),)):
                return default
            self._names.append((self._kind, key))
            number = self[key] = len(self._names)
        return number


@dataclass(frozen=True)
class Example:
    """One prompt.

    Args:
        task: what it is, for those that tasks are learnt from; else empty.
        weight: how much it counts in that.
        fold: its part in cross-validation, -1 for none; prompts that share a long document share it.
        seen: the look at it.
        row: what the file says of it.
    """

    task: str
    weight: float
    fold: int
    seen: Seen
    row: dict[str, Any]


class Learner:
    """Looks at prompts and numbers what they hold."""

    def __init__(self) -> None:
        self.names: list[tuple[str, Any]] = []
        """Kind and key of each number, from 1."""
        self.known = Vocabulary(*[Collected(kind, self.names) for kind in KINDS[:-1]])
        self.marks = Collected("mark", self.names)

    def tasks(self, rows: Sequence[dict[str, Any]]) -> list[Example]:
        """Prompts labelled by hand. Those that nothing can be made of (`unknown`) are left out."""
        return [
            self._example(row, body_of(row), row["task"], 1.0, fold_of(body_of(row)))
            for row in rows
            if row["task"] != "unknown"
        ]

    def outcomes(self, rows: Sequence[dict[str, Any]]) -> list[Example]:
        """Prompts with outcomes; a few of each source are taken for the task as well."""
        ordered = sorted(rows, key=lambda row: hashlib.sha256(row["id"].encode()).digest())
        of_task: Counter[str] = Counter()
        of_source: Counter[str] = Counter()
        examples = []
        for row in ordered:
            body = {"messages": [{"role": "user", "content": row["prompt"]}]}
            task, source = row["task"], f"{row.get('source')}/{row.get('subset')}"
            taken = task in FITTED and of_task[task] < _FROM_SOURCES and of_source[source] < _FROM_ONE
            if taken:
                of_task[task] += 1
                of_source[source] += 1
            examples.append(self._example(row, body, task if taken else "", SOURCE_WEIGHT, -1))
        return examples

    def stuffed(self, outcomes: Sequence[Example]) -> list[Example]:
        """Those that tasks are learnt from, with words around them that do not change their task."""
        return [
            self._example(e.row, stuffed(e.row["prompt"], lot), e.task, STUFFED_WEIGHT, -1)
            for e in outcomes
            if e.task
            for lot in range(STUFFED)
        ]

    def _example(
        self, row: dict[str, Any], body: dict[str, Any], task: str, weight: float, fold: int
    ) -> Example:
        seen = look(body, self.known)
        for mark in seen.marks:
            self.marks.get(mark)
        return Example(task, weight, fold, seen, row)


def body_of(row: dict[str, Any]) -> dict[str, Any]:
    """The request of a labelled prompt."""
    body: dict[str, Any] = row.get("body", row)
    return body


def fold_of(body: dict[str, Any]) -> int:
    """The same for prompts about one long document: its longest line tells it."""
    text = "\n".join(str(message["content"]) for message in body["messages"])
    lines = [line.strip() for line in text.split("\n") if len(line.strip()) > _LONG_LINE]
    name = max(lines, key=len)[:_LONG_LINE] if len(text) > _DOCUMENT and lines else text
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:4], "big") % FOLDS
