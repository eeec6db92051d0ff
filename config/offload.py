"""Long work beside the event loop, and telling long from short: while a callback runs, every stream waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Lane:
    """One thread for long work, a piece after the other.

    One, because such work holds the interpreter: a second thread would make neither piece faster, and the loop would
    wait for both at every turn.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._pieces: set[Future[Any]] = set()

    @property
    def pieces(self) -> int:
        """Pieces that have begun, or wait for their turn."""
        return len(self._pieces)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns or raises. Costs some tenths of a millisecond by itself: not for short work.

        Cancelling the caller leaves a piece that has begun to end by itself.
        """
        piece = self._thread.submit(work, *args, **kwargs)
        self._pieces.add(piece)
        piece.add_done_callback(self._pieces.discard)
        return await asyncio.wrap_future(piece)


BODIES: Final = Lane("bodies")
"""For decoding and copying request bodies, some tens of milliseconds a piece."""

MASKING: Final = Lane("masking")
"""For masking, whose pieces may take longer and must not keep bodies waiting."""

JUDGING: Final = Lane("judging")
"""For looking at answers, which nobody but their own callers may wait for."""


def is_small(value: Any, *, nodes: int, chars: int) -> bool:
    """Whether a JSON value holds at most so many values and characters, names included.

    Takes time for what it counts only: at most about `nodes` steps.
    """
    level = [value]
    while level:
        below: list[Any] = []
        for node in level:
            kind = type(node)
            if kind is str:
                chars -= len(node)
            elif kind is dict:
                nodes -= len(node)
                if nodes < 0:
                    return False
                chars -= sum(map(len, node))
                below += node.values()
            elif kind is list:
                nodes -= len(node)
                if nodes < 0:
                    return False
                below += node
        if chars < 0:
            return False
        level = below
    return True
