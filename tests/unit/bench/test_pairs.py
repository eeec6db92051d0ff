"""The order of the halves, and which pairs count."""

from __future__ import annotations

import pytest

from bench.lib.pairs import FOREIGN_CORES, OURS, RAW, Pair, collect, order
from tests.unit.bench.halves import half, pair


def test_each_server_goes_first_every_other_time() -> None:
    assert [order(number) for number in range(4)] == [(RAW, OURS), (OURS, RAW), (RAW, OURS), (OURS, RAW)]


def test_the_order_is_balanced_for_every_concurrency() -> None:
    firsts: dict[int, list[str]] = {10: [], 50: []}

    def measure(turn: int, concurrency: int, names: tuple[str, str]) -> Pair:
        firsts[concurrency].append(names[0])
        return pair(1.0, concurrency=concurrency)

    assert len(list(collect((10, 50), 8, 2, measure))) == 16
    assert all(seen.count(RAW) == seen.count(OURS) == 4 for seen in firsts.values())
    assert firsts[10][0] != firsts[50][0]


def test_a_pair_that_does_not_count_is_repeated_in_the_same_order_with_other_prompts() -> None:
    asked: list[tuple[int, tuple[str, str]]] = []

    def measure(turn: int, concurrency: int, names: tuple[str, str]) -> Pair:
        asked.append((turn, names))
        return pair(1.0, foreign=1.0 if turn == 1 else 0.0)

    pairs = list(collect((10,), 3, 2, measure))
    assert [one.counts for one in pairs] == [True, False, True, True]
    assert asked[1][1] == asked[2][1]
    assert len({turn for turn, _ in asked}) == 4


def test_a_machine_that_stays_busy_ends_the_run() -> None:
    pairs = list(collect((10,), 3, 2, lambda *_: pair(1.0, foreign=1.0)))
    assert len(pairs) == 5 and not any(one.counts for one in pairs)


@pytest.mark.parametrize("disturbed", ["raw", "ours"])
def test_either_half_can_spoil_a_pair(disturbed: str) -> None:
    halves = {
        name: half(100, foreign=FOREIGN_CORES + 0.01 if name == disturbed else 0) for name in ("raw", "ours")
    }
    assert not Pair(10, RAW, **halves, load_before=0, load_after=0).counts


def test_ratios_are_the_gateway_over_the_raw_server() -> None:
    one = pair(0.9)
    assert one.ratio == pytest.approx(0.9)
    assert one.cpu_ratio == pytest.approx(1.5)
