"""The queue lock: the right to a slot on a tier, first come first served, with a deadline.

Everything here runs in one event loop and none of it is safe from another thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from weighbridge.config.clock import Clock
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ApiError
from weighbridge.pool.engine import Engine


class QueueLockTimeout(ApiError):
    """No slot came free in time; another road may serve."""

    def __init__(self, waited_ms: float) -> None:
        super().__init__(
            429,
            f"No slot came free on the local model within {waited_ms:.0f} ms. Please try again.",
            type="rate_limit_error",
            code="queue_lock_timeout",
            retry_after_s=1,
        )
        self.waited_ms = waited_ms


class QueueFull(ApiError):
    """As many wait already as may wait; another road may serve."""

    def __init__(self) -> None:
        super().__init__(
            429,
            "Too many requests already wait for the local model. Please try again.",
            type="rate_limit_error",
            code="queue_full",
            retry_after_s=2,
        )


class QueueClosed(Exception):
    """The lock gives no slots any more: its tier is gone."""


class Slot(Protocol):
    """One slot in the hands of one request."""

    @property
    def waited_ms(self) -> float:
        """Milliseconds from asking for the slot to getting it."""
        ...

    def release(self) -> None:
        """Give the slot back. Does not wait, may be called again, and may be called from a `finally`."""
        ...


class SlotLock(Protocol):
    """What a tier needs of a queue lock, whoever keeps the slots. Implementations share one contract test."""

    @property
    def slots(self) -> int:
        """Slots in all."""
        ...

    @property
    def in_use(self) -> int:
        """Slots granted and not given back."""
        ...

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        ...

    async def acquire(self, deadline: Deadline) -> Slot:
        """Take a slot, in the order of asking. Cancelled at any point, it keeps no slot.

        Raises:
            QueueLockTimeout: no slot was free before `deadline`; a slot is never granted after it.
            QueueFull: too many wait already.
            QueueClosed: `close` was called, before or while waiting.
        """
        ...

    def close(self) -> None:
        """Turn away all who wait and all who will ask. Slots in use come back as ever."""
        ...


class SlotLease:
    """The right to one slot of a tier, and the engine it is good for. It always comes back, from a `finally`."""

    __slots__ = ("_slot", "engine")

    def __init__(self, slot: Slot, engine: Engine) -> None:
        self._slot = slot
        self.engine: Final = engine

    def release(self) -> None:
        """Give the slot back. Does not wait and may be called again."""
        self._slot.release()


class LocalSlot:
    """A slot of a `QueueLock`."""

    __slots__ = ("_give_back", "waited_ms")

    def __init__(self, give_back: Callable[[], None], waited_ms: float) -> None:
        self._give_back: Callable[[], None] | None = give_back
        self.waited_ms: Final = waited_ms

    def release(self) -> None:
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


class _Waiter:
    """One request in the queue; `turn` tells it that a slot is its own (True) or that time is up (False)."""

    __slots__ = ("deadline", "turn")

    def __init__(self, deadline: Deadline, turn: asyncio.Future[bool]) -> None:
        self.deadline = deadline
        self.turn = turn


class QueueLock:
    """The slots of one tier, kept in this process.

    Args:
        slots: how many may hold one at a time.
        max_waiting: how many may wait; the next one is turned away at once.
        clock: the clock that deadlines are measured on; it must run as fast as the event loop's.
        on_change: called when `in_use` or `waiting` has changed.
    """

    def __init__(
        self, slots: int, max_waiting: int, clock: Clock, *, on_change: Callable[[], None] = lambda: None
    ) -> None:
        if slots < 1:
            raise ValueError("a queue lock needs a slot")
        self.slots: Final = slots
        self.max_waiting: Final = max_waiting
        self._clock = clock
        self._on_change = on_change
        self._in_use = 0
        self._queue: dict[_Waiter, None] = {}
        """In order of arrival; a dict so that one who leaves early is found at once."""
        self._closed = False

    @property
    def in_use(self) -> int:
        return self._in_use

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def acquire(self, deadline: Deadline) -> LocalSlot:
        if self._closed:
            raise QueueClosed
        asked = self._clock.monotonic()
        if deadline.expired():
            raise QueueLockTimeout(0.0)
        # Whoever waits comes first, even in the moment between a slot coming back and its next owner waking up.
        if self._in_use < self.slots and not self._queue:
            self._in_use += 1
            self._on_change()
            return LocalSlot(self._give_back, 0.0)
        if len(self._queue) >= self.max_waiting:
            raise QueueFull
        return await self._wait(deadline, asked)

    def close(self) -> None:
        self._closed = True
        for waiter in self._queue:
            if not waiter.turn.done():
                waiter.turn.set_exception(QueueClosed())
        self._queue.clear()
        self._on_change()

    async def _wait(self, deadline: Deadline, asked: float) -> LocalSlot:
        loop = asyncio.get_running_loop()
        waiter = _Waiter(deadline, loop.create_future())
        self._queue[waiter] = None
        self._on_change()
        timer = loop.call_later(deadline.remaining(), self._expire, waiter)
        try:
            granted = await waiter.turn
        except asyncio.CancelledError:
            self._leave(waiter)
            turn = waiter.turn
            if not turn.cancelled() and turn.done() and turn.exception() is None and turn.result():
                # The slot was ours already when the cancellation arrived: hand it on.
                self._give_back()
            raise
        finally:
            timer.cancel()
        waited_ms = (self._clock.monotonic() - asked) * 1000
        if not granted:
            raise QueueLockTimeout(waited_ms)
        return LocalSlot(self._give_back, waited_ms)

    def _leave(self, waiter: _Waiter) -> None:
        self._queue.pop(waiter, None)
        self._on_change()

    def _expire(self, waiter: _Waiter) -> None:
        self._leave(waiter)
        if not waiter.turn.done():
            waiter.turn.set_result(False)

    def _give_back(self) -> None:
        self._in_use -= 1
        while self._in_use < self.slots and self._queue:
            waiter = next(iter(self._queue))
            if waiter.deadline.expired():
                # Its timer is due in this very turn of the loop; a late slot is no use to it.
                self._expire(waiter)
                continue
            del self._queue[waiter]
            if not waiter.turn.done():
                self._in_use += 1
                waiter.turn.set_result(True)
        self._on_change()
