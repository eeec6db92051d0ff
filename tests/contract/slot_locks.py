"""The `SlotLock`s that keep one contract, and how its tests ask them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

import pytest

from tests.support.blocking_link import BlockingLink
from tests.support.redis_server import redis_server
from tests.support.virtual_time import VirtualClock
from weighbridge.config.deadline import Deadline
from weighbridge.pool.queue_lock import QueueLock
from weighbridge.pool.shared_lock import SharedQueueLock
from weighbridge.pool.slot_lock import Ask, Priority, Slot, SlotLock
from weighbridge.state.slot_leases import SlotLeases

PLACE = "first"
"""The place that is open from the start."""

T = TypeVar("T")


class MakeLock(Protocol):
    """Makes a lock in a running loop of virtual time, with one place open.

    A test that does not ask for prediction gets a lock that never turns anybody away on a guess.
    """

    def __call__(
        self, slots: int, max_waiting: int, *, tokens: int | None = None, predict: bool = False
    ) -> SlotLock: ...


def in_process(slots: int, max_waiting: int, *, tokens: int | None = None, predict: bool = False) -> SlotLock:
    lock = QueueLock(max_waiting, VirtualClock(), predict=predict)
    lock.open(PLACE, slots, tokens)
    return lock


class SharedLocks:
    """Makes locks that keep their slots in a real Redis, which starts with the first of them."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._url = ""
        self._links: deque[BlockingLink] = deque()
        self._count = 0

    def __call__(
        self, slots: int, max_waiting: int, *, tokens: int | None = None, predict: bool = False
    ) -> SlotLock:
        lock = SharedQueueLock(max_waiting, VirtualClock(), self.leases(), predict=predict)
        lock.open(PLACE, slots, tokens)
        return lock

    def leases(self) -> SlotLeases:
        """The voice of a replica that has a tier for itself."""
        if not self._url:
            folder = Path(self._open.enter_context(TemporaryDirectory()))
            self._url = self._open.enter_context(redis_server(folder)).url
        self._count += 1
        self._links.append(BlockingLink(self._url, f"contract{self._count}"))
        if len(self._links) > 8:
            self._links.popleft().close()
        # Time here runs apart from Redis's own.
        return SlotLeases(self._links[-1], "local-8b", 100.0, 1)

    def close(self) -> None:
        while self._links:
            self._links.popleft().close()
        self._open.close()
        self._url = ""


in_redis = SharedLocks()

LOCKS: dict[str, MakeLock] = {"in-process": in_process, "in-redis": in_redis}
"""A lock that keeps its slots elsewhere joins here."""


def answers_at_once(make: MakeLock) -> bool:
    """Whether a newcomer is told what becomes of it before anything else happens. A lock that asks elsewhere first
    may find that somebody has left in the same moment."""
    return make is in_process


each_lock = pytest.mark.parametrize("make", LOCKS.values(), ids=LOCKS.keys())


def ask(
    seconds: float = 99,
    *,
    priority: Priority = Priority.INTERACTIVE,
    tenant: str = "",
    tokens: int = 0,
    affinity: bytes = b"",
    wait: bool = True,
) -> Ask:
    """A request that has so many seconds from now."""
    return Ask(Deadline.after(VirtualClock(), seconds), priority, tenant, tokens, affinity, wait)


async def settled() -> None:
    """Let everybody run who can run now, those included whom that wakes up."""
    for _ in range(8):
        await asyncio.sleep(0)


async def queued(coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start it and let it come to where it waits."""
    task = asyncio.create_task(coro)
    await settled()
    return task


class Line:
    """Requests that ask one after the other; tells in which order they were served. Each keeps its slot."""

    def __init__(self, lock: SlotLock) -> None:
        self.lock = lock
        self.served: list[str] = []
        self.slots: dict[str, Slot] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def add(self, name: str, terms: Ask) -> None:
        self.tasks[name] = await queued(self._take(name, terms))

    async def free(self, name: str) -> None:
        """Give one slot back and let whoever is next have it."""
        self.slots[name].release()
        await settled()

    async def free_one_by_one(self) -> list[str]:
        """Give slots back in the order in which they were granted until all are back; the order of being served."""
        given_back = 0
        while given_back < len(self.served):
            await self.free(self.served[given_back])
            given_back += 1
        assert (self.lock.in_use, self.lock.waiting, self.lock.reserved_tokens) == (0, 0, 0)
        return self.served

    async def _take(self, name: str, terms: Ask) -> None:
        self.slots[name] = await self.lock.acquire(terms)
        self.served.append(name)
