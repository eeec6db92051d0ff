"""The `SlotLock`s that keep one contract, and how its tests ask them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

import pytest

from tests.support.virtual_time import VirtualClock
from weighbridge.config.deadline import Deadline
from weighbridge.pool.queue_lock import QueueLock
from weighbridge.pool.slot_lock import Ask, Priority, Slot, SlotLock

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


LOCKS: dict[str, MakeLock] = {"in-process": in_process}
"""A lock that keeps its slots elsewhere joins here."""

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
