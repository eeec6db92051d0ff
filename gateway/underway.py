"""The requests being handled at this moment, so that a shutdown can wait for them and then cut them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Underway:
    """Kept by the chat route; drained by the server.

    Args:
        on_cut: called when the drain limit has passed, before the first request is cut.
    """

    def __init__(self, on_cut: Callable[[], None] = lambda: None) -> None:
        self._on_cut = on_cut
        self._cuts: dict[str, Callable[[], object]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False
        """Set at shutdown: nothing new is begun."""
        self.cut = False
        """Set when the drain limit has passed: whoever is cancelled from then on was cut off by us."""

    @property
    def count(self) -> int:
        return len(self._cuts)

    def enter(self, request_id: str, cut: Callable[[], object]) -> None:
        """Note a request, or a new way to cut one that is noted already."""
        if not self._cuts:
            self._idle.clear()
        self._cuts[request_id] = cut

    def leave(self, request_id: str) -> None:
        self._cuts.pop(request_id, None)
        if not self._cuts:
            self._idle.set()

    async def drain(self, seconds: float) -> int:
        """Wait until all are done, at most `seconds`; then cut the rest and wait for their records.

        Returns:
            How many were cut.
        """
        self.draining = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            pass
        else:
            return 0
        self.cut = True
        self._on_cut()
        rest = list(self._cuts.values())
        for cut in rest:
            cut()
        await self._idle.wait()
        return len(rest)
