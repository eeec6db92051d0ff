"""What passes the gate."""

from __future__ import annotations

import pytest

from bench.lib import goodput_report as report
from bench.lib.pairs import RAW, Pair
from tests.unit.bench.halves import half, pair


@pytest.mark.parametrize(
    ("ratios", "passed", "goal"),
    [
        ([0.99] * 7, True, True),
        ([0.95] * 7, True, False),
        ([0.90] * 7, True, False),
        ([0.89] * 7, False, False),
        ([0.99, 0.99, 0.99, 0.99, 0.70, 0.70, 0.70], False, False),  # a good median, a bad lower bound
        ([0.99] * 6, None, False),
    ],
)
def test_the_lower_bound_decides(ratios: list[float], passed: bool | None, goal: bool) -> None:
    found = report.verdict(10, [pair(ratio + 1e-9) for ratio in ratios])
    assert (found.passed, found.goal_met) == (passed, goal)


def test_one_concurrency_below_the_gate_fails_the_run() -> None:
    good = report.verdict(10, [pair(1.0)] * 7)
    bad = report.verdict(50, [pair(0.5)] * 7)
    few = report.verdict(50, [pair(1.0)] * 3)
    assert report.exit_status([good], quick=False) == 0
    assert report.exit_status([good, bad], quick=False) == 1
    assert report.exit_status([bad, few], quick=True) == 1
    assert report.exit_status([good, few], quick=False) == 2
    assert report.exit_status([few], quick=True) == 0


def test_a_disturbed_pair_is_marked() -> None:
    assert "DOES NOT COUNT" in report.line(3, pair(1.0, foreign=0.5))
    assert "DOES NOT COUNT" not in report.line(3, pair(1.0))


def test_the_section_shows_rates_cpu_and_the_verdict() -> None:
    pairs = [pair(0.95)] * 7
    text = report.section(report.verdict(10, pairs), pairs, report.Bare(104.0, 1400.0, 150.0))
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")]
        for line in text.split("\n")[2:7]
    }
    assert rows["vllm serve"][2] == "100.0" and rows["vllm serve"][4] == "200"
    assert rows["weighbridge"][2] == "95.0" and rows["weighbridge"][4] == "300"
    assert rows[report.BARE][2] == "104.0" and rows[report.BARE][4] == "150"
    assert "0.950, 95 % interval 0.950 to 0.950" in text
    assert "weighbridge / vllm serve: 1.50" in text
    assert "passed; goal (at least 0.98) not met" in text
    assert "Worker kept busy, weighbridge / vllm serve: 1.000 (1.000 to 1.000)" in text


def test_an_engine_that_waits_for_its_server_shows_in_the_worker_too() -> None:
    slow_machine = Pair(10, RAW, half(100), half(50), 0.0, 0.0)
    slow_server = Pair(10, RAW, half(100), half(50, busy=0.45), 0.0, 0.0)
    assert (slow_machine.ratio, slow_machine.busy_ratio) == (0.5, 1.0)
    assert (slow_server.ratio, slow_server.busy_ratio) == (0.5, 0.5)
    assert Pair(10, RAW, half(100, busy=0), half(50), 0.0, 0.0).busy_ratio is None
