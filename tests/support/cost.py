"""CPU time of a piece of code in reference loops: what a machine and its other work do to it mostly cancels."""

from __future__ import annotations

import time
from collections.abc import Callable

_ROUNDS = 12


def reference() -> int:
    """The work that everything is measured in: some plain Python, 45 to 70 µs of it on machines of 2025."""
    total = 0
    names: dict[int, str] = {}
    for number in range(300):
        names[number & 31] = f"{number:x}"
        total += len(names)
    return total


def cpu_us(work: Callable[[], object], times: int) -> float:
    """CPU of this thread for one call of `work`, in microseconds, over `times` calls."""
    began = time.thread_time_ns()
    for _ in range(times):
        work()
    return (time.thread_time_ns() - began) / times / 1000


def in_references(work: Callable[[], object], times: int = 200) -> float:
    """How many reference loops one call of `work` costs: the cheapest of some rounds of each, which take turns."""
    reference()
    work()
    ours = theirs = float("inf")
    for _ in range(_ROUNDS):
        theirs = min(theirs, cpu_us(reference, times))
        ours = min(ours, cpu_us(work, times))
    return ours / theirs
