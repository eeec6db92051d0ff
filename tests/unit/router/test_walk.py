"""Which roads a request goes along, setback after setback."""

from __future__ import annotations

import pytest

from tests.unit.router.test_failover import decision
from weighbridge.commercial.errors import EgressClosed, UpstreamFailed, UpstreamRefused
from weighbridge.config.errors import InvalidRequest
from weighbridge.config.roads import COMMERCIAL, LOCAL_8B, LOCAL_70B, Road
from weighbridge.masking.errors import MaskingRefused
from weighbridge.pool.slot_lock import NoFreeSlot, QueueLockTimeout, WaitTooLong
from weighbridge.pool.worker import TierNotReady
from weighbridge.router.decision import Decision
from weighbridge.router.failover import Escalated, setback_of
from weighbridge.router.walk import Walk

FROM_8B = decision(LOCAL_8B, LOCAL_70B, COMMERCIAL, overflow=(LOCAL_70B, COMMERCIAL))
FROM_70B = decision(LOCAL_70B, COMMERCIAL, LOCAL_8B, overflow=(COMMERCIAL,))
REFUSED = MaskingRefused("credentials")


def walked(way: Decision, *steps: tuple[Exception, float]) -> list[tuple[Road, bool] | None]:
    """The roads and whether each may wait, for setbacks that come after so many milliseconds of waiting in all."""
    walk = Walk(way)
    roads: list[tuple[Road, bool] | None] = [(walk.road, walk.wait)]
    for exc, queued_ms in steps:
        walk.met(setback_of(exc, way))
        onward = walk.go_on(queued_ms)
        roads.append(None if onward is None else (walk.road, walk.wait))
    return roads


@pytest.mark.parametrize("closed", [REFUSED, EgressClosed("switched_off"), EgressClosed("pinned")])
def test_a_tier_that_was_left_early_is_asked_once_more(closed: Exception) -> None:
    hurry = WaitTooLong(9000.0)
    assert walked(FROM_8B, (hurry, 0), (NoFreeSlot(), 0), (closed, 0), (hurry, 0)) == [
        (LOCAL_8B, True),
        (LOCAL_70B, False),
        (COMMERCIAL, False),
        (LOCAL_8B, True),
        None,
    ]


def test_a_tier_that_was_not_tried_comes_before_one_that_was() -> None:
    hurry = WaitTooLong(9000.0)
    assert walked(FROM_70B, (hurry, 0), (REFUSED, 0), (hurry, 10), (hurry, 20)) == [
        (LOCAL_70B, True),
        (COMMERCIAL, False),
        (LOCAL_8B, True),
        (LOCAL_70B, True),
        None,
    ]


@pytest.mark.parametrize(("queued_ms", "returns"), [(1999.0, True), (2000.0, False), (2500.0, False)])
def test_nobody_waits_longer_than_the_policy_allows(queued_ms: float, returns: bool) -> None:
    roads = walked(
        FROM_8B, (QueueLockTimeout(queued_ms), queued_ms), (NoFreeSlot(), queued_ms), (REFUSED, queued_ms)
    )
    assert roads[-1] == ((LOCAL_8B, True) if returns else None)


def test_under_reject_nothing_is_asked_again() -> None:
    way = decision(LOCAL_8B, LOCAL_70B, COMMERCIAL, overflow=(COMMERCIAL,), on_refusal="reject")
    walk = Walk(way)
    for exc in (WaitTooLong(9000.0), REFUSED):
        walk.met(setback_of(exc, way))
        onward = walk.go_on(0)
    assert onward is None and (walk.error().status, walk.error().code) == (403, "egress_refused")


def test_a_tier_that_is_down_is_not_asked_again() -> None:
    way = decision(LOCAL_8B, COMMERCIAL)
    walk = Walk(way)
    for exc in (TierNotReady("local-8b"), REFUSED):
        walk.met(setback_of(exc, way))
        onward = walk.go_on(0)
    assert onward is None and (walk.error().status, walk.error().code) == (503, "no_capacity")
    assert walk.error().retry_after_s == 5


def test_a_failed_upstream_is_no_reason_to_queue_again() -> None:
    way = decision(LOCAL_8B, COMMERCIAL, overflow=(COMMERCIAL,))
    assert walked(way, (WaitTooLong(9000.0), 0), (UpstreamFailed("stall"), 0))[-1] is None


def test_elsewhere_says_whether_another_road_is_left() -> None:
    out = decision(COMMERCIAL, LOCAL_70B, LOCAL_8B)
    walk = Walk(out)
    broken, refused = setback_of(UpstreamFailed("reset"), out), setback_of(UpstreamRefused(400), out)
    walk.met(broken)
    assert walk.elsewhere
    walk.met(broken)
    assert walk.elsewhere, "asking takes no road"
    walk.met(refused)
    assert not walk.elsewhere
    for road in (LOCAL_70B, LOCAL_8B):
        walk.met(broken)
        assert walk.elsewhere and walk.go_on(0) == road
    walk.met(broken)
    assert not walk.elsewhere


