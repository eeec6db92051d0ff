"""What a `SlotLock` promises, checked over whole runs of requests that come, wait, work and leave in their own tasks.

Unlike the model's, its steps are not settled one by one: several things happen in one turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.contract.slot_locks import MakeLock, answers_at_once, ask, each_lock
from tests.support.virtual_time import run_virtual
from weighbridge.pool.slot_lock import QueueFull, QueueLockTimeout, Slot


@dataclass
class Visit:
    """One request of a generated run. Times are whole ticks, so that ties are common."""

    arrives: int
    patience: int
    holds: int
    cancelled_after: int | None
    yields_before: int = 0
    tenant: str = "a"
    outcome: str = ""
    granted_at: float = -1.0
    ended_at: float = -1.0
    slot: Slot | None = field(default=None, repr=False)

    def served_or_gone_by(self, now: float) -> bool:
        """Whether it has its slot, has run out of patience, was turned away or was cancelled by `now`."""
        if self.outcome == "served" and self.granted_at <= now:
            return True
        if self.outcome == "full" and self.ended_at <= now:
            return True
        cancelled = self.cancelled_after is not None and now >= self.arrives + self.cancelled_after
        return cancelled or now >= self.arrives + self.patience


def visits_of(tenants: str) -> st.SearchStrategy[list[Visit]]:
    visit = st.builds(
        Visit,
        arrives=st.integers(0, 12),
        patience=st.integers(0, 8),
        holds=st.integers(0, 5),
        cancelled_after=st.none() | st.integers(0, 10),
        yields_before=st.integers(0, 3),
        tenant=st.sampled_from(tenants),
    )
    return st.lists(visit, max_size=24)


@each_lock
@settings(max_examples=300, deadline=None)
@given(visits=visits_of("a") | visits_of("aaabc"), slots=st.integers(1, 3), max_waiting=st.integers(0, 6))
@example(visits=[Visit(0, 8, 4, None), Visit(0, 8, 2, 4), Visit(1, 8, 1, None)], slots=1, max_waiting=6)
@example(visits=[Visit(0, 8, 4, None), Visit(0, 4, 2, None), Visit(1, 8, 1, None)], slots=1, max_waiting=6)
@example(
    visits=[*(Visit(0, 8, 2, None) for _ in range(4)), Visit(1, 8, 2, None, tenant="b")],
    slots=1,
    max_waiting=3,
)
def test_any_run_keeps_the_promises(
    make: MakeLock, visits: list[Visit], slots: int, max_waiting: int
) -> None:
    asked: list[Visit] = []
    """In order of asking."""
    came_to_full: Counter[float] = Counter()
    """How many found the queue full, by the moment."""
    lone = len({visit.tenant for visit in visits}) == 1
    holding: list[Visit] = []

    async def main() -> None:
        lock = make(slots, max_waiting)
        loop = asyncio.get_running_loop()

        async def work(visit: Visit) -> None:
            await asyncio.sleep(visit.arrives)
            for _ in range(visit.yields_before):
                await asyncio.sleep(0)
            start = loop.time()
            # A lock that has to ask elsewhere has the newcomers of this moment waiting yet.
            found_full = lock.in_use + lock.waiting >= slots + max_waiting and visit.patience > 0
            came_to_full[start] += found_full
            asked.append(visit)
            try:
                visit.slot = await lock.acquire(ask(visit.patience, tenant=visit.tenant))
            except QueueFull:
                visit.outcome, visit.ended_at = "full", loop.time()
                assert not lone or (found_full and visit.ended_at == start)
                return
            except QueueLockTimeout:
                visit.outcome = "timeout"
                assert loop.time() == start + visit.patience
                return
            except asyncio.CancelledError:
                visit.outcome = "cancelled"
                raise
            visit.outcome, visit.granted_at = "served", loop.time()
            assert not (lone and found_full and answers_at_once(make))
            assert visit.granted_at < start + visit.patience
            holding.append(visit)
            assert len(holding) <= slots and lock.in_use <= slots
            try:
                await asyncio.sleep(visit.holds)
            finally:
                holding.remove(visit)
                visit.ended_at = loop.time()
                visit.slot.release()

        async def cancel_later(visit: Visit, task: asyncio.Task[None]) -> None:
            if visit.cancelled_after is not None:
                await asyncio.sleep(visit.arrives + visit.cancelled_after)
                task.cancel()

        async def watch() -> None:
            await asyncio.sleep(0.25)
            for _ in range(80):
                assert lock.in_use <= slots
                assert lock.waiting <= max_waiting
                assert not (lock.waiting and lock.in_use < slots), "a slot lies idle while somebody waits"
                await asyncio.sleep(0.5)

        tasks = [asyncio.create_task(work(visit)) for visit in visits]
        cancels = [asyncio.create_task(cancel_later(a, t)) for a, t in zip(visits, tasks, strict=True)]
        watcher = asyncio.create_task(watch())
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*cancels)
        await watcher
        for result in results:
            assert result is None or isinstance(result, asyncio.CancelledError), result
        assert (lock.in_use, lock.waiting) == (0, 0), "a slot was lost"

        slot = await lock.acquire(ask(1))
        slot.release()

    run_virtual(main())
    assert all(visit.outcome or visit.cancelled_after is not None for visit in visits), "a request was lost"
    # Each of them, or one in its stead, is told at once. One that was leaving anyway needs no telling.
    told = Counter(visit.ended_at for visit in visits if visit.outcome == "full")
    assert told <= came_to_full
    if answers_at_once(make) and not any(visit.cancelled_after is not None for visit in visits):
        assert told == came_to_full
    for n, later in enumerate(asked):
        if later.outcome == "served":
            for earlier in (visit for visit in asked[:n] if visit.tenant == later.tenant):
                assert earlier.served_or_gone_by(later.granted_at), "served out of turn"
