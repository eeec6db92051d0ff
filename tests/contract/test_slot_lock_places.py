"""What every `SlotLock` must do with its places, the workers, and their KV-cache tokens."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from tests.contract.slot_locks import PLACE, Line, MakeLock, ask, each_lock, queued, settled
from tests.support.virtual_time import run_virtual
from weighbridge.pool.slot_lock import NoFreeSlot, Priority, QueueClosed, QueueFull, QueueLockTimeout

CONTINUED, INTERACTIVE, BATCH = Priority
OTHER = "other"


@each_lock
def test_each_place_has_its_own_slots(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 9)
        lock.open(OTHER, 3)
        assert lock.slots == 4
        slots = [await lock.acquire(ask()) for _ in range(4)]
        assert sorted(slot.place for slot in slots) == sorted([PLACE, OTHER, OTHER, OTHER])
        waiting = await queued(lock.acquire(ask()))
        (only,) = [slot for slot in slots if slot.place == PLACE]
        only.release()
        assert (await waiting).place == PLACE

    run_virtual(main())


@each_lock
def test_a_place_needs_a_slot(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 9)
        with pytest.raises(ValueError, match="slot"):
            lock.open(OTHER, 0)
        assert lock.slots == 1

    run_virtual(main())


@each_lock
def test_a_new_place_serves_those_who_wait(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(1, 9))
        for name in "abcd":
            await line.add(name, ask())
        line.lock.open(OTHER, 2)
        await settled()
        assert line.served == ["a", "b", "c"]
        assert [line.slots[name].place for name in "bc"] == [OTHER, OTHER]
        await line.free_one_by_one()

    run_virtual(main())


@each_lock
def test_a_closed_place_grants_nothing_and_its_slots_come_back(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(2, 9)
        lock.open(OTHER, 1)
        slots = [await lock.acquire(ask(tokens=10)) for _ in range(3)]
        waiting = await queued(lock.acquire(ask()))
        lock.close_place(PLACE)
        lock.close_place("never there")
        assert (lock.slots, lock.in_use, lock.waiting, lock.reserved_tokens) == (1, 3, 1, 30)
        for slot in slots:
            if slot.place == PLACE:
                slot.resize(20)
                slot.release()
        await settled()
        assert (waiting.done(), lock.in_use, lock.reserved_tokens) == (False, 1, 10)
        (still,) = [slot for slot in slots if slot.place == OTHER]
        still.release()
        assert (await waiting).place == OTHER

    run_virtual(main())


@each_lock
def test_with_the_last_place_those_who_wait_are_turned_away(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 9)
        lock.open(OTHER, 1)
        slots = [await lock.acquire(ask()) for _ in range(2)]
        waiting = [
            await queued(lock.acquire(ask(priority=priority)))
            for priority in (INTERACTIVE, BATCH, INTERACTIVE)
        ]
        lock.close_place(PLACE)
        await settled()
        assert not any(task.done() for task in waiting)
        waiting[2].cancel()
        lock.close_place(OTHER)
        for task in waiting[:2]:
            with pytest.raises(QueueClosed):
                await task
        with pytest.raises(asyncio.CancelledError):
            await waiting[2]
        for wait in (True, False):
            with pytest.raises(QueueClosed):
                await lock.acquire(ask(wait=wait))
        assert (lock.slots, lock.in_use, lock.waiting) == (0, 2, 0)
        for slot in slots:
            slot.release()
        assert lock.in_use == 0

    run_virtual(main())


@each_lock
def test_an_answer_that_has_begun_waits_for_a_place(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 1)
        held = await lock.acquire(ask())
        before = await queued(lock.acquire(ask(50, priority=CONTINUED)))
        lock.close_place(PLACE)
        after = [await queued(lock.acquire(ask(50, priority=CONTINUED))) for _ in range(3)]
        assert lock.waiting == 4, "no bound turns it away"
        short = await queued(lock.acquire(ask(5, priority=CONTINUED)))
        with pytest.raises(NoFreeSlot):
            await lock.acquire(ask(priority=CONTINUED, wait=False))
        with pytest.raises(QueueLockTimeout):
            await short
        lock.open(PLACE, 2)
        granted = [await before, await after[0]]
        assert [slot.waited_ms for slot in granted] == [5000, 5000]
        with pytest.raises(QueueFull):
            await lock.acquire(ask())
        held.release()
        await settled()
        assert not after[1].done(), "a slot of the old place is not one of the new place"
        granted[0].release()
        granted[1].release()
        for task in after[1:]:
            (await task).release()
        assert (lock.in_use, lock.waiting) == (0, 0)

    run_virtual(main())


@each_lock
@pytest.mark.parametrize("closed_first", [True, False])
def test_slots_of_a_place_that_was_built_anew_come_back_to_the_old_one(
    make: MakeLock, closed_first: bool
) -> None:
    async def main() -> None:
        lock = make(2, 9, tokens=100)
        old = [await lock.acquire(ask(tokens=50)) for _ in range(2)]
        if closed_first:
            lock.close_place(PLACE)
        lock.open(PLACE, 2, 100)
        new = [await lock.acquire(ask(tokens=50)) for _ in range(2)]
        assert (lock.slots, lock.in_use, lock.reserved_tokens) == (2, 4, 200)
        waiting = [await queued(lock.acquire(ask(tokens=50))) for _ in range(2)]
        for slot in old:
            slot.resize(10)
            slot.release()
        await settled()
        assert [task.done() for task in waiting] == [False, False]
        assert (lock.in_use, lock.reserved_tokens) == (2, 100)
        for slot, task in zip(new, waiting, strict=True):
            slot.release()
            (await task).release()
        assert (lock.in_use, lock.reserved_tokens) == (0, 0)

    run_virtual(main())


@each_lock
def test_an_avoided_place_gets_nothing_while_there_is_another(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(2, 9)
        lock.open(OTHER, 1)
        lock.avoid(PLACE, True)
        lock.avoid("never there", True)
        first = await lock.acquire(ask())
        assert first.place == OTHER
        waiting = await queued(lock.acquire(ask()))
        assert not waiting.done()
        lock.avoid(PLACE, False)
        assert (await waiting).place == PLACE
        lock.avoid(PLACE, True)
        more = await queued(lock.acquire(ask()))
        lock.avoid(OTHER, True)
        assert (await more).place == PLACE, "where all are avoided none is"

    run_virtual(main())


@each_lock
def test_an_avoided_place_that_is_left_alone_serves_those_who_wait(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 9)
        lock.open(OTHER, 1)
        lock.avoid(PLACE, True)
        await lock.acquire(ask())
        waiting = await queued(lock.acquire(ask()))
        lock.close_place(OTHER)
        assert (await waiting).place == PLACE

    run_virtual(main())


# ---- KV-cache tokens ----


@each_lock
def test_tokens_are_a_bound_of_their_own(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(9, 9, tokens=100))
        await line.add("a", ask(tokens=60))
        await line.add("b", ask(tokens=40))
        await line.add("c", ask(tokens=1))
        assert (line.served, line.lock.reserved_tokens) == (["a", "b"], 100)
        await line.free("b")
        assert (line.served, line.lock.reserved_tokens) == (["a", "b", "c"], 61)
        await line.free_one_by_one()

    run_virtual(main())


@each_lock
def test_each_place_has_its_own_tokens(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(9, 9, tokens=100)
        lock.open(OTHER, 9, 50)
        big, small = await lock.acquire(ask(tokens=100)), await lock.acquire(ask(tokens=50))
        assert {big.place, small.place} == {PLACE, OTHER}
        waiting = await queued(lock.acquire(ask(tokens=10)))
        small.resize(30)
        assert (await waiting).place == small.place

    run_virtual(main())


@each_lock
def test_fewer_tokens_let_others_in_and_more_keep_them_out(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(9, 9, tokens=100))
        await line.add("a", ask(tokens=90))
        await line.add("b", ask(tokens=30))
        line.slots["a"].resize(70)
        await settled()
        assert (line.served, line.lock.reserved_tokens) == (["a", "b"], 100)
        line.slots["a"].resize(120)
        await line.add("c", ask(tokens=0))
        await line.free("b")
        assert (line.served, line.lock.reserved_tokens) == (["a", "b"], 120)
        line.slots["a"].resize(100)
        await settled()
        assert line.served == ["a", "b", "c"]
        await line.free_one_by_one()

    run_virtual(main())


@each_lock
def test_a_request_larger_than_all_is_let_in_when_nothing_else_is_there(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(9, 9, tokens=100))
        await line.add("huge", ask(tokens=500))
        await line.add("small", ask(tokens=1))
        await line.add("huge too", ask(tokens=101))
        assert (line.served, line.lock.reserved_tokens) == (["huge"], 500)
        await line.free("huge")
        assert line.served == ["huge", "small"]
        await line.free("small")
        assert line.served == ["huge", "small", "huge too"]
        await line.free_one_by_one()

    run_virtual(main())


@each_lock
def test_who_is_first_and_does_not_fit_keeps_the_others_waiting(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(9, 9, tokens=100))
        await line.add("a", ask(tokens=50))
        await line.add("large", ask(tokens=60))
        await line.add("small", ask(tokens=10))
        await line.add("small batch", ask(tokens=10, priority=BATCH))
        with pytest.raises(NoFreeSlot):
            await line.lock.acquire(ask(tokens=10, wait=False))
        assert line.served == ["a"]
        await line.add("small and continued", ask(tokens=10, priority=CONTINUED))
        assert line.served == ["a", "small and continued"], "it goes before the first"
        await line.free("a")
        assert line.served[2:] == ["large", "small", "small batch"]
        await line.free_one_by_one()

    run_virtual(main())


@each_lock
def test_a_newcomer_whose_tenant_holds_less_goes_before_the_first(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(9, 9, tokens=100))
        await line.add("a1", ask(tenant="a", tokens=50))
        await line.add("a2", ask(tenant="a", tokens=60))
        await line.add("b1", ask(tenant="b", tokens=10, wait=False))
        assert line.served == ["a1", "b1"]
        with pytest.raises(NoFreeSlot):
            await line.lock.acquire(ask(tenant="b", tokens=10, wait=False))
        await line.free_one_by_one()

    run_virtual(main())


@each_lock
def test_a_newcomer_that_is_served_may_make_another_one_the_first(make: MakeLock) -> None:
    async def main() -> None:
        line = Line(make(9, 9, tokens=100))
        await line.add("c1", ask(tenant="c", tokens=50))
        await line.add("large", ask(tenant="a", tokens=60))
        await line.add("small", ask(tenant="b", tokens=10))
        assert line.served == ["c1"]
        # Now `a` holds a slot and `b` none.
        await line.add("continued", ask(tenant="a", tokens=10, priority=CONTINUED))
        assert sorted(line.served) == ["c1", "continued", "small"]
        await line.free_one_by_one()

    run_virtual(main())


@each_lock
@pytest.mark.parametrize("leaves_by", ["cancel", "timeout"])
def test_those_behind_a_large_one_that_leaves_have_their_turn(make: MakeLock, leaves_by: str) -> None:
    async def main() -> None:
        line = Line(make(9, 9, tokens=100))
        await line.add("a", ask(tokens=50))
        await line.add("large", ask(2, tokens=60))
        await line.add("small", ask(tokens=10))
        if leaves_by == "cancel":
            line.tasks["large"].cancel()
        (outcome,) = await asyncio.gather(line.tasks["large"], return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError | QueueLockTimeout)
        await settled()
        assert (line.served, line.lock.waiting) == (["a", "small"], 0)
        await line.free_one_by_one()

    run_virtual(main())


@each_lock
def test_a_large_one_that_was_cancelled_does_not_stand_before_a_newcomer(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(9, 9, tokens=100)
        await lock.acquire(ask(tokens=50))
        large = await queued(lock.acquire(ask(tokens=60)))
        large.cancel()
        # Asked in the same turn of the loop, before the cancelled one has woken up.
        await lock.acquire(ask(tokens=50, wait=False))
        assert (lock.in_use, lock.reserved_tokens) == (2, 100)

    run_virtual(main())


@each_lock
def test_a_shunned_place_is_taken_only_where_no_other_has_room(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 5)
        lock.open(OTHER, 1)
        shy = replace(ask(9), shunned=frozenset({PLACE}))
        first = await lock.acquire(shy)
        assert first.place == OTHER
        # Nobody waits, and keeps others waiting, while a slot is free.
        second = await lock.acquire(shy)
        assert second.place == PLACE
        first.release()
        second.release()

    run_virtual(main())
