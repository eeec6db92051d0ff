"""What every `SlotLock` must do when its queue is full: who is turned away, and who gives a place up to whom."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.slot_locks import Line, MakeLock, ask, each_lock, queued, settled
from tests.support.virtual_time import run_virtual
from weighbridge.pool.slot_lock import Ask, NoFreeSlot, Priority, QueueFull, SlotLock, WaitTooLong

CONTINUED, INTERACTIVE, BATCH = Priority


class Crowd(Line):
    """Requests by name, whose first letter is the tenant; `gone` are those that were told that the queue is full."""

    def __init__(self, lock: SlotLock) -> None:
        super().__init__(lock)
        self.gone: list[str] = []

    async def come(self, *names: str, priority: Priority = INTERACTIVE, tokens: int = 0) -> None:
        """Ask one after the other. Time stands still, so who is told anything is told at once."""
        for name in names:
            await self.add(name, ask(priority=priority, tenant=name[0], tokens=tokens))
        assert asyncio.get_running_loop().time() == 0

    async def _take(self, name: str, terms: Ask) -> None:
        try:
            await super()._take(name, terms)
        except QueueFull as full:
            assert (full.status, full.code, full.retry_after_s) == (429, "queue_full", 2)
            self.gone.append(name)


@each_lock
def test_a_tenant_with_less_waiting_comes_into_a_full_queue(make: MakeLock) -> None:
    async def main() -> None:
        crowd = Crowd(make(1, 4))
        await crowd.come("a1", "a2", "a3", "a4", "a5")
        await crowd.come("b1")
        assert (crowd.gone, crowd.lock.waiting) == (["a5"], 4), "its last to come is told at once"
        await crowd.come("c1")
        assert (crowd.gone, crowd.lock.waiting) == (["a5", "a4"], 4)
        assert await crowd.free_one_by_one() == ["a1", "a2", "a3", "b1", "c1"]
        assert crowd.gone == ["a5", "a4"]

    run_virtual(main())


@each_lock
def test_a_tenant_comes_in_until_it_has_as_much(make: MakeLock) -> None:
    async def main() -> None:
        crowd = Crowd(make(1, 5))
        await crowd.come("c1", "a1", "a2", "a3", "a4", "a5")
        await crowd.come("b1", "b2")
        assert crowd.gone == ["a5", "a4"]
        # Three and two: with a third it would have more than the other, which would push it out again, and so on.
        await crowd.come("b3", "a6", "b4", "a7")
        assert crowd.gone == ["a5", "a4", "b3", "a6", "b4", "a7"]
        assert await crowd.free_one_by_one() == ["c1", "a1", "a2", "a3", "b1", "b2"]

    run_virtual(main())


@each_lock
@pytest.mark.parametrize("waiting", [INTERACTIVE, BATCH])
@pytest.mark.parametrize("coming", [INTERACTIVE, BATCH])
def test_a_lone_tenant_pushes_nobody_out(make: MakeLock, waiting: Priority, coming: Priority) -> None:
    async def main() -> None:
        crowd = Crowd(make(1, 2))
        await crowd.come("a1", "a2", "a3", priority=waiting)
        await crowd.come("a4", priority=coming)
        assert crowd.gone == ["a4"]
        assert await crowd.free_one_by_one() == ["a1", "a2", "a3"]

    run_virtual(main())


@each_lock
def test_a_queue_without_places_lets_nobody_in(make: MakeLock) -> None:
    async def main() -> None:
        crowd = Crowd(make(1, 0))
        await crowd.come("a1", "b1", "c1")
        await crowd.come("a2", priority=CONTINUED)
        await crowd.come("b2")
        assert (crowd.gone, crowd.lock.waiting) == (["b1", "c1", "b2"], 1)
        await crowd.free_one_by_one()

    run_virtual(main())


@each_lock
def test_one_place_goes_to_whoever_holds_fewer_slots(make: MakeLock) -> None:
    async def main() -> None:
        crowd = Crowd(make(1, 1))
        await crowd.come("a1", "a2")
        await crowd.come("b1")
        assert crowd.gone == ["a2"]
        await crowd.come("a3", "c1")
        assert crowd.gone == ["a2", "a3", "c1"], "it is not pushed out in its turn"
        await crowd.free("a1")
        await crowd.come("b2", "a4")
        assert crowd.gone == ["a2", "a3", "c1", "b2"]
        assert await crowd.free_one_by_one() == ["a1", "b1", "a4"]

    run_virtual(main())


@each_lock
def test_among_equal_tenants_the_one_with_more_slots_gives_way(make: MakeLock) -> None:
    async def main() -> None:
        crowd = Crowd(make(3, 6))
        await crowd.come("a1", "a2", "b1")
        await crowd.come("a3", "a4", "b2", "b3", "c1", "c2")
        await crowd.come("d1")
        assert crowd.gone == ["a4"]
        assert len(await crowd.free_one_by_one()) == 9

    run_virtual(main())


@each_lock
def test_among_equal_tenants_with_equal_slots_the_last_to_come_gives_way(make: MakeLock) -> None:
    async def main() -> None:
        crowd = Crowd(make(3, 6))
        await crowd.come("a1", "b1", "c1")
        await crowd.come("a2", "b2", "b3", "c2", "c3", "a3")
        await crowd.come("d1", "e1", "f1")
        assert crowd.gone == ["a3", "c3", "b3"]
        assert len(await crowd.free_one_by_one()) == 9

    run_virtual(main())


# ---- urgency ----


@each_lock
def test_nobody_gives_way_to_one_that_is_less_urgent(make: MakeLock) -> None:
    async def main() -> None:
        crowd = Crowd(make(1, 5))
        await crowd.come("a1", "a2", "a3", "a4")
        await crowd.come("b1", "b2", priority=BATCH)
        await crowd.come("c1", priority=BATCH)
        # a has most, but nothing that a batch request may push out; b has, and more than c.
        assert crowd.gone == ["b2"]
        await crowd.come("d1", priority=BATCH)
        assert crowd.gone == ["b2", "d1"]
        assert await crowd.free_one_by_one() == ["a1", "a2", "a3", "a4", "b1", "c1"]

    run_virtual(main())


@each_lock
def test_the_least_urgent_ones_of_a_tenant_give_way_first(make: MakeLock) -> None:
    async def main() -> None:
        crowd = Crowd(make(1, 5))
        await crowd.come("a1", "a2")
        await crowd.come("a3", "a4", priority=BATCH)
        await crowd.come("a5", "a6")
        await crowd.come("b1", "c1", "d1")
        assert crowd.gone == ["a4", "a3", "a6"]
        assert await crowd.free_one_by_one() == ["a1", "a2", "a5", "b1", "c1", "d1"]

    run_virtual(main())


@each_lock
def test_requests_of_both_kinds_count_together(make: MakeLock) -> None:
    async def main() -> None:
        crowd = Crowd(make(1, 5))
        await crowd.come("c1", "a1", "b1", "b2")
        await crowd.come("a2", "a3", priority=BATCH)
        await crowd.come("d1")
        assert crowd.gone == ["a3"], "three of a, two of b"
        await crowd.come("a4")
        assert crowd.gone == ["a3", "a4"], "two of each"
        assert await crowd.free_one_by_one() == ["c1", "a1", "b1", "b2", "d1", "a2"]

    run_virtual(main())


@each_lock
def test_answers_that_broke_off_neither_leave_nor_count(make: MakeLock) -> None:
    async def main() -> None:
        crowd = Crowd(make(1, 6))
        await crowd.come("d1")
        await crowd.come("a1", "a2", "a3", priority=CONTINUED)
        await crowd.come("a4", "b1", "b2")
        await crowd.come("c1")
        assert (crowd.gone, crowd.lock.waiting) == (["b2"], 6)
        await crowd.come("a5", "a6", priority=CONTINUED)
        assert (crowd.gone, crowd.lock.waiting) == (["b2"], 8)
        await crowd.come("e1")
        assert crowd.gone == ["b2", "e1"]
        assert await crowd.free_one_by_one() == ["d1", "a1", "a2", "a3", "a5", "a6", "a4", "b1", "c1"]

    run_virtual(main())


# ---- who comes in for nothing, and who has gone already ----


@each_lock
def test_who_would_not_be_served_in_time_pushes_nobody_out(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 2, predict=True)
        for _ in range(20):
            slot = await lock.acquire(ask())
            await asyncio.sleep(10.0)
            slot.release()
        slot = await lock.acquire(ask(tenant="a"))
        waiting = [await queued(lock.acquire(ask(1000, tenant="a"))) for _ in range(2)]
        with pytest.raises(WaitTooLong):
            await lock.acquire(ask(2, tenant="b"))
        with pytest.raises(NoFreeSlot):
            await lock.acquire(ask(1000, tenant="b", wait=False))
        for task in waiting:
            assert not task.done()
            slot.release()
            slot = await task
        slot.release()

    run_virtual(main())


@each_lock
@pytest.mark.parametrize("cancelled_first", [True, False])
def test_cancelled_in_the_moment_of_being_pushed_out(make: MakeLock, cancelled_first: bool) -> None:
    async def main() -> None:
        crowd = Crowd(make(1, 2))
        await crowd.come("a1", "a2", "a3")
        newcomer = asyncio.create_task(crowd.lock.acquire(ask(tenant="b")))
        if cancelled_first:
            crowd.tasks["a3"].cancel()
        # Now the newcomer has asked, and the one that it pushed out has not woken up.
        await asyncio.sleep(0)
        crowd.tasks["a3"].cancel()
        await settled()
        assert crowd.tasks["a3"].cancelled() and crowd.gone == [] and crowd.lock.waiting == 2
        await crowd.free("a1")
        await crowd.free("a2")
        (await newcomer).release()
        assert (crowd.lock.in_use, crowd.lock.waiting) == (0, 0)

    run_virtual(main())
