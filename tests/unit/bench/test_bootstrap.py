"""The interval of a median."""

from __future__ import annotations

import random
import statistics

import pytest

from bench.lib.bootstrap import interval


def test_the_same_values_give_the_same_interval() -> None:
    values = [0.97, 0.99, 1.01, 0.95, 1.0, 0.98, 0.96]
    assert len({interval(values, resamples=30) for _ in range(20)}) == 1
    assert interval(values).median == statistics.median(values)


def test_values_that_agree_leave_nothing_open() -> None:
    found = interval([0.98] * 7)
    assert (found.low, found.median, found.high) == (0.98, 0.98, 0.98)


def test_one_pair_gone_wrong_does_not_move_the_bounds_far() -> None:
    found = interval([0.99, 0.98, 1.0, 0.99, 0.98, 1.0, 0.40])
    assert found.low >= 0.40 and found.median == 0.99 and found.high == 1.0


def test_the_interval_holds_the_true_median_about_as_often_as_it_says() -> None:
    draw = random.Random(1)
    runs = 300
    held = 0
    for _ in range(runs):
        found = interval([draw.gauss(1.0, 0.05) for _ in range(9)], resamples=400)
        held += found.low <= 1.0 <= found.high
    # With so few values a percentile bootstrap of a median is a little wide.
    assert 0.92 <= held / runs <= 1.0


def test_wider_values_give_a_wider_interval() -> None:
    draw = random.Random(2)
    close = [draw.gauss(1.0, 0.01) for _ in range(9)]
    far = [1.0 + (value - 1.0) * 10 for value in close]
    narrow, wide = interval(close), interval(far)
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low) > 0


def test_no_values_are_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        interval([])
