"""How long the event loop is held up: every stream waits while one callback runs."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from weighbridge.config.clock import Clock
from weighbridge.observability.metrics import Metrics

WINDOW_S: Final = 60.0


async def watch(clock: Clock, metrics: Metrics, interval_s: float = 0.25) -> None:
    """Measure how late a timer fires, again and again, until cancelled.

    What holds the loop for less than `interval_s` (seconds) may fall between two timers and be seen in part or not at
    all; what holds it longer is always seen, short of the wait for the timer.
    """
    worst = _Worst()
    while True:
        due = clock.monotonic() + interval_s
        await asyncio.sleep(interval_s)
        now = clock.monotonic()
        late = max(0.0, now - due)
        metrics.event_loop_lag_seconds.observe(late)
        metrics.event_loop_lag_worst_seconds.set(worst.of(now, late))


class _Worst:
    """The largest of the values of the last minute."""

    def __init__(self) -> None:
        self._held: deque[tuple[float, float]] = deque()
        """When and what: only values that are larger than all that came after, so the first is the largest."""

    def of(self, now: float, value: float) -> float:
        """The largest, with `value` of `now` among them."""
        held = self._held
        while held and held[-1][1] <= value:
            held.pop()
        held.append((now, value))
        while held[0][0] <= now - WINDOW_S:
            held.popleft()
        return held[0][1]