def test_after_a_full_tier_the_way_out_has_no_road_behind_it() -> None:
    way = decision(LOCAL_8B, COMMERCIAL, overflow=(COMMERCIAL,))
    walk = Walk(way)
    walk.met(setback_of(WaitTooLong(9000.0), way))
    assert walk.elsewhere and walk.go_on(0) == COMMERCIAL
    walk.met(setback_of(UpstreamFailed("reset"), way))
    assert not walk.elsewhere


def test_the_reason_of_the_egress_row_is_that_of_the_last_setback() -> None:
    walk = Walk(FROM_8B)
    assert walk.reason == "score"
    walk.met(setback_of(NoFreeSlot(), FROM_8B))
    walk.go_on(0)
    assert walk.reason == "queue_lock_timeout"


# ---- up from an answer that was not good enough ----


def unusable(road: Road, *, again: bool = False) -> Escalated:
    return Escalated(road, "invalid_json", again=again)


def test_an_answer_that_is_not_good_enough_leads_one_road_up_and_never_down() -> None:
    assert walked(FROM_8B, (unusable(LOCAL_8B), 0), (unusable(LOCAL_70B), 0)) == [
        (LOCAL_8B, True),
        (LOCAL_70B, True),
        (COMMERCIAL, True),
    ]
    for after in (UpstreamFailed("reset"), REFUSED, EgressClosed("pinned"), WaitTooLong(9.0)):
        assert walked(FROM_70B, (unusable(LOCAL_70B), 0), (after, 0)) == [
            (LOCAL_70B, True),
            (COMMERCIAL, True),
            None,
        ]


def test_a_road_above_that_is_busy_or_gone_is_left_for_the_next_one_above() -> None:
    for setback in (NoFreeSlot(), TierNotReady("local-70b")):
        roads = walked(FROM_8B, (unusable(LOCAL_8B), 0), (setback, 0), (REFUSED, 0))
        assert [road and road[0] for road in roads] == [LOCAL_8B, LOCAL_70B, COMMERCIAL, None]


def test_what_lies_above_is_open_untried_and_higher() -> None:
    def above(way: Decision, *steps: Exception) -> tuple[Road, ...]:
        walk = Walk(way)
        for exc in steps:
            walk.met(setback_of(exc, way))
            walk.go_on(0)
        return walk.above

    assert above(FROM_8B) == (LOCAL_70B, COMMERCIAL)
    assert above(FROM_70B) == (COMMERCIAL,)
    assert above(decision(LOCAL_8B)) == ()
    assert above(decision(LOCAL_8B, LOCAL_70B)) == (LOCAL_70B,)
    assert above(decision(COMMERCIAL, LOCAL_70B, LOCAL_8B)) == ()
    # The way out was tried, and has led down.
    assert above(decision(COMMERCIAL, LOCAL_70B), UpstreamFailed("reset")) == ()
    # The 70B was busy, so that the 8B has answered.
    down = decision(LOCAL_70B, COMMERCIAL, LOCAL_8B, overflow=(LOCAL_8B,))
    assert above(down, NoFreeSlot()) == (COMMERCIAL,)


def test_a_stream_that_was_cut_is_asked_for_again_once_where_no_road_above_serves() -> None:
    way = decision(LOCAL_8B, COMMERCIAL, overflow=(COMMERCIAL,))
    walk = Walk(way)
    for exc, road in ((unusable(LOCAL_8B, again=True), COMMERCIAL), (REFUSED, LOCAL_8B)):
        assert not walk.returned
        walk.met(setback_of(exc, way))
        assert walk.go_on(0) == road and walk.wait
    assert walk.returned and walk.above == ()
    walk.met(setback_of(TierNotReady("local-8b"), way))
    assert walk.go_on(0) is None and walk.error().code == "no_capacity"


def test_a_road_that_is_asked_again_is_not_left_for_one_above() -> None:
    walk = Walk(FROM_8B)
    for exc in (unusable(LOCAL_8B, again=True), InvalidRequest("The 70B cannot do that.")):
        walk.met(setback_of(exc, FROM_8B))
        walk.go_on(0)
    assert walk.road == LOCAL_8B and walk.returned and walk.above == ()
    walk.met(setback_of(TierNotReady("local-8b"), FROM_8B))
    assert walk.go_on(0) is None


def test_it_leaves_for_the_sake_of_a_better_answer_whatever_comes_between() -> None:
    walk = Walk(FROM_8B)
    for exc in (unusable(LOCAL_8B), NoFreeSlot()):
        walk.met(setback_of(exc, FROM_8B))
        walk.go_on(0)
    assert (walk.road, walk.reason) == (COMMERCIAL, "escalation")


def test_with_an_answer_at_hand_an_endpoint_is_not_asked_for_long() -> None:
    way = decision(LOCAL_8B, COMMERCIAL)
    walk = Walk(way)
    walk.met(setback_of(unusable(LOCAL_8B), way))
    assert walk.go_on(0) == COMMERCIAL
    walk.met(setback_of(UpstreamFailed("reset"), way))
    assert walk.elsewhere
