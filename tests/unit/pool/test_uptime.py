"""For how long workers are up, and that those who use them have no more of them than that."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.virtual_time import run_virtual
from tests.unit.pool.test_tier import lease, make, soon, up
from weighbridge.observability.records import Capacity
from weighbridge.pool.pool import MARK_S, Pool
from weighbridge.pool.tier import Tier
from weighbridge.pool.uptime import Uptime

BEGAN_NS = 1_700_000_000_000_000_000


class Marks:
    """The last mark of each period, and how many there were."""

    def __init__(self, *tiers: Tier) -> None:
        self.last: dict[tuple[str, str, int], Capacity] = {}
        self.count = 0
        for tier in tiers:
            tier.on_capacity = self

    def __call__(self, row: Capacity) -> None:
        key = (row.road, row.worker, row.from_ns)
        assert key not in self.last or self.last[key].to_ns <= row.to_ns
        self.last[key] = row
        self.count += 1

    def seconds(self) -> list[tuple[str, float, float]]:
        return [
            (row.worker, (row.from_ns - BEGAN_NS) / 1e9, (row.to_ns - BEGAN_NS) / 1e9)
            for row in self.last.values()
        ]


class SetClock:
    """Time that the test moves; the date is another matter."""

    def __init__(self) -> None:
        self.at = 0.0
        self.wall = BEGAN_NS

    def monotonic(self) -> float:
        return self.at

    def wall_ns(self) -> int:
        return self.wall


@pytest.mark.parametrize(
    ("held_s", "slots", "share"),
    [(3.0, 2, 1_500_000), (0.000001, 2, 0), (0.000003, 2, 2), (0.00001, 3, 3), (0.0, 1, 0)],
)
def test_a_share_is_the_time_held_by_the_slots(held_s: float, slots: int, share: int) -> None:
    clock = SetClock()
    uptime = Uptime("local-8b", "0", slots, clock, lambda _: None)
    since = uptime.lend()
    clock.at = held_s
    assert uptime.take_back(since) == share


def test_a_changed_date_makes_no_worker_time() -> None:
    clock, marks = SetClock(), Marks()
    uptime = Uptime("local-8b", "0", 2, clock, marks)
    clock.at, clock.wall = 5.0, BEGAN_NS - 3_600_000_000_000
    uptime.end()
    assert marks.seconds() == [("0", 0.0, 5.0)]


def test_a_period_ends_when_the_last_slot_of_a_dead_worker_is_back() -> None:
    async def main() -> None:
        engine = FakeEngine(script=Script(start_s=1))
        tier = make(engine)
        marks = Marks(tier)
        async with up(tier):
            assert marks.seconds() == [("0", 1.0, 1.0)]
            held = [await lease(tier) for _ in range(2)]
            await asyncio.sleep(2)
            engine.kill()
            await asyncio.sleep(0.5)
            assert not tier.ready
            tier.mark_capacity()
            held[0].release()
            await asyncio.sleep(1.5)
            held[1].release()
            assert marks.seconds() == [("0", 1.0, 5.0)]
            assert (held[0].worker_us, held[1].worker_us) == (1_250_000, 2_000_000)
            count = marks.count
            tier.mark_capacity()
            assert marks.count == count
            # Another engine in its place is another period.
            while not tier.ready:
                await asyncio.sleep(0.1)
            again = await lease(tier, soon(100))
            await asyncio.sleep(1)
            again.release()
            again.release()
            assert again.worker_us == 500_000
        assert [worker for worker, _, _ in marks.seconds()] == ["0", "0"]
        (_, _, _), (_, from_s, to_s) = marks.seconds()
        assert from_s > 5 and to_s - from_s >= 1

    run_virtual(main())


def test_periods_are_marked_every_few_seconds_and_at_the_end() -> None:
    async def main() -> None:
        tier = make(FakeEngine(), FakeEngine())
        marks = Marks()
        pool = Pool([tier], record=marks)
        await pool.start()
        assert marks.count == 2
        marking = asyncio.create_task(pool.mark_capacity())
        await asyncio.sleep(2 * MARK_S + 1)
        assert marks.count == 6
        marking.cancel()
        await pool.close(1.0)
        assert marks.seconds() == [("0", 0.0, 21.0), ("1", 0.0, 21.0)]
        assert {row.slots for row in marks.last.values()} == {2}

    run_virtual(main())


@pytest.mark.parametrize("seed", range(20))
def test_shares_add_up_to_no_more_than_the_capacity(seed: int) -> None:
    random = Random(seed)

    async def main() -> None:
        engines = [FakeEngine(), FakeEngine()]
        tier = make(*engines, slots=3, max_waiting=100)
        marks = Marks(tier)
        shares: Counter[str] = Counter()
        count = 0

        async def use() -> None:
            nonlocal count
            await asyncio.sleep(random.uniform(0, 5))
            held = await lease(tier, soon(1_000))
            try:
                await asyncio.sleep(random.uniform(0, 2))
            finally:
                held.release()
                shares[held.worker] += held.worker_us
                count += 1

        async with up(tier):
            users = [asyncio.create_task(use()) for _ in range(80)]
            await asyncio.sleep(random.uniform(1, 4))
            for user in random.sample(users, 10):
                user.cancel()
            engines[random.randrange(2)].kill()
            await asyncio.gather(*users, return_exceptions=True)
        capacity: Counter[str] = Counter()
        for row in marks.last.values():
            capacity[row.worker] += (row.to_ns - row.from_ns) // 1_000
        assert count >= 70
        for worker, share in shares.items():
            assert share <= capacity[worker] + count / 2
        # They waited for each other, so the workers were busy nearly all the time.
        assert sum(shares.values()) > 0.5 * sum(capacity.values())

    run_virtual(main())
