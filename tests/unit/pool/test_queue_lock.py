"""The queue lock in this process, beyond its contract: what it tells of itself."""

from __future__ import annotations

import asyncio

from tests.contract.slot_locks import ask, queued
from tests.support.virtual_time import VirtualClock, run_virtual
from weighbridge.pool.queue_lock import QueueLock
from weighbridge.pool.slot_lock import Priority


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
