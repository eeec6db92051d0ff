"""A time limit for one task, for where every request passes."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class TimeLimit:
    """`with TimeLimit(seconds):` ends what the task waits for in the block after so long.

    What `asyncio.timeout` does, for a third of its cost: that one's entry and exit are coroutines.

    Args:
        seconds: from entering the block; it cannot be moved.

    Raises:
        TimeoutError: at the end of the block, if the limit ended it.
    """

    __slots__ = ("_cancelling", "_handle", "_seconds", "_task", "expired")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.expired = False
        """The limit has passed inside the block."""

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit needs a task")
        self._task: asyncio.Task[object] = task
        self._cancelling = task.cancelling()
        self._handle = asyncio.get_running_loop().call_later(self._seconds, self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handle.cancel()
        # Another's cancellation of the task beside ours goes on.
        if self.expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from exc

    def _end(self) -> None:
        self.expired = True
        self._task.cancel()
