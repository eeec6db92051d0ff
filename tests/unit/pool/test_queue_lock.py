"""The queue lock in this process, beyond its contract: what it tells of itself, and when it says that it changed."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.slot_locks import PLACE, ask, queued
from tests.contract.test_slot_lock_model import SlotLockMachine
from tests.support.virtual_time import VirtualClock, run_virtual
from weighbridge.pool.queue_lock import QueueLock
from weighbridge.pool.slot_lock import NoFreeSlot, Priority, SlotLock

Seen = tuple[int, int, int, int, int]


class Told:
    """What a gauge shows that is set whenever the lock says that something changed."""

    def __init__(self) -> None:
        self.lock: QueueLock | None = None
        self.shown: Seen = (0, 0, 0, 0, 0)

    def make(
        self, slots: int, max_waiting: int, *, tokens: int | None = None, predict: bool = False
    ) -> SlotLock:
        self.lock = QueueLock(max_waiting, VirtualClock(), predict=predict, on_change=self.look)
        self.lock.open(PLACE, slots, tokens)
        return self.lock

    def look(self) -> None:
        self.shown = self.now()

    def now(self) -> Seen:
        assert self.lock is not None
        lock = self.lock
        return (lock.slots, lock.in_use, lock.waiting, lock.reserved_tokens, lock.budget_tokens)


def test_what_is_shown_is_never_out_of_date() -> None:
    class Machine(SlotLockMachine):
        def __init__(self) -> None:
            self.told = Told()
            super().__init__(self.told.make)

        def _compare(self) -> None:
            super()._compare()
            assert self.told.shown == self.told.now()

    run_state_machine_as_test(Machine, settings=settings(max_examples=30, deadline=None))


def test_a_newcomer_that_clears_the_queue_says_so() -> None:
    async def main() -> None:
        told = Told()
        lock = told.make(9, 9, tokens=100)
        await lock.acquire(ask(tokens=50))
        shown: list[Seen] = []

        def newcomer() -> None:
            with pytest.raises(NoFreeSlot):
                lock.acquire(ask(tokens=60, wait=False)).send(None)
            shown.append(told.shown)

        # Registered before the timer of the large one, so it runs first in the same turn of the loop.
        asyncio.get_running_loop().call_at(1.0, newcomer)
        large = await queued(lock.acquire(ask(1, tokens=60)))
        small = await queued(lock.acquire(ask(9, tokens=10)))
        await asyncio.gather(large, return_exceptions=True)
        assert small.done() and shown == [told.now()] == [(9, 2, 0, 60, 100)]

    run_virtual(main())


def test_it_knows_its_places() -> None:
    async def main() -> None:
        lock = QueueLock(9, VirtualClock())
        lock.open("a", 2, 100)
        lock.open("b", 3)
        for _ in range(4):
            await lock.acquire(ask(tokens=1))
        assert (lock.in_use_at("a"), lock.in_use_at("b"), lock.in_use_at("c")) == (2, 2, 0)
        assert (lock.is_open("a"), lock.is_open("c"), lock.budget_tokens) == (True, False, 100)
        lock.close_place("a")
        assert (lock.in_use_at("a"), lock.is_open("a"), lock.budget_tokens, lock.in_use) == (0, False, 0, 4)

    run_virtual(main())


def test_requests_with_the_same_beginning_share_a_place() -> None:
    async def main() -> None:
        lock = QueueLock(9, VirtualClock())
        for name in "abcd":
            lock.open(name, 64)
        by_prompt = {
            prompt: {(await lock.acquire(ask(affinity=prompt))).place for _ in range(2)}
            for prompt in (b"one", b"two", b"three", b"four", b"five")
        }
        assert all(len(places) == 1 for places in by_prompt.values())
        assert len(set.union(*by_prompt.values())) > 1

    run_virtual(main())


def test_only_slots_that_come_back_to_open_places_shorten_the_wait() -> None:
    async def main() -> None:
        lock = QueueLock(9, VirtualClock())
        lock.open("a", 1)
        for _ in range(20):
            slot = await lock.acquire(ask())
            await asyncio.sleep(4.0)
            slot.release()
        lock.open("b", 9)
        slots = [await lock.acquire(ask()) for _ in range(10)]
        lock.close_place("b")
        # Its wait is that for the one slot of `a`, not a tenth of it.
        refused = await asyncio.gather(lock.acquire(ask(2)), return_exceptions=True)
        assert [type(error).__name__ for error in refused] == ["WaitTooLong"]
        for slot in slots:
            slot.release()

    run_virtual(main())


def test_without_prediction_nobody_is_turned_away_on_a_guess() -> None:
    async def main() -> None:
        lock = QueueLock(9, VirtualClock(), predict=False)
        lock.open("a", 1)
        for _ in range(20):
            slot = await lock.acquire(ask())
            await asyncio.sleep(10.0)
            slot.release()
        slot = await lock.acquire(ask())
        waiting = await queued(lock.acquire(ask(0.5, priority=Priority.BATCH)))
        assert lock.waiting == 1
        slot.release()
        (await waiting).release()

    run_virtual(main())
