"""The past decided anew under other thresholds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.roads import COMMERCIAL, LOCAL_8B, LOCAL_70B, LOCAL_ROADS
from weighbridge.observability.past_requests import PastRequest
from weighbridge.policies.checking import document_of
from weighbridge.policies.compiled import Policy, compile_policy
from weighbridge.router.what_if import NS_PER_DAY, WhatIf, what_if

BEGIN = 1_767_225_600_000_000_000


def policy(low: float = 0.45, high: float = 0.55, **more: Any) -> Policy:
    content = {
        "version": 1,
        "name": "p",
        "egress": "masked",
        "bounds": {"local_8b": low, "local_70b": high},
        **more,
    }
    return compile_policy(document_of(content))


def past(score: float | None = 0.5, **changes: Any) -> PastRequest:
    row: dict[str, Any] = {
        "admitted_ns": BEGIN,
        "tenant": "t",
        "key_id": "k",
        "model": "auto",
        "task": "knowledge",
        "score": score,
        "p_8b_fails": 0.4,
        "p_70b_fails": 0.1,
        "decided": LOCAL_70B,
        "served": LOCAL_70B,
        "tokens": 1000,
        "cost_nano": 2_000_000,
        "currency": "USD",
    }
    return PastRequest(**(row | changes))


def asked(*rows: PastRequest, then: Policy, now: Policy | None = None, outward: bool = True) -> WhatIf:
    return what_if(rows, now or policy(), then, local=LOCAL_ROADS, outward=outward)


def counts(found: WhatIf) -> dict[str, tuple[int, int]]:
    return {road.road: (road.requests_before, road.requests_after) for road in found.roads}


def test_a_higher_bound_takes_requests_down_with_their_cost_and_risk() -> None:
    rows = [
        past(0.5),
        past(0.52, admitted_ns=BEGIN + NS_PER_DAY),
        past(0.3, decided=LOCAL_8B, served=LOCAL_8B, cost_nano=500_000),
        past(0.9, decided=COMMERCIAL, served=COMMERCIAL, cost_nano=10_000_000),
    ]
    found = asked(*rows, then=policy(0.51))
    assert (found.requests, found.decided) == (4, 4)
    assert counts(found) == {LOCAL_8B: (1, 2), LOCAL_70B: (2, 1), COMMERCIAL: (1, 1)}
    (shift,) = found.shifts
    assert (shift.from_road, shift.to_road, shift.requests, shift.tokens) == (LOCAL_70B, LOCAL_8B, 1, 1000)
    assert (shift.failing_before, shift.failing_after, shift.unknown) == (0.1, 0.4, 0)
    # A thousand tokens a day, at 0.0005 instead of 0.002.
    assert found.cost_change_nano_per_day == -1_500_000
    assert {road.road: road.nano_per_million for road in found.roads} == {
        LOCAL_8B: 500_000_000,
        LOCAL_70B: 2_000_000_000,
        COMMERCIAL: 10_000_000_000,
    }


def test_what_named_its_road_or_was_not_weighed_stays() -> None:
    rows = [
        past(0.5, model=LOCAL_70B),
        past(None, model=LOCAL_8B, decided=LOCAL_8B),
        past(0.5, model="gpt-4o"),
    ]
    found = asked(*rows, then=policy(0.6, 0.6))
    assert (found.decided, found.shifts) == (0, [])
    named = policy(aliases={"gpt-4o": "auto"})
    assert asked(rows[2], now=named, then=policy(0.6, 0.6, aliases={"gpt-4o": "auto"})).decided == 1


@pytest.mark.parametrize("outward", [True, False])
def test_what_is_kept_in_stays_in(outward: bool) -> None:
    rules = {} if not outward else {"tenants": {"t": {"egress": "never"}}}
    found = asked(past(0.5), now=policy(**rules), then=policy(0.4, 0.45, **rules), outward=outward)
    assert found.shifts == []
    assert asked(past(0.5), then=policy(0.4, 0.45)).shifts[0].to_road == COMMERCIAL


def test_what_cannot_be_known_is_not_made_up() -> None:
    unknown = past(0.5, p_8b_fails=None, p_70b_fails=None, cost_nano=None, admitted_ns=BEGIN + NS_PER_DAY)
    found = asked(unknown, past(0.5), then=policy(0.51))
    assert (found.shifts[0].unknown, found.shifts[0].failing_after) == (1, 0.4)
    assert found.cost_change_nano_per_day is None, (
        "nothing was served on the 8B, so nobody knows what it costs"
    )
    both = [past(0.3, served=LOCAL_8B, currency="KRW"), past(0.5, admitted_ns=BEGIN + NS_PER_DAY)]
    assert asked(*both, then=policy(0.51)).cost_change_nano_per_day is None
    assert asked(*both, then=policy(0.51)).currency == ""
    assert asked(then=policy(0.51)) == WhatIf(0, 0, None, None, asked(then=policy()).roads, [], "", None)


@given(st.lists(st.floats(0, 1), max_size=30), st.floats(0, 1), st.floats(0, 1))
def test_no_request_is_lost_or_made(scores: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    rows = [past(score, decided=LOCAL_8B) for score in scores]
    found = asked(*rows, then=policy(low, high))
    assert sum(road.requests_before for road in found.roads) == len(rows)
    assert sum(road.requests_after for road in found.roads) == len(rows)
    for road in found.roads:
        gone = sum(shift.requests for shift in found.shifts if shift.from_road == road.road)
        came = sum(shift.requests for shift in found.shifts if shift.to_road == road.road)
        assert road.requests_after == road.requests_before - gone + came
    assert not asked(*rows, then=policy()).shifts
