"""A policy places requests: a pure function with stable words."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.roads import COMMERCIAL, LOCAL_8B, LOCAL_70B
from weighbridge.policies.compiled import Placement, Policy, compile_policy
from weighbridge.policies.loader import parse_policy, shipped
from weighbridge.policies.tasks import TASKS, Task

DEFAULT = shipped("default")
scores = st.floats(0.0, 1.0)


def policy(text: str) -> Policy:
    return compile_policy(
        parse_policy(f"version: 1\nname: p\negress: masked\n{text}".encode(), "p.yaml").document
    )


@pytest.mark.parametrize(
    ("score", "road", "reason"),
    [
        (0.0, LOCAL_8B, "score 0.000 < 0.450"),
        (0.412, LOCAL_8B, "score 0.412 < 0.450"),
        (0.44999, LOCAL_8B, "score 0.44999 < 0.450"),
        (math.nextafter(0.45, 0), LOCAL_8B, "score 0.44999999999999996 < 0.450"),
        (0.45, LOCAL_70B, "score 0.450 < 0.550"),
        (math.nextafter(0.55, 0), LOCAL_70B, "score 0.5499999999999999 < 0.550"),
        (0.55, COMMERCIAL, "score 0.550 >= 0.550"),
        (1.0, COMMERCIAL, "score 1.000 >= 0.550"),
    ],
)
def test_general_bounds_are_strict(score: float, road: str, reason: str) -> None:
    assert DEFAULT.place("chat", score, "t") == Placement(road, score, (reason,), "score")


@pytest.mark.parametrize(
    ("task", "score", "road", "clamped", "reason"),
    [
        ("classification", 0.9, LOCAL_8B, 0.30, "task classification: local-8b, at most 0.30"),
        ("classification", 0.1, LOCAL_8B, 0.1, "task classification: local-8b, at most 0.30"),
        ("extraction", 0.45, LOCAL_8B, 0.45, "task extraction: local-8b, at most 0.45"),
        ("extraction", 0.46, LOCAL_8B, 0.45, "task extraction: local-8b, at most 0.45"),
        ("rag", 0.55, LOCAL_70B, math.nextafter(0.55, 0), "task rag: local-70b, below 0.55"),
        ("summarization", 0.1, LOCAL_70B, 0.1, "task summarization: local-70b, below 0.55"),
        ("decision", 0.1, COMMERCIAL, 0.55, "task decision: commercial, at least 0.55"),
        ("code", 0.8, COMMERCIAL, 0.8, "task code: commercial, at least 0.75"),
        ("code", 0.0, COMMERCIAL, 0.75, "task code: commercial, at least 0.75"),
    ],
)
def test_seed_rows(task: Task, score: float, road: str, clamped: float, reason: str) -> None:
    assert DEFAULT.place(task, score, "t") == Placement(road, clamped, (reason,), "task")


def test_a_row_without_a_band_fixes_the_road_alone() -> None:
    made = policy("tasks: {chat: {road: local-70b}}\n").place("chat", 0.9, "t")
    assert made == Placement(LOCAL_70B, 0.9, ("task chat: local-70b",), "task")


def test_a_band_by_score_moves_the_score_and_says_so() -> None:
    made = policy(
        "tasks:\n  chat: {road: by-score, band: {below: 0.55}}\n  math: {road: by-score, band: {at_least: 0.6}}\n"
    )
    assert made.place("chat", 0.9, "t") == Placement(
        LOCAL_70B,
        math.nextafter(0.55, 0),
        ("task chat: by score, below 0.55", "clamped score < 0.550"),
        "task",
    )
    assert made.place("math", 0.1, "t") == Placement(
        COMMERCIAL, 0.6, ("task math: by score, at least 0.60", "clamped score >= 0.550"), "task"
    )
    assert made.place("chat", 0.2, "t") == Placement(LOCAL_8B, 0.2, ("score 0.200 < 0.450",), "score")


def test_a_band_to_the_8b() -> None:
    made = policy("tasks: {chat: {road: by-score, band: {at_most: 0.305}}}\n").place("chat", 0.9, "t")
    assert made.road == LOCAL_8B
    assert made.reasons == ("task chat: by score, at most 0.305", "clamped score < 0.450")


def test_a_task_without_a_row_goes_by_score() -> None:
    assert policy("").place("code", 0.1, "t").road == LOCAL_8B


def test_bounds_that_meet_leave_no_70b() -> None:
    made = policy("bounds: {local_8b: 0.5, local_70b: 0.5}\n")
    assert made.place("chat", math.nextafter(0.5, 0), "t").road == LOCAL_8B
    assert made.place("chat", 0.5, "t").road == COMMERCIAL


@pytest.mark.parametrize("score", [math.nan, -0.001, 1.001, math.inf, -math.inf])
@pytest.mark.parametrize("task", ["chat", "classification"])
def test_what_is_no_score_is_refused(score: float, task: Task) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        DEFAULT.place(task, score, "t")


@given(st.sampled_from(TASKS), scores, st.text(max_size=5))
def test_placing_is_pure_and_stays_in_range(task: Task, score: float, tenant: str) -> None:
    made = DEFAULT.place(task, score, tenant)
    assert made == DEFAULT.place(task, score, tenant)
    assert 0.0 <= made.clamped_score <= 1.0
    assert all(reason.isprintable() and len(reason) < 80 for reason in made.reasons)


@given(scores, scores, scores)
def test_reasons_never_state_a_false_comparison(score: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    made = policy(f"bounds: {{local_8b: {low!r}, local_70b: {high!r}}}\n").place("chat", score, "t")
    (reason,) = made.reasons
    _, left, sign, right = reason.split()
    assert (float(left) < float(right)) is (sign == "<")
    assert float(right) in (low, high)


@given(scores, scores)
def test_a_higher_score_never_gets_a_cheaper_road(one: float, other: float) -> None:
    order = [LOCAL_8B, LOCAL_70B, COMMERCIAL]
    low, high = sorted((one, other))
    assert order.index(DEFAULT.place("chat", low, "t").road) <= order.index(
        DEFAULT.place("chat", high, "t").road
    )


TENANTS = (
    "tenants:\n  closed: {egress: never}\n  quick: {queue_lock_timeout_ms: 500}\n"
    "  both: {egress: never, queue_lock_timeout_ms: 1}\n"
)


def test_tenants_are_stricter() -> None:
    made = policy(TENANTS)
    assert [made.egress_for(name) for name in ("closed", "quick", "both", "other")] == [
        "never",
        "masked",
        "never",
        "masked",
    ]
    assert [made.queue_lock_timeout_ms_for(name) for name in ("closed", "quick", "both", "other")] == [
        2000,
        500,
        1,
        2000,
    ]


def test_the_order_of_overflow_is_the_files() -> None:
    assert policy("overflow_order: [commercial, lower-local, higher-local]\n").overflow_order == (
        "commercial",
        "lower-local",
        "higher-local",
    )
    assert policy("overflow_order: []\n").overflow_order == ()
    assert shipped("on-prem-only").overflow_order == ("higher-local", "lower-local")


def test_draining_has_a_time_and_closing_none() -> None:
    assert policy("on_disconnect: {commercial: drain}\n").drain_s == 10.0
    assert policy("on_disconnect: {commercial: drain, drain_s: 2.5}\n").drain_s == 2.5
    assert policy("on_disconnect: {drain_s: 2.5}\n").drain_s == 0.0


def test_a_tenant_may_go_last() -> None:
    made = policy("tenants:\n  nightly: {priority: batch}\n  other: {queue_lock_timeout_ms: 5}\n")
    assert [made.is_batch(name) for name in ("nightly", "other", "unknown")] == [True, False, False]
    assert made.queue_lock_timeout_ms_for("nightly") == 2000


def test_no_tenant_opens_what_the_policy_closes() -> None:
    made = shipped("on-prem-only")
    assert made.egress == made.egress_for("any") == "never"


def test_version_follows_what_is_in_force_and_nothing_else() -> None:
    plain = policy("")
    name, digest = plain.version.split("@")
    assert name == "p"
    assert len(digest) == 12
    assert int(digest, 16) >= 0
    same = policy(
        "# a comment\nbounds: {local_70b: 0.55, local_8b: 0.45}\nqueue_lock_timeout_ms: 2000\n"
        "overflow_order: [higher-local, commercial]\non_disconnect: {drain_s: 10}\n"
    )
    assert same.version == plain.version
    for text in (
        "bounds: {local_8b: 0.44}\n",
        "queue_lock_timeout_ms: 1999\n",
        "explicit_local: overflow\n",
        "tasks: {chat: {road: local-8b}}\n",
        "tenants: {a: {egress: never}}\n",
        "tenants: {a: {priority: batch}}\n",
        "overflow_order: [commercial, higher-local]\n",
        "overflow_order: []\n",
        "on_disconnect: {commercial: drain}\n",
        "on_disconnect: {drain_s: 11}\n",
    ):
        assert policy(text).version != plain.version
    two = "tenants:\n  {}: {{egress: never}}\n  {}: {{egress: never}}\n"
    assert policy(two.format("a", "b")).version == policy(two.format("b", "a")).version


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT.local_8b = 0.1  # type: ignore[misc]
    DEFAULT.content()["tasks"].clear()
    assert DEFAULT.content()["tasks"]
    assert DEFAULT.place("code", 0.1, "t").road == COMMERCIAL
