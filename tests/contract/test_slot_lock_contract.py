"""What every `SlotLock` must do for who asks and waits: turn, deadline, cancelling, bounds, the guess at the wait.

Places and KV-cache tokens are in `test_slot_lock_places.py`, the full queue in `test_slot_lock_full.py`, any mix of
everything in `test_slot_lock_model.py`.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.slot_locks import Line, MakeLock, ask, each_lock, queued, settled
from tests.support.virtual_time import run_virtual
from weighbridge.pool.slot_lock import (
    NoFreeSlot,
    Priority,
    QueueClosed,
    QueueFull,
    QueueLockTimeout,
    SlotLock,
    WaitTooLong,
)

CONTINUED, INTERACTIVE, BATCH = Priority


@each_lock
def test_slots_are_granted_at_once_until_none_is_left(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(2, 5)
        assert lock.slots == 2
        slots = [await lock.acquire(ask(1)) for _ in range(2)]
        assert [slot.waited_ms for slot in slots] == [0.0, 0.0]
        assert (lock.in_use, lock.waiting) == (2, 0)
        with pytest.raises(QueueLockTimeout) as caught:
            await lock.acquire(ask(0.3))
        assert caught.value.waited_ms == pytest.approx(300)
        assert (caught.value.status, caught.value.code) == (429, "queue_lock_timeout")
        assert (lock.in_use, lock.waiting) == (2, 0)

    run_virtual(main())


@each_lock
def test_a_slot_that_comes_back_goes_to_the_one_who_waited_longest(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 5)
        order: list[tuple[str, float]] = []

        async def work(name: str) -> None:
            slot = await lock.acquire(ask(10))
            order.append((name, round(slot.waited_ms)))
            await asyncio.sleep(1)
            slot.release()

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(work(name))
                await asyncio.sleep(0.25)
        assert order == [("a", 0), ("b", 750), ("c", 1500)]
        assert (lock.in_use, lock.waiting) == (0, 0)

    run_virtual(main())


@each_lock
def test_nobody_jumps_the_queue_while_its_first_is_waking_up(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 5)
        slot = await lock.acquire(ask(9))
        first = asyncio.create_task(lock.acquire(ask(9)))
        await asyncio.sleep(0)
        slot.release()
        late = asyncio.create_task(lock.acquire(ask(9)))
        held = await first
        await asyncio.sleep(0)
        assert not late.done()
        held.release()
        (await late).release()
        assert lock.in_use == 0

    run_virtual(main())


@each_lock
def test_releasing_twice_gives_one_slot_back(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(2, 0)
        slot, other = await lock.acquire(ask(tokens=5)), await lock.acquire(ask(tokens=7))
        slot.release()
        slot.release()
        slot.resize(1000)
        assert (lock.in_use, lock.reserved_tokens) == (1, 7)
        other.release()
        assert (lock.in_use, lock.reserved_tokens) == (0, 0)

    run_virtual(main())


@each_lock
def test_one_too_many_is_turned_away_at_once(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 1)
        slot = await lock.acquire(ask(9))
        waiting = await queued(lock.acquire(ask(9)))
        with pytest.raises(QueueFull) as caught:
            await lock.acquire(ask(9))
        assert (caught.value.status, caught.value.code) == (429, "queue_full")
        assert asyncio.get_running_loop().time() == 0
        slot.release()
        (await waiting).release()

    run_virtual(main())


@each_lock
def test_a_passed_deadline_gets_no_slot_even_when_one_is_free(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 1)
        with pytest.raises(QueueLockTimeout):
            await lock.acquire(ask(0))
        assert lock.in_use == 0

    run_virtual(main())


@each_lock
def test_a_slot_that_comes_back_too_late_goes_to_the_next(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 5)
        slot = await lock.acquire(ask(9))
        loop = asyncio.get_running_loop()
        # Registered before the waiter's own timer, so it runs first in the same turn of the loop.
        loop.call_at(1.0, slot.release)
        late = asyncio.create_task(lock.acquire(ask(1)))
        next_one = asyncio.create_task(lock.acquire(ask(5)))
        with pytest.raises(QueueLockTimeout):
            await late
        (await next_one).release()
        assert (lock.in_use, loop.time()) == (0, 1.0)

    run_virtual(main())


@each_lock
@pytest.mark.parametrize("release_first", [True, False])
def test_cancelled_in_the_moment_of_the_grant(make: MakeLock, release_first: bool) -> None:
    async def main() -> None:
        lock = make(1, 5)
        slot = await lock.acquire(ask(9, tokens=3))
        victim = asyncio.create_task(lock.acquire(ask(9, tokens=4)))
        heir = await queued(lock.acquire(ask(9, tokens=5)))
        for step in (slot.release, victim.cancel) if release_first else (victim.cancel, slot.release):
            step()
        with pytest.raises(asyncio.CancelledError):
            await victim
        inherited = await heir
        assert (lock.in_use, lock.reserved_tokens) == (1, 5)
        inherited.release()
        assert (lock.in_use, lock.waiting, lock.reserved_tokens) == (0, 0, 0)

    run_virtual(main())


@each_lock
@pytest.mark.parametrize("leaves_by", ["cancel", "timeout"])
def test_who_leaves_the_queue_makes_room_at_once(make: MakeLock, leaves_by: str) -> None:
    async def main() -> None:
        lock = make(1, 1)
        slot = await lock.acquire(ask(9))
        leaver = await queued(lock.acquire(ask(1)))
        if leaves_by == "cancel":
            leaver.cancel()
        await asyncio.gather(leaver, return_exceptions=True)
        assert lock.waiting == 0
        follower = await queued(lock.acquire(ask(9)))
        slot.release()
        (await follower).release()

    run_virtual(main())


@each_lock
def test_closing_turns_away_who_waits_and_who_asks(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 5)
        slot = await lock.acquire(ask(tokens=5))
        waiting = [
            await queued(lock.acquire(ask(priority=priority))) for priority in (INTERACTIVE, BATCH, CONTINUED)
        ]
        cancelled = await queued(lock.acquire(ask()))
        cancelled.cancel()
        lock.close()
        for task in waiting:
            with pytest.raises(QueueClosed):
                await task
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        for priority in Priority:
            with pytest.raises(QueueClosed):
                await lock.acquire(ask(priority=priority))
        lock.open("late", 1)
        with pytest.raises(QueueClosed):
            await lock.acquire(ask())
        assert (lock.slots, lock.in_use, lock.waiting, lock.reserved_tokens) == (0, 1, 0, 5)
        slot.release()
        assert (lock.in_use, lock.reserved_tokens) == (0, 0)

    run_virtual(main())


# ---- who goes first ----


@each_lock
def test_a_lower_priority_number_goes_first_whenever_it_came(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(1, 9))
        await line.add("held", ask())
        for name, priority in (("b1", BATCH), ("i1", INTERACTIVE), ("b2", BATCH), ("c1", CONTINUED)):
            await line.add(name, ask(priority=priority))
        await line.add("i2", ask(priority=INTERACTIVE))
        await line.add("c2", ask(priority=CONTINUED))
        assert await line.free_one_by_one() == ["held", "c1", "c2", "i1", "i2", "b1", "b2"]

    run_virtual(main())


@each_lock
def test_the_tenant_with_the_fewest_slots_goes_first(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(3, 9))
        for name in ("a1", "a2", "a3", "a4", "a5", "b1", "c1", "b2"):
            await line.add(name, ask(tenant=name[0]))
        await line.free("a1")
        await line.free("a2")
        # a holds one as b and c do; its a4 has waited longest.
        await line.free("a3")
        assert line.served == ["a1", "a2", "a3", "b1", "c1", "a4"]
        await line.free("a4")
        # Now a holds none again and b one.
        assert line.served[6:] == ["a5"]
        await line.free("c1")
        assert line.served[7:] == ["b2"]

    run_virtual(main())


@each_lock
def test_among_equal_tenants_the_request_that_waited_longest_counts(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(1, 9))
        for name in ("c1", "a1", "b1", "a2"):
            await line.add(name, ask(tenant=name[0]))
        line.tasks["a1"].cancel()
        await settled()
        assert await line.free_one_by_one() == ["c1", "b1", "a2"]

    run_virtual(main())


@each_lock
def test_a_tenant_that_asks_for_more_does_not_get_more(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(4, 99))
        for n in range(40):
            await line.add(f"greedy {n}", ask(tenant="greedy"))
        for n in range(4):
            await line.add(f"modest {n}", ask(tenant="modest"))
        served = await line.free_one_by_one()
        assert max(served.index(f"modest {n}") for n in range(4)) < 12

    run_virtual(main())


@each_lock
def test_a_single_tenant_sees_first_come_first_served(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(2, 99))
        names = [f"{n}" for n in range(20)]
        for name in names:
            await line.add(name, ask(tenant="only"))
        assert await line.free_one_by_one() == names

    run_virtual(main())


@each_lock
def test_priority_goes_before_fairness(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(2, 9))
        await line.add("a1", ask(tenant="a"))
        await line.add("a2", ask(tenant="a"))
        await line.add("b batch", ask(tenant="b", priority=BATCH))
        await line.add("a3", ask(tenant="a"))
        assert await line.free_one_by_one() == ["a1", "a2", "a3", "b batch"]

    run_virtual(main())


# ---- who does not wait ----


@each_lock
def test_who_will_not_wait_takes_a_free_slot_or_none(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 9)
        slot = await lock.acquire(ask(wait=False))
        for priority in Priority:
            with pytest.raises(NoFreeSlot) as caught:
                await lock.acquire(ask(wait=False, priority=priority))
            assert (caught.value.status, caught.value.code) == (429, "queue_lock_timeout")
        assert (asyncio.get_running_loop().time(), lock.waiting) == (0.0, 0)
        slot.release()
        (await lock.acquire(ask(wait=False))).release()

    run_virtual(main())


async def warmed(lock: SlotLock, hold_s: float, times: int) -> None:
    """Teach it how long a slot is held."""
    for _ in range(times):
        slot = await lock.acquire(ask())
        await asyncio.sleep(hold_s)
        slot.release()


@each_lock
def test_who_will_not_be_served_in_time_is_told_at_once(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 99, predict=True)
        await warmed(lock, 10.0, 20)
        slot = await lock.acquire(ask())
        waiting = [await queued(lock.acquire(ask(1000))) for _ in range(5)]
        asked = asyncio.get_running_loop().time()
        with pytest.raises(WaitTooLong) as caught:
            await lock.acquire(ask(2))
        assert (asyncio.get_running_loop().time(), lock.waiting) == (asked, 5)
        assert (caught.value.status, caught.value.code) == (429, "queue_lock_timeout")
        assert caught.value.waited_ms == 0 and 2000 < caught.value.predicted_ms < 61_000
        continued = await queued(lock.acquire(ask(2, priority=CONTINUED)))
        assert lock.waiting == 6, "an answer that has begun is never turned away on a guess"
        for task in (continued, *waiting):
            slot.release()
            slot = await task
        slot.release()

    run_virtual(main())


@each_lock
def test_nothing_is_guessed_from_too_little(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 99, predict=True)
        await warmed(lock, 10.0, 1)
        slot = await lock.acquire(ask())
        for _ in range(9):
            await queued(lock.acquire(ask(1000)))
        with pytest.raises(QueueLockTimeout) as caught:
            await lock.acquire(ask(2))
        assert (type(caught.value), caught.value.waited_ms) == (QueueLockTimeout, pytest.approx(2000))
        lock.close()
        slot.release()
        await settled()

    run_virtual(main())


@each_lock
def test_a_queue_that_drains_in_time_turns_nobody_away(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(4, 99, predict=True)

        async def work() -> float:
            slot = await lock.acquire(ask(9))
            await asyncio.sleep(1.0)
            slot.release()
            return slot.waited_ms

        await asyncio.gather(*(work() for _ in range(20)))
        # The last of these waits eight seconds of its nine.
        waited = await asyncio.gather(*(work() for _ in range(36)))
        assert (len(waited), max(waited)) == (36, pytest.approx(8000))

    run_virtual(main())


@each_lock
def test_the_guess_knows_who_goes_first(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(2, 99, predict=True)
        await warmed(lock, 1.0, 20)
        line = Line(lock)
        for n in range(32):
            await line.add(f"{n}", ask(tenant="greedy"))
        with pytest.raises(WaitTooLong):
            await lock.acquire(ask(3, tenant="greedy"))
        with pytest.raises(WaitTooLong):
            await lock.acquire(ask(3, tenant="modest", priority=BATCH))
        # Behind those it would wait a quarter of a minute, but it does not stand behind them.
        await line.add("modest", ask(3, tenant="modest"))
        await line.free("0")
        assert line.served == ["0", "1", "modest"]
        assert len(await line.free_one_by_one()) == 33

    run_virtual(main())
