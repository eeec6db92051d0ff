"""One score, fixed bounds: which band a request is in hangs on the two risks and the appetite alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.policies.loader import shipped
from weighbridge.policies.risk import Risk
from weighbridge.router.difficulty.assessment import NOT_ESTIMATED, Assessment
from weighbridge.router.difficulty.bands import banded

P = st.floats(0.0, 1.0)
APPETITE = st.floats(0.001, 1.0)


def just_under(value: float) -> float:
    return math.nextafter(value, 0.0)


@pytest.mark.parametrize(
    ("p_8b", "p_70b", "road"),
    [
        (0.0, 1.0, "local-8b"),
        (just_under(0.30), 1.0, "local-8b"),
        (0.30, 0.0, "local-70b"),
        (0.30, just_under(0.17), "local-70b"),
        (1.0, just_under(0.17), "local-70b"),
        (0.30, 0.17, "commercial"),
        (1.0, 1.0, "commercial"),
    ],
)
def test_the_road_changes_exactly_where_the_appetite_says(p_8b: float, p_70b: float, road: str) -> None:
    score = banded(p_8b, p_70b, Risk(0.30, 0.17))
    assert shipped("default").place("knowledge", score, "default").road == road


@pytest.mark.parametrize(
    ("p_8b", "p_70b", "score"),
    [
        (0.0, 0.9, 0.0),
        (0.15, 0.9, 0.225),
        (0.30, 0.0, 0.45),
        (0.65, 0.085, 0.50),
        (0.30, 0.17, 0.55),
        (1.0, 0.17, 0.7075),
        (0.30, 1.0, 0.8425),
        (1.0, 1.0, 1.0),
    ],
)
def test_the_map_goes_through_its_points(p_8b: float, p_70b: float, score: float) -> None:
    assert banded(p_8b, p_70b, Risk(0.30, 0.17)) == pytest.approx(score)


def test_the_row_of_code_begins_where_the_8b_is_lost_and_the_70b_fails_alone_in_29_of_100() -> None:
    assert banded(1.0, 0.290, Risk(0.30, 0.17)) < 0.75 < banded(1.0, 0.291, Risk(0.30, 0.17))


@given(P, P, APPETITE, APPETITE)
def test_the_bands_are_the_appetite(p_8b: float, p_70b: float, first: float, second: float) -> None:
    score = banded(p_8b, p_70b, Risk(first, second))
    assert 0.0 <= score <= 1.0
    assert (score < 0.45) == (p_8b < first)
    assert (score < 0.55) == (p_8b < first or p_70b < second)


def test_rounding_lifts_nobody_over_a_border() -> None:
    for step in range(1, 2_000):
        appetite = step / 2_000
        assert banded(just_under(appetite), 1.0, Risk(appetite, 0.1)) < 0.45
        assert banded(1.0, just_under(appetite), Risk(0.1, appetite)) < 0.55


@given(P, P, P, APPETITE, APPETITE)
def test_more_risk_is_never_a_lower_score(
    p: float, q: float, other: float, first: float, second: float
) -> None:
    low, high = sorted((p, q))
    risk = Risk(first, second)
    assert banded(low, other, risk) <= banded(high, other, risk)
    assert banded(other, low, risk) <= banded(other, high, risk)


def test_an_assessment_is_scored_under_any_appetite() -> None:
    found = Assessment(0.5, "math", "en", (), 0.4, 0.1)
    assert found.score_at(Risk(0.5, 0.2)) < 0.45
    assert 0.45 <= found.score_at(Risk(0.3, 0.2)) < 0.55
    assert found.score_at(Risk(0.3, 0.1)) >= 0.55


def test_a_weight_that_nobody_estimated_keeps_its_score() -> None:
    found = Assessment(0.5, "math", "en", ())
    assert found.p_8b_fails == found.p_70b_fails == NOT_ESTIMATED
    assert found.score_at(Risk(0.9, 0.9)) == 0.5
