"""An event loop whose time jumps to the next timer, so that hours of waiting take no time and ties are exact."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_STUCK_S = 10.0
"""Real seconds to wait for another thread before a loop with nothing to do is called stuck."""


class _JumpingSelector(selectors.DefaultSelector):
    """Never sleeps while a timer is pending: moves the loop's time instead."""

    loop: VirtualTimeLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is not None:
            self.loop.now += timeout
            return ready
        ready = super().select(_STUCK_S)
        if not ready:
            raise RuntimeError("nothing will ever happen in this event loop")
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop that starts at time 0. Threads get no time of their own: do not mix them with timers."""

    def __init__(self) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self.now = 0.0
        super().__init__(selector)

    def time(self) -> float:
        return self.now


class VirtualClock:
    """The `Clock` of a virtual-time loop; usable outside a running loop only where the loop is given."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return (self._loop or asyncio.get_running_loop()).time()

    def wall_ns(self) -> int:
        return 1_700_000_000_000_000_000 + round(self.monotonic() * 1_000_000_000)


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in a loop of virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
