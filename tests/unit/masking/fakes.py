"""Detector processes that are none."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from weighbridge.masking.detector_child import ChildLost
from weighbridge.masking.entities import Span
from weighbridge.masking.wire import Ready

Find = Callable[[str], list[Span]]
_PLANTED = re.compile(r"XX[a-z]+XX")


def planted(text: str) -> list[Span]:
    """A detector that finds XXnamedXX."""
    return [(*hit.span(), "PHONE") for hit in _PLANTED.finditer(text)]


class FakeChild:
    """Finds what `find` finds; `hold` keeps it busy; `lose` ends it."""

    ready = Ready("fake-1")

    def __init__(self, find: Find = planted) -> None:
        self._find = find
        self.asked: list[Sequence[str]] = []
        self.free = asyncio.Event()
        self.free.set()
        self.busy = asyncio.Event()
        self.ended = asyncio.Event()
        self.killed = False

    async def find(self, texts: Sequence[str], limit_s: float) -> list[list[Span]]:
        self.asked.append(texts)
        self.busy.set()
        try:
            async with asyncio.timeout(limit_s):
                free, ended = (asyncio.ensure_future(event.wait()) for event in (self.free, self.ended))
                await asyncio.wait({free, ended}, return_when=asyncio.FIRST_COMPLETED)
                free.cancel()
                ended.cancel()
        except TimeoutError:
            raise ChildLost from None
        if self.ended.is_set():
            raise ChildLost
        return [self._find(text) for text in texts]

    async def gone(self) -> None:
        await self.ended.wait()

    async def kill(self) -> None:
        self.killed = True
        self.ended.set()


class Children:
    """Starts fake children; `fail` makes starting fail."""

    def __init__(self, find: Find = planted) -> None:
        self._find = find
        self.started: list[FakeChild] = []
        self.fail = False
        self.another = asyncio.Event()

    async def start(self) -> FakeChild:
        if self.fail:
            raise ChildLost
        child = FakeChild(self._find)
        self.started.append(child)
        self.another.set()
        return child
