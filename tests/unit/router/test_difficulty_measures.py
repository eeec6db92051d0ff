"""What the measures say on small cases worked out by hand."""

from __future__ import annotations

import pytest

from weighbridge.router.difficulty.measures import apgr, auc, calibration_error, kept, macro_f1


def test_auc_counts_ties_half() -> None:
    assert auc([1, 2, 3, 4], [False, False, True, True]) == 1.0
    assert auc([4, 3, 2, 1], [False, False, True, True]) == 0.0
    assert auc([1, 1, 1, 1], [False, True, False, True]) == 0.5


def test_calibration_error_is_the_gap_between_promise_and_outcome() -> None:
    assert calibration_error([0.2, 0.2, 0.2, 0.2, 0.2], [1, 0, 0, 0, 0]) == pytest.approx(0.0)
    assert calibration_error([0.95, 0.95], [0, 0]) == pytest.approx(0.95)


def test_apgr_is_half_by_lot_and_the_most_where_every_loss_is_known() -> None:
    weak, strong = [0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]
    assert apgr([1, 1, 1, 1], weak, strong) == pytest.approx(0.5)
    # Sent up: the two lost ones first. The gap is closed at half of the requests: 1/8 + 3/8 + 1/2 of the area.
    assert apgr([4, 3, 2, 1], weak, strong) == pytest.approx((0.25 + 0.75 + 1.0 + 1.0) / 4)
    assert apgr([1, 2, 3, 4], weak, strong) == pytest.approx((0.0 + 0.0 + 0.25 + 0.75) / 4)


def test_kept_serves_each_row_where_its_score_says() -> None:
    outcome = (0.0, 0.5, 1.0)
    figures = kept([0.44, 0.45, 0.55, 0.9], [outcome] * 4)
    assert figures["quality"] == pytest.approx((0.0 + 0.5 + 1.0 + 1.0) / 4)
    assert figures["local"] == pytest.approx(0.5)
    assert figures["by_the_8b"] == pytest.approx(0.25)
    assert figures["quality_by_lot"] == pytest.approx(0.25 * 0.0 + 0.25 * 0.5 + 0.5 * 1.0)


def test_macro_f1_counts_each_label_alike() -> None:
    reached, each = macro_f1([("a", "a"), ("a", "a"), ("a", "b"), ("b", "b")])
    assert each == {"a": pytest.approx(0.8), "b": pytest.approx(2 / 3)}
    assert reached == pytest.approx((0.8 + 2 / 3) / 2)
