"""What a request will need of the KV cache, told from those that have finished before it."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import Final, Generic, TypeVar

T = TypeVar("T", int, float)

WINDOW: Final = 200
"""Finished requests that count, the newest ones."""

MIN_SAMPLES: Final = 8
"""Finished requests before they are believed."""

START_ANSWER: Final = 256
"""Tokens an answer is expected to have before that."""

START_RATIO: Final = 1 / 3
"""Tokens a byte of the body is expected to come to before that: more than text and its JSON mostly do."""

MAX_TASKS: Final = 64
"""Tasks that are remembered; the one that was not heard of for longest is forgotten."""

_PROMPT_PERCENT: Final = 75
_ANSWER_PERCENT: Final = 90
"""A bit high: what is reserved too much comes back when the prompt is counted or the answer ends, what is reserved too
little may cost a preemption."""


class Expectation:
    """What requests to one tier come to, in tokens. Bounded memory; holds numbers and task names only."""

    __slots__ = ("_all", "_by_task", "_ratios")

    def __init__(self) -> None:
        self._ratios: Final = _Window[float]()
        self._all: Final = _Window[int]()
        self._by_task: Final[dict[str, _Window[int]]] = {}
        """In the order in which they were heard of last."""

    def prompt_tokens(self, body_bytes: int) -> int:
        """Tokens of the prompt of a request whose body has so many bytes."""
        ratio = self._ratios.percentile(_PROMPT_PERCENT)
        return math.ceil(body_bytes * (START_RATIO if ratio is None else ratio))

    def answer_tokens(self, task: str, max_tokens: int | None, n: int) -> int:
        """Tokens of all answers to a request.

        Args:
            task: what the request is for; one that is not known is expected to be like all others.
            max_tokens: the caller's limit on each answer, if there is one.
            n: answers asked for, at least 1.
        """
        of_task = self._by_task.get(task)
        each = None if of_task is None else of_task.percentile(_ANSWER_PERCENT)
        if each is None:
            each = self._all.percentile(_ANSWER_PERCENT)
        if each is None:
            each = START_ANSWER
        return n * (each if max_tokens is None else min(max_tokens, each))

    def learn(self, task: str, body_bytes: int, prompt_tokens: int, completion_tokens: int, n: int) -> None:
        """Take in a request that has finished. A count that is 0 says nothing and is left out.

        Args:
            completion_tokens: of all `n` answers together.
        """
        if prompt_tokens > 0 and body_bytes > 0:
            self._ratios.add(prompt_tokens / body_bytes)
        if completion_tokens <= 0:
            return
        each = math.ceil(completion_tokens / n)
        self._all.add(each)
        # Taken out and put in again, it is the last in the order.
        of_task = self._by_task.pop(task, None) or _Window[int]()
        self._by_task[task] = of_task
        of_task.add(each)
        if len(self._by_task) > MAX_TASKS:
            del self._by_task[next(iter(self._by_task))]


class _Window(Generic[T]):
    """The newest values, and the same in order of size."""

    __slots__ = ("_by_size", "_newest")

    def __init__(self) -> None:
        self._newest: Final[deque[T]] = deque()
        self._by_size: Final[list[T]] = []

    def add(self, value: T) -> None:
        if len(self._newest) == WINDOW:
            del self._by_size[bisect_left(self._by_size, self._newest.popleft())]
        self._newest.append(value)
        insort(self._by_size, value)

    def percentile(self, percent: int) -> T | None:
        """The smallest value that is not below `percent` of them; None where there are too few."""
        count = len(self._by_size)
        if count < MIN_SAMPLES:
            return None
        return self._by_size[math.ceil(count * percent / 100) - 1]
