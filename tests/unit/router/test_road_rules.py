"""Pins, floors, ceilings and forbidden roads: who wins, what is told, and that nothing reaches a forbidden road."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.errors import ApiError
from weighbridge.config.roads import COMMERCIAL, LOCAL_8B, LOCAL_70B, LOCAL_ROADS, ROADS, Road
from weighbridge.policies.compiled import Policy, compile_policy
from weighbridge.policies.reach import Reach
from weighbridge.policies.risk import Risk
from weighbridge.policies.road_rules import RANK
from weighbridge.policies.schema import PolicyDocument
from weighbridge.router.decision import UNWEIGHED, Decision, Facts, decide, needs_weight, why_not
from weighbridge.router.difficulty.score import Assessment

ALL = ["higher-local", "lower-local", "commercial"]


def policy(**said: Any) -> Policy:
    base = {"version": 1, "name": "p", "egress": "masked", "overflow_order": ALL}
    return compile_policy(PolicyDocument.model_validate(base | said))


def facts(**changes: Any) -> Facts:
    return Facts(**{"tenant": "t", "local_roads": LOCAL_ROADS, "commercial_configured": True, **changes})


def weight(score: float, task: str = "chat") -> Assessment:
    return Assessment(score=score, task=task, language="en", moved=())  # type: ignore[arg-type]


def decided(rules: Policy, score: float, task: str = "chat", model: str = "auto", **more: Any) -> Decision:
    return decide(model, weight(score, task), rules, facts(**more))


def row(**more: Any) -> dict[str, Any]:
    return {"chat": {"road": "by-score", **more}}


@pytest.mark.parametrize(
    ("said", "score", "road", "reasons"),
    [
        ({"tasks": row(floor=LOCAL_70B)}, 0.1, LOCAL_70B, ("task chat: floor local-70b",)),
        ({"tasks": row(floor=LOCAL_70B)}, 0.9, COMMERCIAL, ()),
        ({"tasks": row(ceiling=LOCAL_70B)}, 0.9, LOCAL_70B, ("task chat: ceiling local-70b",)),
        ({"tasks": row(forbid=[LOCAL_8B])}, 0.1, LOCAL_70B, ("local-8b forbidden: local-70b",)),
        ({"tasks": row(forbid=[LOCAL_70B])}, 0.5, COMMERCIAL, ("local-70b forbidden: commercial",)),
        (
            {"tasks": row(forbid=[LOCAL_70B], ceiling=LOCAL_70B)},
            0.5,
            LOCAL_8B,
            ("local-70b forbidden: local-8b",),
        ),
        ({"tenants": {"t": {"pin": LOCAL_70B}}}, 0.1, LOCAL_70B, ("tenant: pin local-70b",)),
        ({"tenants": {"t": {"pin": LOCAL_8B}}}, 0.1, LOCAL_8B, ()),
        ({"tenants": {"other": {"pin": LOCAL_70B}}}, 0.1, LOCAL_8B, ()),
        ({"keys": {"k": {"ceiling": LOCAL_8B}}}, 0.9, LOCAL_8B, ("key: ceiling local-8b",)),
        # The highest floor and the lowest ceiling count.
        (
            {"tasks": row(floor=LOCAL_70B), "tenants": {"t": {"floor": LOCAL_8B}}},
            0.1,
            LOCAL_70B,
            ("task chat: floor local-70b",),
        ),
        (
            {"tasks": row(ceiling=LOCAL_8B), "tenants": {"t": {"ceiling": LOCAL_70B}}},
            0.9,
            LOCAL_8B,
            ("task chat: ceiling local-8b",),
        ),
        # Against each other: key before tenant before task.
        (
            {"tasks": row(floor=COMMERCIAL), "tenants": {"t": {"ceiling": LOCAL_70B}}},
            0.1,
            LOCAL_70B,
            ("task chat: floor commercial", "tenant: ceiling local-70b"),
        ),
        (
            {"tenants": {"t": {"ceiling": LOCAL_8B}}, "keys": {"k": {"pin": COMMERCIAL}}},
            0.5,
            COMMERCIAL,
            ("tenant: ceiling local-8b", "key: pin commercial"),
        ),
        (
            {"tasks": {"chat": {"road": "commercial"}}, "tenants": {"t": {"pin": LOCAL_8B}}},
            0.5,
            LOCAL_8B,
            ("tenant: pin local-8b",),
        ),
    ],
)
def test_what_wins_and_what_is_told(
    said: dict[str, Any], score: float, road: Road, reasons: tuple[str, ...]
) -> None:
    made = decided(policy(**said), score, key_id="k")
    assert made.road == road
    assert made.score == score, "the calibrated score stays beside the rules"
    assert (
        tuple(why for why in made.reasons if "score" not in why and why != "task chat: commercial") == reasons
    )
    assert made.egress_reason == ("rule" if reasons else "score")


@pytest.mark.parametrize(
    ("task", "tenant", "low", "high"),
    [
        ({"floor": LOCAL_70B}, {"floor": LOCAL_8B, "ceiling": COMMERCIAL}, 1, 2),
        ({"floor": LOCAL_70B}, {"floor": COMMERCIAL}, 2, 2),
        ({"floor": COMMERCIAL}, {"floor": LOCAL_70B}, 2, 2),
        ({"ceiling": LOCAL_8B}, {"ceiling": LOCAL_70B}, 0, 0),
        ({"ceiling": LOCAL_70B}, {"ceiling": LOCAL_8B}, 0, 0),
        ({"floor": COMMERCIAL}, {"ceiling": LOCAL_70B}, 1, 1),
        ({"ceiling": LOCAL_8B}, {"floor": LOCAL_70B}, 1, 1),
        ({"ceiling": LOCAL_8B}, {"pin": COMMERCIAL}, 0, 2),
        ({"floor": COMMERCIAL}, {"pin": LOCAL_8B}, 0, 2),
        ({"floor": LOCAL_70B, "ceiling": LOCAL_70B}, {"pin": LOCAL_70B}, 1, 1),
    ],
)
def test_how_far_the_rules_let_it_go(
    task: dict[str, Any], tenant: dict[str, Any], low: int, high: int
) -> None:
    rules = policy(tasks=row(**task), tenants={"t": tenant})
    for reach in (rules.reach("chat", "t"), rules.place("chat", 0.5, "t").reach):
        assert (reach.low, reach.high, reach.forbidden) == (low, high, frozenset())
    assert rules.reach("math", "other") == Reach() == rules.place("math", 0.5, "other").reach


class Risky:
    """A weight that is as hard as the risk that is taken. Not an `Assessment`: that may be compiled."""

    task, language = "chat", "en"

    def score_at(self, risk: Risk) -> float:
        return risk.local_8b


@pytest.mark.parametrize("model", ["auto", LOCAL_70B])
def test_the_score_is_made_for_the_risk_that_the_policy_takes(model: str) -> None:
    weighed: Any = Risky()
    for risk, road in ((0.1, LOCAL_8B), (0.5, LOCAL_70B), (0.8, COMMERCIAL)):
        made = decide(model, weighed, policy(risk={"local_8b": risk}), facts())
        assert (made.score, made.clamped_score) == (risk, risk)
        assert made.road == (road if model == "auto" else model)


def test_a_ceiling_is_not_passed_by_overflow_or_failover_and_a_floor_not_either() -> None:
    made = decided(policy(tasks=row(ceiling=LOCAL_70B)), 0.1)
    assert (made.overflow, made.alternates, made.may_leave) == ((LOCAL_70B,), (LOCAL_70B,), False)
    made = decided(policy(tasks=row(floor=LOCAL_70B)), 0.1)
    assert (made.overflow, made.alternates) == ((COMMERCIAL,), (COMMERCIAL,))
    made = decided(policy(tasks=row(forbid=[LOCAL_70B])), 0.1)
    assert (made.overflow, made.alternates) == ((COMMERCIAL,), (COMMERCIAL,))


def test_an_explicit_choice_stands_before_pin_floor_and_ceiling() -> None:
    rules = policy(tenants={"t": {"pin": LOCAL_8B, "ceiling": LOCAL_8B}}, explicit_local="overflow")
    for model in ROADS:
        assert decided(rules, 0.1, model=model).road == model
    # But the ceiling keeps it from going on upwards.
    made = decided(rules, 0.1, model=LOCAL_8B)
    assert (made.overflow, made.alternates) == ((), ())
    assert decided(rules, 0.1, model=LOCAL_70B).overflow == (LOCAL_8B,)


@pytest.mark.parametrize(
    "said",
    [
        {"tasks": row(forbid=[LOCAL_8B])},
        {"tenants": {"t": {"forbid": [LOCAL_8B]}}},
        {"keys": {"k": {"forbid": [LOCAL_8B]}}},
    ],
)
def test_a_forbidden_road_is_closed_to_an_explicit_choice(said: dict[str, Any]) -> None:
    rules = policy(aliases={"small": LOCAL_8B}, **said)
    for model in (LOCAL_8B, "small", "tuned"):
        with pytest.raises(ApiError) as refused:
            decided(rules, 0.1, model=model, key_id="k", adapters={"tuned": LOCAL_8B})
        error = refused.value
        assert (error.status, error.code, error.param) == (403, "road_forbidden", "model")
    assert decided(rules, 0.1, model=LOCAL_70B, key_id="k").road == LOCAL_70B


def test_the_task_is_found_out_where_a_task_forbids_the_road_that_is_named() -> None:
    rules = policy(tasks=row(forbid=[LOCAL_8B]), aliases={"small": LOCAL_8B})
    here = facts(adapters={"tuned": LOCAL_8B, "large": LOCAL_70B})
    assert all(needs_weight(model, rules, here) for model in (LOCAL_8B, "small", "tuned"))
    assert not any(needs_weight(model, rules, here) for model in (LOCAL_70B, "large", "unknown"))
    assert decide(LOCAL_70B, UNWEIGHED, rules, here).road == LOCAL_70B


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"tenants": {"t": {"forbid": [COMMERCIAL]}}}, "commercial forbidden for this tenant"),
        ({"keys": {"k": {"forbid": [COMMERCIAL]}}}, "commercial forbidden for this key"),
        ({"tasks": row(forbid=[COMMERCIAL])}, "task chat: commercial forbidden"),
    ],
)
def test_a_forbidden_commercial_road_keeps_the_request_in_for_good(said: dict[str, Any], why: str) -> None:
    rules = policy(**said)
    assert why_not(weight(0.9), rules, facts(key_id="k"))[0] == (why,)
    made = decided(rules, 0.9, key_id="k")
    assert (made.road, made.may_leave) == (LOCAL_70B, False)
    assert "commercial forbidden: local-70b" in made.reasons
    with pytest.raises(ApiError) as refused:
        decided(rules, 0.9, model=COMMERCIAL, key_id="k")
    assert (refused.value.status, refused.value.code) == (403, "egress_refused")
    assert why in refused.value.message
    assert decided(rules, 0.9, "code", tenant="u", key_id="other").road == COMMERCIAL


def test_where_no_road_is_left_the_request_is_refused() -> None:
    rules = policy(tenants={"t": {"forbid": [LOCAL_8B]}}, keys={"k": {"forbid": [LOCAL_70B, COMMERCIAL]}})
    with pytest.raises(ApiError) as refused:
        decided(rules, 0.1, key_id="k")
    assert (refused.value.status, refused.value.code, refused.value.retry_after_s) == (
        403,
        "no_road_allowed",
        None,
    )
    # The one tier that is here is above the ceiling.
    with pytest.raises(ApiError) as refused:
        decided(policy(tasks=row(ceiling=LOCAL_8B)), 0.1, local_roads=(LOCAL_70B,))
    assert refused.value.code == "no_road_allowed"


def test_a_floor_goes_out_before_it_goes_down_and_down_where_nothing_may_leave() -> None:
    rules = policy(tasks=row(floor=LOCAL_70B))
    alone = {"local_roads": (LOCAL_8B,)}
    assert decided(rules, 0.1, **alone).road == COMMERCIAL
    assert decided(rules, 0.1, **alone, commercial_configured=False).road == LOCAL_8B
    closed = decided(policy(tasks=row(floor=COMMERCIAL)), 0.1, switched_off=True)
    assert closed.road == LOCAL_70B
    assert "egress switched off: best local tier local-70b" in closed.reasons


def test_rules_of_egress_stay_stricter_only() -> None:
    rules = policy(
        tenants={"t": {"egress": "never", "pin": COMMERCIAL, "floor": COMMERCIAL}},
        keys={"k": {"pin": COMMERCIAL}},
    )
    made = decided(rules, 0.1, key_id="k")
    assert made.road == LOCAL_70B and not made.may_leave
    assert COMMERCIAL not in (*made.alternates, *made.overflow)


_limits = st.fixed_dictionaries(
    {},
    optional={
        "floor": st.sampled_from(ROADS),
        "ceiling": st.sampled_from(ROADS),
        "forbid": st.lists(st.sampled_from(ROADS), unique=True, max_size=2),
    },
)
_rules = st.tuples(_limits, st.fixed_dictionaries({}, optional={"pin": st.sampled_from(ROADS)})).map(
    lambda both: both[0] | both[1]
)


@given(
    task=_limits,
    tenant=_rules,
    key=_rules,
    score=st.floats(0, 1),
    model=st.sampled_from(["auto", *ROADS]),
    local=st.sampled_from([LOCAL_ROADS, (LOCAL_8B,), (LOCAL_70B,), ()]),
    configured=st.booleans(),
    explicit=st.sampled_from(["stay", "overflow"]),
    barred=st.frozensets(st.sampled_from(ROADS), max_size=2),
)
def test_nothing_reaches_a_forbidden_road_or_passes_a_ceiling(
    task: dict[str, Any],
    tenant: dict[str, Any],
    key: dict[str, Any],
    score: float,
    model: str,
    local: tuple[Road, ...],
    configured: bool,
    explicit: str,
    barred: frozenset[Road],
) -> None:
    try:
        rules = policy(tasks=row(**task), tenants={"t": tenant}, keys={"k": key}, explicit_local=explicit)
    except ValueError:
        return  # it contradicts itself, and is refused
    here = facts(key_id="k", local_roads=local, commercial_configured=configured, barred=barred)
    forbidden = {road for said in (task, tenant, key) for road in said.get("forbid", ())} | barred
    try:
        made = decide(model, weight(score), rules, here)
    except ApiError as refused:
        assert refused.status in (403, 404, 503)
        return
    assert decide(model, weight(score), rules, here) == made
    onward = (*made.alternates, *made.overflow)
    assert not forbidden & {made.road, *onward}
    high = min((RANK[said["ceiling"]] for said in (task, tenant, key) if "ceiling" in said), default=2)
    pinned = [said["pin"] for said in (tenant, key) if "pin" in said]
    floors = [said["floor"] for said in (tenant, key) if "floor" in said]
    if not pinned and not floors:
        assert all(RANK[road] <= high for road in onward)
        if model == "auto":
            assert RANK[made.road] <= high
    if COMMERCIAL in (made.road, *onward):
        assert made.may_leave


# ---- roads that a key may use ----


def only(*roads: Road) -> frozenset[Road]:
    """What a key may not use that may use these alone."""
    return frozenset(ROADS).difference(roads)


@pytest.mark.parametrize(
    ("allowed", "score", "road", "reason"),
    [
        ((LOCAL_8B, LOCAL_70B), 0.9, LOCAL_70B, "commercial not allowed for this key: local-70b"),
        ((LOCAL_70B, COMMERCIAL), 0.1, LOCAL_70B, "local-8b not allowed for this key: local-70b"),
        ((LOCAL_8B, COMMERCIAL), 0.5, COMMERCIAL, "local-70b not allowed for this key: commercial"),
        ((LOCAL_8B,), 0.9, LOCAL_8B, "commercial not allowed for this key: local-8b"),
        ((COMMERCIAL,), 0.1, COMMERCIAL, "local-8b not allowed for this key: commercial"),
    ],
)
def test_a_key_moves_a_request_to_a_road_that_it_may_use(
    allowed: tuple[Road, ...], score: float, road: Road, reason: str
) -> None:
    made = decided(policy(), score, barred=only(*allowed))
    assert made.road == road
    assert made.reasons[-1] == reason
    assert set((made.road, *made.alternates, *made.overflow)) <= set(allowed)
    assert made.may_leave is (COMMERCIAL in allowed)


def test_a_key_that_does_not_move_a_request_is_not_told() -> None:
    free = decided(policy(), 0.1)
    barred = decided(policy(), 0.1, barred=only(LOCAL_8B, LOCAL_70B))
    assert barred.reasons == free.reasons and not barred.may_leave


def test_what_the_key_and_the_policy_leave_between_them_may_be_nothing() -> None:
    rules = policy(tenants={"t": {"forbid": [LOCAL_8B]}})
    with pytest.raises(ApiError) as caught:
        decided(rules, 0.1, barred=only(LOCAL_8B))
    assert (caught.value.status, caught.value.code) == (403, "no_road_allowed")
    assert "its API key may use local-8b alone" in caught.value.message
    closed = policy(egress="never")
    with pytest.raises(ApiError) as caught:
        decided(closed, 0.9, barred=only(COMMERCIAL))
    assert (caught.value.status, caught.value.code) == (403, "no_road_allowed")


@pytest.mark.parametrize("road", ROADS)
def test_a_road_that_the_key_may_not_use_is_closed_to_an_explicit_choice(road: Road) -> None:
    with pytest.raises(ApiError) as caught:
        decided(policy(), 0.1, model=road, barred=frozenset({road}))
    assert caught.value.status == 403
    wanted = "commercial not allowed for this key" if road == COMMERCIAL else "This API key may not use"
    assert wanted in caught.value.message


def test_a_key_that_may_not_use_commercial_keeps_its_conversations_in() -> None:
    lasting, other = why_not(weight(0.1), policy(), facts(barred=only(LOCAL_8B)))
    assert (lasting, other) == (("commercial not allowed for this key",), ())
    assert why_not(weight(0.1), policy(), facts(barred=only(COMMERCIAL))) == ((), ())


def test_a_named_tier_goes_unweighed_whatever_the_key_may_use() -> None:
    assert not needs_weight(LOCAL_8B, policy(), facts(barred=only(LOCAL_8B)))
