"""For how long a worker is up, and how much of that each request has of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weighbridge.config.clock import Clock
from weighbridge.observability.records import Capacity

Record = Callable[[Capacity], None]


class Uptime:
    """One period in which a worker is up: from before its first slot is granted until it is gone and its last slot has
    come back.

    What its slots are held for lies within it, and a slot is held by one at a time: so the shares of all who had one
    add up to no more than the period, but for the rounding of each to a microsecond.

    Args:
        road, worker: the tier's name and the worker's.
        slots: how many may be held at a time.
        clock: durations are its monotonic ones, so that a changed date makes no worker time.
        record: takes the period so far, at its beginning and whenever it is marked.
    """

    __slots__ = ("_clock", "_from", "_from_ns", "_lent", "_over", "_record", "_road", "_worker", "slots")

    def __init__(self, road: str, worker: str, slots: int, clock: Clock, record: Record) -> None:
        self.slots: Final = slots
        self._road = road
        self._worker = worker
        self._clock = clock
        self._record = record
        self._lent = 0
        self._over = False
        self._from_ns = clock.wall_ns()
        self._from = clock.monotonic()
        self.mark()

    def mark(self) -> None:
        """Record that it has lasted until now; not for one that is closed."""
        lasted_ns = round((self._clock.monotonic() - self._from) * 1e9)
        self._record(Capacity(self._road, self._worker, self._from_ns, self._from_ns + lasted_ns, self.slots))

    def end(self) -> None:
        """The worker is gone."""
        self.mark()
        self._over = True

    @property
    def closed(self) -> bool:
        """Whether the worker is gone and all its slots are back."""
        return self._over and not self._lent

    def lend(self) -> float:
        """A slot is in use from now on; returns the time, for `take_back`."""
        self._lent += 1
        return self._clock.monotonic()

    def take_back(self, since: float) -> int:
        """The slot in use since `since` is about to come back. Returns its share of the worker: microseconds, divided
        by the slots and rounded, halves to the even number."""
        held_s = self._clock.monotonic() - since
        if self._over and self._lent == 1:
            self.mark()
        self._lent -= 1
        return round(held_s * 1e6 / self.slots)
