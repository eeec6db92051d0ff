"""The predicted wait: right on the whole, and in doubt it lets people wait."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from weighbridge.pool.drain_rate import DrainRate


def taught(*holds_s: float) -> DrainRate:
    rate = DrainRate()
    for held_s in holds_s:
        rate.ended(held_s)
    return rate


def test_nothing_is_said_from_too_little() -> None:
    assert taught(*[1.0] * 3).wait_s(5, 1) is None
    assert taught(*[1.0] * 4).wait_s(5, 1) is not None
    assert taught(*[1.0] * 50).wait_s(5, 0) is None, "nothing is held, so nothing comes back"


def test_it_grows_with_the_queue_and_falls_with_the_slots() -> None:
    rate = taught(*[2.0] * 10)
    one = rate.wait_s(0, 1)
    assert one is not None and 1.0 < one < 2.0, "a low guess"
    assert rate.wait_s(9, 1) == pytest.approx(10 * one)
    assert rate.wait_s(9, 5) == pytest.approx(2 * one)


def test_early_holds_count_the_same_and_later_ones_fade() -> None:
    even = taught(1.0, 2.0, 3.0, 4.0).wait_s(0, 1)
    assert even == pytest.approx(taught(4.0, 3.0, 2.0, 1.0).wait_s(0, 1))
    slower = taught(*[1.0] * 200, *[5.0] * 100).wait_s(0, 1)
    assert slower == pytest.approx(taught(5.0, 5.0, 5.0, 5.0).wait_s(0, 1), rel=0.05)
    once = taught(*[1.0] * 200, 21.0).wait_s(0, 1)
    assert once == pytest.approx(taught(*[1.0] * 4).wait_s(0, 1), rel=0.7), "one long hold is one of many"


# ---- how often it is wrong ----

Hold = Callable[[random.Random, float], float]

HOLDS: dict[str, Hold] = {
    "constant": lambda rng, now: 1.0,
    "exponential": lambda rng, now: rng.expovariate(1.0),
    "short and long": lambda rng, now: 5.0 if rng.random() < 0.2 else 0.2,
    "slows down": lambda rng, now: rng.uniform(0.7, 1.3) * (1.0 if now < 60 else 4.0),
}


@dataclass
class Tally:
    """What was told to those who had to wait, by whether they would have been served in time."""

    served_and_refused: int = 0
    served: int = 0
    hopeless_and_refused: int = 0
    hopeless: int = 0

    def add(self, other: Tally) -> None:
        self.served_and_refused += other.served_and_refused
        self.served += other.served
        self.hopeless_and_refused += other.hopeless_and_refused
        self.hopeless += other.hopeless

    @property
    def wrongly_refused(self) -> float:
        return self.served_and_refused / self.served

    @property
    def rightly_refused(self) -> float:
        return self.hopeless_and_refused / self.hopeless


def simulate(hold: Hold, slots: int, per_second: float, patience_s: float, seed: int) -> Tally:
    """A tier that is asked for more than it can do, for two minutes of its own time."""
    rng = random.Random(seed)
    rate, tally = DrainRate(), Tally()
    ends: list[tuple[float, float]] = []
    """When each slot in use comes back, and when it was granted."""
    queue: deque[tuple[float, float]] = deque()
    """Deadline and hold of each that waits."""
    now = 0.0
    while now < 120:
        now += rng.expovariate(per_second)
        while ends and ends[0][0] <= now:
            end, granted = heapq.heappop(ends)
            rate.ended(end - granted)
            while queue and len(ends) < slots:
                deadline, held = queue.popleft()
                if deadline > end:
                    heapq.heappush(ends, (end + held, end))
        while queue and queue[0][0] <= now:
            queue.popleft()
        deadline, held = now + patience_s * rng.uniform(0.5, 1.5), hold(rng, now)
        if len(ends) < slots:
            heapq.heappush(ends, (now + held, now))
            continue
        predicted = rate.wait_s(len(queue), len(ends))
        refused = predicted is not None and predicted > deadline - now
        if turn_comes_at(ends, queue) < deadline:
            tally.served += 1
            tally.served_and_refused += refused
        else:
            tally.hopeless += 1
            tally.hopeless_and_refused += refused
        if not refused:
            queue.append((deadline, held))
    return tally


def turn_comes_at(ends: list[tuple[float, float]], queue: deque[tuple[float, float]]) -> float:
    """When one who joins the queue now will be served, which nobody can know: how long each slot will be held."""
    free = [end for end, _ in ends]
    heapq.heapify(free)
    for deadline, held in queue:
        if deadline > free[0]:
            heapq.heapreplace(free, free[0] + held)
    return free[0]


def test_few_are_turned_away_wrongly_and_most_of_the_hopeless_are() -> None:
    every = Tally()
    for name, hold in HOLDS.items():
        of_kind = Tally()
        for slots in (1, 4, 16):
            for patience_s in (0.5, 2.0, 8.0):
                for load in (1.3, 2.0):
                    of_kind.add(simulate(hold, slots, load * slots, patience_s, seed=slots))
        assert of_kind.served > 1000 and of_kind.hopeless > 1000
        assert of_kind.wrongly_refused < 0.1, name
        assert of_kind.rightly_refused > 0.5, name
        every.add(of_kind)
    assert every.wrongly_refused < 0.06
    assert every.rightly_refused > 0.55
