"""What every `SlotLock` must do; a lock that keeps its slots elsewhere joins `LOCKS`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.virtual_time import VirtualClock, run_virtual
from weighbridge.config.deadline import Deadline
from weighbridge.pool.queue_lock import (
    QueueClosed,
    QueueFull,
    QueueLock,
    QueueLockTimeout,
    Slot,
    SlotLock,
)

MakeLock = Callable[[int, int], SlotLock]

LOCKS: list[MakeLock] = [lambda slots, max_waiting: QueueLock(slots, max_waiting, VirtualClock())]

each_lock = pytest.mark.parametrize("make", LOCKS, ids=["in-process"])


def in_seconds(seconds: float) -> Deadline:
    return Deadline.after(VirtualClock(), seconds)


@each_lock
def test_slots_are_granted_at_once_until_none_is_left(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(2, 5)
        leases = [await lock.acquire(in_seconds(1)) for _ in range(2)]
        assert [lease.waited_ms for lease in leases] == [0.0, 0.0]
        assert (lock.in_use, lock.waiting) == (2, 0)
        with pytest.raises(QueueLockTimeout) as caught:
            await lock.acquire(in_seconds(0.3))
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
            lease = await lock.acquire(in_seconds(10))
            order.append((name, round(lease.waited_ms)))
            await asyncio.sleep(1)
            lease.release()

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
        lease = await lock.acquire(in_seconds(9))
        first = asyncio.create_task(lock.acquire(in_seconds(9)))
        await asyncio.sleep(0)
        lease.release()
        late = asyncio.create_task(lock.acquire(in_seconds(9)))
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
        lease, other = await lock.acquire(in_seconds(1)), await lock.acquire(in_seconds(1))
        lease.release()
        lease.release()
        assert lock.in_use == 1
        other.release()
        assert lock.in_use == 0

    run_virtual(main())


@each_lock
def test_one_too_many_is_turned_away_at_once(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 1)
        lease = await lock.acquire(in_seconds(9))
        waiting = asyncio.create_task(lock.acquire(in_seconds(9)))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as caught:
            await lock.acquire(in_seconds(9))
        assert (caught.value.status, caught.value.code) == (429, "queue_full")
        assert asyncio.get_running_loop().time() == 0
        lease.release()
        (await waiting).release()

    run_virtual(main())


@each_lock
def test_a_passed_deadline_gets_no_slot_even_when_one_is_free(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 1)
        with pytest.raises(QueueLockTimeout):
            await lock.acquire(in_seconds(0))
        assert lock.in_use == 0

    run_virtual(main())


@each_lock
def test_a_slot_that_comes_back_too_late_goes_to_the_next(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 5)
        lease = await lock.acquire(in_seconds(9))
        loop = asyncio.get_running_loop()
        # Registered before the waiter's own timer, so it runs first in the same turn of the loop.
        loop.call_at(1.0, lease.release)
        late = asyncio.create_task(lock.acquire(in_seconds(1)))
        next_one = asyncio.create_task(lock.acquire(in_seconds(5)))
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
        lease = await lock.acquire(in_seconds(9))
        victim = asyncio.create_task(lock.acquire(in_seconds(9)))
        heir = asyncio.create_task(lock.acquire(in_seconds(9)))
        await asyncio.sleep(0)
        for step in (lease.release, victim.cancel) if release_first else (victim.cancel, lease.release):
            step()
        with pytest.raises(asyncio.CancelledError):
            await victim
        (await heir).release()
        assert (lock.in_use, lock.waiting) == (0, 0)

    run_virtual(main())


@each_lock
@pytest.mark.parametrize("leaves_by", ["cancel", "timeout"])
def test_who_leaves_the_queue_makes_room_at_once(make: MakeLock, leaves_by: str) -> None:
    async def main() -> None:
        lock = make(1, 1)
        lease = await lock.acquire(in_seconds(9))
        leaver = asyncio.create_task(lock.acquire(in_seconds(1)))
        await asyncio.sleep(0)
        if leaves_by == "cancel":
            leaver.cancel()
        await asyncio.gather(leaver, return_exceptions=True)
        assert lock.waiting == 0
        follower = asyncio.create_task(lock.acquire(in_seconds(9)))
        await asyncio.sleep(0)
        lease.release()
        (await follower).release()

    run_virtual(main())


@each_lock
def test_closing_turns_away_who_waits_and_who_asks(make: MakeLock) -> None:
    async def main() -> None:
        lock = make(1, 5)
        lease = await lock.acquire(in_seconds(9))
        waiting = [asyncio.create_task(lock.acquire(in_seconds(9))) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[1].cancel()
        lock.close()
        with pytest.raises(QueueClosed):
            await waiting[0]
        with pytest.raises(asyncio.CancelledError):
            await waiting[1]
        with pytest.raises(QueueClosed):
            await lock.acquire(in_seconds(9))
        lease.release()
        assert (lock.in_use, lock.waiting) == (0, 0)

    run_virtual(main())


@dataclass
class Ask:
    """One request of a generated run. Times are whole ticks, so that ties are common."""

    arrives: int
    patience: int
    holds: int
    cancelled_after: int | None
    yields_before: int = 0
    outcome: str = ""
    granted_at: float = -1.0
    ended_at: float = -1.0
    lease: Slot | None = field(default=None, repr=False)

    def served_or_gone_by(self, now: float) -> bool:
        """Whether it has its slot, has run out of patience or was cancelled by `now`."""
        if self.outcome == "served" and self.granted_at <= now:
            return True
        cancelled = self.cancelled_after is not None and now >= self.arrives + self.cancelled_after
        return cancelled or now >= self.arrives + self.patience


ASKS = st.lists(
    st.builds(
        Ask,
        arrives=st.integers(0, 12),
        patience=st.integers(0, 8),
        holds=st.integers(0, 5),
        cancelled_after=st.none() | st.integers(0, 10),
        yields_before=st.integers(0, 3),
    ),
    max_size=24,
)


@each_lock
@settings(max_examples=400, deadline=None)
@given(asks=ASKS, slots=st.integers(1, 3), max_waiting=st.integers(0, 6))
@example(asks=[Ask(0, 8, 4, None), Ask(0, 8, 2, 4), Ask(1, 8, 1, None)], slots=1, max_waiting=6)
@example(asks=[Ask(0, 8, 4, None), Ask(0, 4, 2, None), Ask(1, 8, 1, None)], slots=1, max_waiting=6)
def test_any_mix_of_requests_keeps_the_promises(
    make: MakeLock, asks: list[Ask], slots: int, max_waiting: int
) -> None:
    asked: list[Ask] = []
    """Everybody who was let in, in order of asking."""
    holding: list[Ask] = []

    async def main() -> None:
        lock = make(slots, max_waiting)
        loop = asyncio.get_running_loop()

        async def work(ask: Ask) -> None:
            await asyncio.sleep(ask.arrives)
            for _ in range(ask.yields_before):
                await asyncio.sleep(0)
            start = loop.time()
            had_to_wait = lock.in_use >= slots
            if had_to_wait and lock.waiting >= max_waiting:
                expected = "full"
            else:
                expected = "served"
                asked.append(ask)
            try:
                ask.lease = await lock.acquire(in_seconds(ask.patience))
            except QueueFull:
                assert expected == "full" and ask.patience > 0
                ask.outcome = "full"
                return
            except QueueLockTimeout:
                ask.outcome = "timeout"
                assert loop.time() == start + ask.patience
                return
            except asyncio.CancelledError:
                ask.outcome = "cancelled"
                raise
            ask.outcome, ask.granted_at = "served", loop.time()
            assert ask.granted_at < start + ask.patience
            holding.append(ask)
            assert len(holding) <= slots and lock.in_use <= slots
            try:
                await asyncio.sleep(ask.holds)
            finally:
                holding.remove(ask)
                ask.ended_at = loop.time()
                ask.lease.release()

        async def cancel_later(ask: Ask, task: asyncio.Task[None]) -> None:
            if ask.cancelled_after is not None:
                await asyncio.sleep(ask.arrives + ask.cancelled_after)
                task.cancel()

        async def watch() -> None:
            for _ in range(80):
                assert lock.in_use <= slots
                assert lock.waiting <= max_waiting
                assert not (lock.waiting and lock.in_use < slots), "a slot lies idle while somebody waits"
                await asyncio.sleep(0.5)

        tasks = [asyncio.create_task(work(ask)) for ask in asks]
        cancels = [asyncio.create_task(cancel_later(a, t)) for a, t in zip(asks, tasks, strict=True)]
        watcher = asyncio.create_task(watch())
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*cancels)
        await watcher
        for result in results:
            assert result is None or isinstance(result, asyncio.CancelledError), result
        assert (lock.in_use, lock.waiting) == (0, 0), "a slot was lost"

        lease = await lock.acquire(in_seconds(1))
        lease.release()

    run_virtual(main())
    assert all(ask.outcome or ask.cancelled_after is not None for ask in asks), "a request was lost"
    for n, later in enumerate(asked):
        if later.outcome == "served":
            for earlier in asked[:n]:
                assert earlier.served_or_gone_by(later.granted_at), "served out of turn"
