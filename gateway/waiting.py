"""A time limit that costs nothing until something really waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import Any, TypeVar, cast

T = TypeVar("T")


class _Rest(Awaitable[Any]):
    """What is left of an awaitable that has already been driven to its first suspension."""

    def __init__(self, steps: Generator[Any, Any, Any], waiting_for: Any) -> None:
        self._steps = steps
        self._waiting_for = waiting_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting_for = self._waiting_for
        while True:
            try:
                try:
                    sent = yield waiting_for
                except BaseException as exc:
                    waiting_for = self._steps.throw(exc)
                else:
                    waiting_for = self._steps.send(sent)
            except StopIteration as done:
                return done.value


async def within(work: Awaitable[T], seconds: float) -> T:
    """Await `work`, for at most `seconds` once it suspends.

    A piece of an answer nearly always goes straight into the socket's buffer. `asyncio.timeout` would arm and
    disarm a timer for each of them; here the timer exists only when the peer keeps us waiting.

    Raises:
        TimeoutError: `work` was still waiting after `seconds` and has been cancelled.
    """
    steps = work.__await__()
    try:
        waiting_for = steps.send(None)
    except StopIteration as done:
        return cast("T", done.value)
    async with asyncio.timeout(seconds):
        return cast("T", await _Rest(steps, waiting_for))
