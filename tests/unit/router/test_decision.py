"""The decision is a pure function: its rules, and that it never depends on anything else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.errors import ApiError
from weighbridge.config.roads import COMMERCIAL, LOCAL_8B, LOCAL_70B, LOCAL_ROADS, Road
from weighbridge.policies.compiled import Policy, compile_policy
from weighbridge.policies.loader import shipped
from weighbridge.policies.schema import PolicyDocument
from weighbridge.router.decision import Facts, decide, why_not
from weighbridge.router.difficulty.score import Assessment

MASKED = shipped("default")
NEVER = shipped("on-prem-only")
BOTH = Facts("default", LOCAL_ROADS, True)
CLOSED = Facts("default", LOCAL_ROADS, False)


def weight(score: float, task: str = "unknown") -> Assessment:
    return Assessment(score=score, task=task, language="en", moved=())  # type: ignore[arg-type]


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
    ("rules", "facts", "code"),
    [(MASKED, CLOSED, "commercial_not_configured"), (NEVER, BOTH, "egress_refused")],
)
def test_explicit_commercial_is_403_when_closed(rules: object, facts: Facts, code: str) -> None:
    with pytest.raises(ApiError) as refused:
        decide("commercial", weight(0.1), rules, facts)  # type: ignore[arg-type]
    assert (refused.value.status, refused.value.code) == (403, code)


def test_explicit_local_stays_on_its_road() -> None:
    made = decide(LOCAL_8B, weight(0.9, "code"), MASKED, BOTH)
    assert (made.road, made.alternates) == (LOCAL_8B, ())


def policy(**changes: object) -> Policy:
    return compile_policy(PolicyDocument.model_validate(MASKED.content() | changes))


@pytest.mark.parametrize(
    ("order", "from_8b", "from_70b"),
    [
        (["higher-local", "commercial"], (LOCAL_70B, COMMERCIAL), (COMMERCIAL,)),
        (["commercial", "higher-local"], (COMMERCIAL, LOCAL_70B), (COMMERCIAL,)),
        (["higher-local", "lower-local"], (LOCAL_70B,), (LOCAL_8B,)),
        ([], (), ()),
    ],
)
def test_the_policys_overflow_order_becomes_roads(
    order: list[str], from_8b: tuple[Road, ...], from_70b: tuple[Road, ...]
) -> None:
    rules = policy(overflow_order=order)
    assert decide("auto", weight(0.1), rules, BOTH).overflow == from_8b
    assert decide("auto", weight(0.5), rules, BOTH).overflow == from_70b
    closed = tuple(road for road in from_8b if road != COMMERCIAL)
    assert decide("auto", weight(0.1), rules, CLOSED).overflow == closed
    alone = Facts("default", (LOCAL_8B,), True)
    assert LOCAL_70B not in decide("auto", weight(0.1), rules, alone).overflow


def test_the_shipped_orders() -> None:
    assert decide("auto", weight(0.1), MASKED, BOTH).overflow == (LOCAL_70B, COMMERCIAL)
    assert decide("auto", weight(0.1), NEVER, BOTH).overflow == (LOCAL_70B,)
    assert decide("auto", weight(0.5), NEVER, BOTH).overflow == (LOCAL_8B,)


def test_an_explicit_local_road_overflows_only_where_the_policy_says_so() -> None:
    assert decide(LOCAL_8B, weight(0.1), MASKED, BOTH).overflow == ()
    made = decide(LOCAL_8B, weight(0.1), policy(explicit_local="overflow"), BOTH)
    assert (made.overflow, made.alternates) == ((LOCAL_70B, COMMERCIAL), (COMMERCIAL,))


@pytest.mark.parametrize(("wish", "wait"), [(None, 2000), (5000, 2000), (300, 300), (0, 0)])
def test_a_caller_can_only_shorten_the_wait(wish: int | None, wait: int) -> None:
    facts = Facts("default", LOCAL_ROADS, True, max_queue_ms=wish)
    assert decide("auto", weight(0.1), MASKED, facts).queue_lock_timeout_ms == wait


@pytest.mark.parametrize("tenants", [{}, {"night": {"priority": "batch"}}])
@pytest.mark.parametrize("tenant", ["default", "night"])
@pytest.mark.parametrize("asked", [False, True])
def test_a_caller_or_its_tenants_rule_makes_it_batch(
    tenants: dict[str, object], tenant: str, asked: bool
) -> None:
    made = decide("auto", weight(0.1), policy(tenants=tenants), Facts(tenant, LOCAL_ROADS, True, batch=asked))
    assert made.batch is (asked or tenant in tenants)


def test_an_adapter_is_an_explicit_choice_of_its_tier() -> None:
    facts = Facts("default", LOCAL_ROADS, True, adapters={"legal-ko": LOCAL_70B})
    made = decide("legal-ko", weight(0.1), MASKED, facts)
    assert (made.road, made.adapter, made.explicit) == (LOCAL_70B, "legal-ko", True)
    assert made.reasons == ("explicit adapter legal-ko on local-70b",)
    assert decide(LOCAL_70B, weight(0.1), MASKED, facts).adapter is None
    assert decide("auto", weight(0.5), MASKED, facts).adapter is None
    with pytest.raises(ApiError) as refused:
        decide("unknown", weight(0.1), MASKED, facts)
    assert refused.value.code == "model_not_found"


def test_an_adapter_does_not_overflow_to_a_tier_that_lacks_it() -> None:
    facts = Facts("default", LOCAL_ROADS, True, adapters={"legal-ko": LOCAL_8B})
    made = decide("legal-ko", weight(0.1), policy(explicit_local="overflow"), facts)
    assert made.overflow == (COMMERCIAL,)


@pytest.mark.parametrize(
    ("alias", "of", "explicit"),
    [
        ("gpt-4o", "auto", False),
        ("gpt-4o-mini", "local-8b", True),
        ("gpt-5", "commercial", True),
        ("tuned", "legal-ko", True),
    ],
)
def test_an_alias_is_decided_as_what_it_stands_for(alias: str, of: str, explicit: bool) -> None:
    aliases = {"gpt-4o": "auto", "gpt-4o-mini": "local-8b", "gpt-5": "commercial", "tuned": "legal-ko"}
    rules = policy(aliases=aliases)
    facts = Facts("default", LOCAL_ROADS, True, {"legal-ko": LOCAL_70B})
    made, plain = (decide(name, weight(0.3), rules, facts) for name in (alias, of))
    assert (made.road, made.explicit, made.adapter) == (plain.road, explicit, plain.adapter)
    assert made.reasons == (f"alias {alias} of {of}", *plain.reasons)
    with pytest.raises(ApiError) as unknown:
        decide(alias, weight(0.3), MASKED, facts)
    assert (unknown.value.status, unknown.value.code) == (404, "model_not_found")


def test_what_the_callers_headers_changed_is_among_the_reasons() -> None:
    facts = Facts("default", LOCAL_ROADS, True, max_queue_ms=300, batch=True)
    reasons = decide("auto", weight(0.1), MASKED, facts).reasons
    assert reasons[:2] == ("caller waits 300 ms at most", "caller says batch") and len(reasons) == 3
    assert not any("caller" in reason for reason in decide("auto", weight(0.1), MASKED, BOTH).reasons)


RULES = policy(
    tasks={"code": {"road": "commercial", "band": {"at_least": 0.75}, "egress": "never"}},
    tenants={"shut": {"egress": "never"}},
    keys={"locked": {"egress": "never"}},
    outward={"on_refusal": "reject"},
)


@pytest.mark.parametrize(
    ("changes", "task", "why"),
    [
        ({"tenant": "shut"}, "unknown", "egress never"),
        ({"key_id": "locked"}, "unknown", "egress never for this key"),
        ({}, "code", "task code: egress never"),
        ({"data_class": "restricted"}, "unknown", "data class restricted"),
        ({"data_class": "planted"}, "unknown", "data class not known"),
        ({"conversation": "local"}, "unknown", "conversation pinned local"),
        ({"conversation": "lost"}, "unknown", "conversation pin lost: pinned local"),
        ({"conversation": "unreadable"}, "unknown", "conversation pins not readable"),
        ({"switched_off": True}, "unknown", "egress switched off"),
    ],
)
def test_what_keeps_a_request_in_is_among_the_reasons(changes: dict[str, Any], task: str, why: str) -> None:
    facts = Facts(**{"tenant": "t", "local_roads": LOCAL_ROADS, "commercial_configured": True, **changes})
    made = decide("auto", weight(0.9, task), RULES, facts)
    assert (made.road, made.may_leave) == (LOCAL_70B, False)
    assert COMMERCIAL not in (*made.alternates, *made.overflow)
    assert f"{why}: best local tier local-70b" in made.reasons
    assert "planted" not in "".join(made.reasons)
    # A request that stays anyway says so as well, unless nothing of its tenant leaves at all.
    low = decide("auto", weight(0.1, task), RULES, facts)
    assert (why in low.reasons) is (why != "egress never") and COMMERCIAL not in low.overflow
    with pytest.raises(ApiError) as refused:
        decide("commercial", weight(0.1, task), RULES, facts)
    error = refused.value
    assert (error.status, error.code, error.retry_after_s) == (403, "egress_refused", None)
    assert why in error.message and "planted" not in error.message
    # Without a local tier nobody can serve it.
    alone = msgspec.structs.replace(facts, local_roads=())
    with pytest.raises(ApiError) as nobody:
        decide("auto", weight(0.9, task), RULES, alone)
    assert (nobody.value.status, nobody.value.code) == (403, "egress_refused")


@pytest.mark.parametrize("state", [None, "open"])
def test_an_open_conversation_may_leave(state: Any) -> None:
    facts = Facts("t", LOCAL_ROADS, True, data_class="public", conversation=state)
    made = decide("auto", weight(0.9), RULES, facts)
    assert made.road == COMMERCIAL and made.may_leave and made.on_refusal == "reject"
    assert len(made.reasons) == 1


@pytest.mark.parametrize(
    ("changes", "lasting"),
    [
        ({"data_class": "restricted"}, True),
        ({"data_class": "planted"}, True),
        ({"tenant": "shut"}, True),
        ({"key_id": "locked"}, True),
        ({"switched_off": True}, False),
        ({"conversation": "unreadable"}, False),
        ({}, False),
    ],
)
def test_what_lies_in_the_request_pins_its_conversation(changes: dict[str, Any], lasting: bool) -> None:
    facts = Facts(**{"tenant": "t", "local_roads": LOCAL_ROADS, "commercial_configured": True, **changes})
    assert bool(why_not(weight(0.1), RULES, facts)[0]) is lasting


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
    rules=st.sampled_from([MASKED, NEVER]),
    named=st.sampled_from([None, "public", "confidential", "planted"]),
    pin=st.sampled_from([None, "open", "local", "lost", "unreadable"]),
    switched_off=st.booleans(),
)
def test_same_inputs_same_decision_and_a_closed_border_is_never_crossed(
    model: str,
    score: float,
    task: str,
    local: tuple[Road, ...],
    configured: bool,
    rules: object,
    named: str | None,
    pin: Any,
    switched_off: bool,
) -> None:
    facts = Facts("t", local, configured, data_class=named, conversation=pin, switched_off=switched_off)

    def once() -> bytes:
        try:
            return msgspec.json.encode(decide(model, weight(score, task), rules, facts))  # type: ignore[arg-type]
        except ApiError as refused:
            return str(refused.code).encode()

    first = once()
    assert first == once()
    kept = named in ("confidential", "planted") or pin not in (None, "open") or switched_off
    if rules is NEVER or not configured or kept:
        assert b'"commercial"' not in first
