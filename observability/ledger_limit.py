"""The longest that anybody waits for a row."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from weighbridge.observability.ledger_inbox import Row

Open = deque[tuple[float, Row, "asyncio.Future[None]"]]


class WaitLimit:
    """Calls `give_up` for each future that is still open after `limit_s` seconds, from the future's own loop.

    One timer for all of them: rows come by the thousand, and next to none ever waits that long.
    """

    def __init__(self, limit_s: float, give_up: Callable[[Row, asyncio.Future[None]], None]) -> None:
        self._limit_s = limit_s
        self._give_up = give_up
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: Open = deque()

    def watch(self, row: Row, future: asyncio.Future[None]) -> None:
        loop = future.get_loop()
        due = loop.time() + self._limit_s
        if loop is not self._loop:  # none has a timer, or one that may have ended with its loop
            self._loop, self._open = loop, deque()
            loop.call_at(due, self._sweep, loop, self._open)
        waiting = self._open
        while waiting and waiting[0][2].done():
            waiting.popleft()
        waiting.append((due, row, future))

    def _sweep(self, loop: asyncio.AbstractEventLoop, waiting: Open) -> None:
        now = loop.time()
        while waiting and (waiting[0][2].done() or waiting[0][0] <= now):
            _, row, future = waiting.popleft()
            if not future.done():
                self._give_up(row, future)
        if waiting:
            loop.call_at(waiting[0][0], self._sweep, loop, waiting)
        elif waiting is self._open:
            self._loop = None
