"""The decision is a pure function: its rules, and that it never depends on anything else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.errors import ApiError
from weighbridge.config.roads import COMMERCIAL, LOCAL_8B, LOCAL_70B, LOCAL_ROADS, Road
from weighbridge.policies.loader import shipped
from weighbridge.router.decision import Facts, decide
from weighbridge.router.difficulty.score import Assessment

MASKED = shipped("default")
NEVER = shipped("on-prem-only")
BOTH = Facts("default", LOCAL_ROADS, True)
CLOSED = Facts("default", LOCAL_ROADS, False)


def weight(score: float, task: str = "unknown") -> Assessment:
    return Assessment(score=score, task=task, language="en", features=())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("score", "road"),
    [
        (0.0, LOCAL_8B),
        (0.4499999, LOCAL_8B),
        (0.45, LOCAL_70B),
        (0.5499999, LOCAL_70B),
        (0.55, COMMERCIAL),
        (1.0, COMMERCIAL),
    ],
)
def test_general_bounds_are_strict(score: float, road: Road) -> None:
    assert decide("auto", weight(score), MASKED, BOTH).road == road


@pytest.mark.parametrize("score", [0.0, 0.3, 0.45, 0.55, 0.75, 1.0])
@pytest.mark.parametrize(
    ("task", "road", "low", "high"),
    [
        ("classification", LOCAL_8B, 0.0, 0.30),
        ("extraction", LOCAL_8B, 0.0, 0.45),
        ("summarization", LOCAL_70B, 0.0, 0.55),
        ("rag", LOCAL_70B, 0.0, 0.55),
        ("decision", COMMERCIAL, 0.55, 1.0),
        ("code", COMMERCIAL, 0.75, 1.0),
    ],
)
def test_seed_rows_clamp_the_road_and_are_named(
    task: str, road: Road, low: float, high: float, score: float
) -> None:
    made = decide("auto", weight(score, task), MASKED, BOTH)
    assert made.road == road
    assert made.score == score, "the score before clamps is what the record keeps"
    assert low <= made.clamped_score <= high
    assert any(task in reason for reason in made.reasons)


@pytest.mark.parametrize("task", ["chat", "knowledge", "reasoning", "math", "translation", "unknown"])
def test_other_tasks_follow_the_general_bounds(task: str) -> None:
    assert decide("auto", weight(0.2, task), MASKED, BOTH).road == LOCAL_8B
    assert decide("auto", weight(0.5, task), MASKED, BOTH).road == LOCAL_70B
    assert decide("auto", weight(0.9, task), MASKED, BOTH).road == COMMERCIAL


def test_without_an_endpoint_the_best_local_tier_answers_and_says_so() -> None:
    made = decide("auto", weight(0.9, "code"), MASKED, CLOSED)
    assert made.road == LOCAL_70B and not made.may_leave
    assert any("no commercial endpoint" in reason for reason in made.reasons)
    assert COMMERCIAL not in made.alternates


def test_under_never_nothing_can_leave() -> None:
    made = decide("auto", weight(0.9, "code"), NEVER, BOTH)
    assert made.road == LOCAL_70B and not made.may_leave
    assert COMMERCIAL not in (made.road, *made.alternates)


@pytest.mark.parametrize(
    ("policy", "facts", "code"),
    [(MASKED, CLOSED, "commercial_not_configured"), (NEVER, BOTH, "egress_refused")],
)
def test_explicit_commercial_is_403_when_closed(policy: object, facts: Facts, code: str) -> None:
    with pytest.raises(ApiError) as refused:
        decide("commercial", weight(0.1), policy, facts)  # type: ignore[arg-type]
    assert (refused.value.status, refused.value.code) == (403, code)


def test_explicit_local_stays_on_its_road() -> None:
    made = decide(LOCAL_8B, weight(0.9, "code"), MASKED, BOTH)
    assert (made.road, made.alternates) == (LOCAL_8B, ())


def test_explicit_tier_that_is_not_here_is_404() -> None:
    with pytest.raises(ApiError) as refused:
        decide(LOCAL_70B, weight(0.1), MASKED, Facts("default", (LOCAL_8B,), True))
    assert (refused.value.status, refused.value.code) == (404, "model_not_found")


@given(
    model=st.sampled_from(["auto", *LOCAL_ROADS]),
    score=st.floats(0, 1),
    task=st.sampled_from(["classification", "summarization", "code", "chat", "unknown"]),
    local=st.sampled_from([LOCAL_ROADS, (LOCAL_8B,), (LOCAL_70B,)]),
    configured=st.booleans(),
    policy=st.sampled_from([MASKED, NEVER]),
)
def test_same_inputs_same_decision_and_a_closed_border_is_never_crossed(
    model: str, score: float, task: str, local: tuple[Road, ...], configured: bool, policy: object
) -> None:
    facts = Facts("t", local, configured)

    def once() -> bytes:
        try:
            return msgspec.json.encode(decide(model, weight(score, task), policy, facts))  # type: ignore[arg-type]
        except ApiError as refused:
            return str(refused.code).encode()

    first = once()
    assert first == once()
    if policy is NEVER or not configured:
        assert b'"commercial"' not in first
