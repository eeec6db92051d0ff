"""Noticing that an engine has gone silent in the middle of an answer, at next to no cost for an event."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Final

from weighbridge.config.time_limit import TimeLimit
from weighbridge.router.failover import LocalLate

_LOOKS: Final = 4
"""How often a limit is looked at before it is over; it may run over by one part in so many."""


class _WholeTime(TimeLimit):
    __slots__ = ()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, exc, trace)
        except TimeoutError:
            raise LocalLate("too_long") from None


def whole_time(total_s: float, left_s: float) -> AbstractContextManager[object]:
    """The limit of a whole local answer.

    Args:
        total_s: seconds it may take.
        left_s: seconds its request may still take; where they are fewer, that limit alone holds.

    Raises:
        LocalLate: at the end of the block that took too long.
    """
    return nullcontext() if total_s >= left_s else _WholeTime(total_s)


class Silence:
    """Interrupts the task it was made in when no event has come for too long.

    Used around the loop over an engine's events, which counts `events` up for each one, and sets `away` while it waits
    for the caller and not for the engine.

    Args:
        first_s: seconds to the first content.
        gap_s: seconds between two events after that.

    Raises:
        LocalLate: at the end of the block that was interrupted.
    """

    def __init__(self, first_s: float, gap_s: float) -> None:
        self.events = 0
        self.begun = False
        self.away = False
        self._first_s, self._gap_s = first_s, gap_s
        self._every_s = min(first_s, gap_s) / _LOOKS
        self._seen = 0
        self._over = False

    def __enter__(self) -> Silence:
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[object] = task
        self._cancelling = task.cancelling()
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._timer = self._loop.call_later(self._every_s, self._look)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if (
            self._over
            and self._task.uncancel() <= self._cancelling
            and isinstance(exc, asyncio.CancelledError)
        ):
            raise LocalLate("stalled" if self.begun else "first_token_late") from None

    def _look(self) -> None:
        now = self._loop.time()
        limit = self._gap_s if self.begun else self._first_s
        if self.away or (self.begun and self.events != self._seen):
            self._seen, self._heard_at = self.events, now
        elif now - self._heard_at >= limit:
            self._over = True
            self._task.cancel()
            return
        self._timer = self._loop.call_later(self._every_s, self._look)
