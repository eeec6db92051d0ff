"""What each failure of an attempt means: its word, the roads it opens, and the answer when none is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import pytest

from weighbridge.commercial.errors import (
    REFUSALS,
    ClosedBy,
    EgressClosed,
    FailureKind,
    SealBroken,
    UpstreamFailed,
    UpstreamRefused,
)
from weighbridge.config.errors import ApiError, ContextLengthExceeded, InvalidRequest
from weighbridge.config.roads import COMMERCIAL, LOCAL_8B, LOCAL_70B, Road
from weighbridge.masking.errors import PASSING, REASONS, MaskingRefused, Reason
from weighbridge.observability.ledger import LedgerUnavailable
from weighbridge.pool.engine import EngineOverloaded, EngineUnavailable
from weighbridge.pool.slot_lock import NoFreeSlot, QueueFull, QueueLockTimeout, WaitTooLong
from weighbridge.pool.worker import TierNotReady
from weighbridge.router.decision import Decision
from weighbridge.router.failover import (
    EmptyAnswer,
    Late,
    LocalLate,
    Opens,
    Setback,
    WorkerLost,
    egress_reason,
    final_error,
    next_road,
    setback_of,
)


def decision(
    road: Road = LOCAL_8B,
    *alternates: Road,
    queue_lock_timeout_ms: int = 2000,
    overflow: tuple[Road, ...] = (),
    on_refusal: Literal["local", "reject"] = "local",
) -> Decision:
    return Decision(
        road=road,
        alternates=alternates,
        overflow=overflow,
        explicit=False,
        score=0.2,
        clamped_score=0.2,
        task="chat",
        language="en",
        reasons=("score 0.20",),
        may_leave=True,
        egress_reason="score",
        queue_lock_timeout_ms=queue_lock_timeout_ms,
        batch=False,
        adapter=None,
        drain_s=0.0,
        policy_version="default@0123456789ab",
        calibration_version="c1",
        on_refusal=on_refusal,
    )


@dataclass(frozen=True)
class Row:
    exc: Exception
    cause: str
    opens: Opens
    status: int
    code: str
    type: str
    retry_after_s: float | None
    egress: str


RATE, SERVER, INVALID, FORBIDDEN = (
    "rate_limit_error",
    "server_error",
    "invalid_request_error",
    "permission_error",
)

TABLE = [
    Row(
        QueueLockTimeout(2000.0),
        "queue_timeout",
        Opens.OVERFLOW,
        429,
        "queue_lock_timeout",
        RATE,
        2,
        "queue_lock_timeout",
    ),
    Row(
        WaitTooLong(9000.0),
        "queue_predicted",
        Opens.OVERFLOW,
        429,
        "queue_lock_timeout",
        RATE,
        2,
        "queue_lock_timeout",
    ),
    Row(
        NoFreeSlot(), "no_free_slot", Opens.OVERFLOW, 429, "queue_lock_timeout", RATE, 2, "queue_lock_timeout"
    ),
    Row(
        WorkerLost(),
        "worker_lost",
        Opens.NOTHING,
        503,
        "worker_lost",
        SERVER,
        5,
        "worker_lost",
    ),
    Row(QueueFull(), "queue_full", Opens.OVERFLOW, 429, "queue_full", RATE, 2, "queue_lock_timeout"),
    Row(
        EngineOverloaded(),
        "engine_overloaded",
        Opens.OVERFLOW,
        429,
        "queue_lock_timeout",
        RATE,
        2,
        "queue_lock_timeout",
    ),
    Row(TierNotReady("local-8b"), "not_ready", Opens.ANY, 503, "no_capacity", SERVER, 5, "worker_lost"),
    Row(
        EngineUnavailable(),
        "engine_unavailable",
        Opens.ANY,
        503,
        "engine_unavailable",
        SERVER,
        5,
        "worker_lost",
    ),
    Row(
        ContextLengthExceeded(900, 512),
        "window",
        Opens.ANY,
        400,
        "context_length_exceeded",
        INVALID,
        None,
        "window",
    ),
    Row(EmptyAnswer(), "empty_answer", Opens.ANY, 502, "empty_answer", SERVER, None, "worker_lost"),
    Row(
        MaskingRefused("not_text"),
        "masking_refused",
        Opens.LOCAL,
        429,
        "overflow_not_permitted",
        RATE,
        2,
        "worker_lost",
    ),
    Row(
        EgressClosed("switched_off"),
        "egress_closed",
        Opens.LOCAL,
        429,
        "overflow_not_permitted",
        RATE,
        2,
        "worker_lost",
    ),
    Row(
        LedgerUnavailable("down"),
        "ledger_unavailable",
        Opens.LOCAL,
        503,
        "ledger_unavailable",
        SERVER,
        5,
        "worker_lost",
    ),
]


def named(row: Row) -> str:
    return row.cause


@pytest.mark.parametrize("row", TABLE, ids=named)
def test_the_table(row: Row) -> None:
    setback = setback_of(row.exc, decision(LOCAL_8B, LOCAL_70B, COMMERCIAL))
    assert (setback.cause, setback.opens) == (row.cause, row.opens)
    error = setback.error
    assert (error.status, error.code, error.type) == (row.status, row.code, row.type)
    assert error.retry_after_s == row.retry_after_s
    assert egress_reason(setback) == row.egress


FAILURES: list[tuple[FailureKind, int]] = [
    ("connect", 502),
    ("status", 502),
    ("reset", 502),
    ("stall", 504),
    ("cut", 502),
    ("malformed", 502),
    ("timeout", 504),
]


@pytest.mark.parametrize(("kind", "status"), FAILURES)
def test_a_failed_upstream_opens_the_local_roads(kind: FailureKind, status: int) -> None:
    setback = setback_of(UpstreamFailed(kind, status=500, retry_after_s=3), decision(COMMERCIAL, LOCAL_70B))
    assert (setback.cause, setback.opens) == (f"upstream_{kind}", Opens.LOCAL)
    error = setback.error
    assert (error.status, error.code, error.type) == (status, f"upstream_{kind}", SERVER)
    assert error.retry_after_s == 3


@pytest.mark.parametrize(("asked", "told"), [(7.0, 7.0), (None, 1)])
def test_a_rate_limit_upstream_is_passed_on(asked: float | None, told: float) -> None:
    error = setback_of(
        UpstreamFailed("status", status=429, retry_after_s=asked), decision(COMMERCIAL, LOCAL_70B)
    ).error
    assert (error.status, error.code, error.retry_after_s) == (429, "upstream_rate_limited", told)


@pytest.mark.parametrize("status", sorted(REFUSALS))
def test_the_providers_refusal_opens_nothing(status: int) -> None:
    refusal = UpstreamRefused(status, "some_code")
    way = decision(COMMERCIAL, LOCAL_70B, LOCAL_8B)
    setback = setback_of(refusal, way)
    assert (setback.cause, setback.opens, setback.error) == ("refused", Opens.NOTHING, refusal)
    assert next_road(way, [COMMERCIAL], setback) is None


@pytest.mark.parametrize(
    "error", [InvalidRequest("n is wrong", param="n"), ApiError(403, "No.", type=FORBIDDEN)]
)
def test_an_answer_of_ours_is_final_as_it_stands(error: ApiError) -> None:
    way = decision(LOCAL_8B, LOCAL_70B, COMMERCIAL)
    setback = setback_of(error, way)
    assert setback.error is error and setback.opens is Opens.NOTHING
    assert next_road(way, [LOCAL_8B], setback) is None


@pytest.mark.parametrize("reason", REASONS)
def test_masking_refused_on_the_chosen_road_says_whether_it_passes(reason: Reason) -> None:
    setback = setback_of(MaskingRefused(reason), decision(COMMERCIAL, LOCAL_70B))
    error = setback.error
    assert setback.opens is Opens.LOCAL and reason in error.message
    if reason in PASSING:
        assert (error.status, error.code, error.type) == (503, "masking_unavailable", SERVER)
        assert error.retry_after_s == 2
    else:
        assert (error.status, error.code, error.type) == (403, "egress_refused", FORBIDDEN)
        assert error.retry_after_s is None


@pytest.mark.parametrize("reason", REASONS)
def test_masking_refused_in_an_overflow_may_come_again(reason: Reason) -> None:
    error = setback_of(MaskingRefused(reason), decision(LOCAL_8B, COMMERCIAL)).error
    assert (error.status, error.code, error.retry_after_s) == (429, "overflow_not_permitted", 2)


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("road", [LOCAL_8B, COMMERCIAL])
def test_under_reject_a_refusal_is_told_at_once(road: Road, reason: Reason) -> None:
    way = decision(road, LOCAL_70B, on_refusal="reject")
    busy = setback_of(QueueLockTimeout(9.0), way)
    setback = setback_of(MaskingRefused(reason), way)
    assert setback.opens is Opens.NOTHING and next_road(way, [COMMERCIAL], setback) is None
    error = final_error([busy, setback])
    assert final_error([setback_of(TierNotReady("local-8b"), way), setback]) is error is setback.error
    expected = (503, 2) if reason in PASSING else (403, None)
    assert (error.status, error.retry_after_s) == expected and reason in error.message


@pytest.mark.parametrize(
    ("by", "why"), [("switched_off", "egress switched off"), ("pinned", "conversation pinned local")]
)
def test_a_way_out_that_was_closed_meanwhile(by: ClosedBy, why: str) -> None:
    error = setback_of(EgressClosed(by), decision(COMMERCIAL, LOCAL_70B)).error
    assert (error.status, error.code, error.retry_after_s) == (403, "egress_refused", None)
    assert why in error.message
    late = setback_of(EgressClosed(by), decision(LOCAL_8B, COMMERCIAL)).error
    assert (late.status, late.retry_after_s) == (429, 2) and why in late.message


def test_busy_tiers_and_a_closed_way_out_are_told_with_its_reason() -> None:
    way = decision(LOCAL_8B, LOCAL_70B, COMMERCIAL, overflow=(COMMERCIAL,))
    busy, kept = setback_of(WaitTooLong(9.0), way), setback_of(MaskingRefused("blocked_term"), way)
    assert final_error([busy, kept, busy]) is kept.error
    # Chosen for the way out: what is left is that the local tiers are busy, and that passes.
    out = decision(COMMERCIAL, LOCAL_70B)
    final = final_error([setback_of(MaskingRefused("blocked_term"), out), setback_of(QueueFull(), out)])
    assert (final.status, final.code, final.retry_after_s) == (429, "queue_full", 2)


@pytest.mark.parametrize(("timeout_ms", "retry"), [(1, 1), (999, 1), (1000, 1), (1001, 2), (30_000, 30)])
def test_retry_after_follows_the_queue_lock(timeout_ms: int, retry: int) -> None:
    way = decision(queue_lock_timeout_ms=timeout_ms)
    assert setback_of(QueueLockTimeout(timeout_ms), way).error.retry_after_s == retry
    assert setback_of(TierNotReady("local-8b"), way).error.retry_after_s == max(5, retry)
    assert setback_of(LedgerUnavailable("down"), way).error.retry_after_s == max(5, retry)


@pytest.mark.parametrize(
    "exc", [RuntimeError("x"), SealBroken(), ValueError("x"), TimeoutError(), KeyError("x"), MemoryError()]
)
def test_what_nobody_planned_is_raised_again(exc: Exception) -> None:
    with pytest.raises(type(exc)) as raised:
        setback_of(exc, decision(LOCAL_8B, LOCAL_70B, COMMERCIAL))
    assert raised.value is exc


CONTENDED = [
    QueueLockTimeout(1.0),
    WaitTooLong(9.0),
    NoFreeSlot(),
    QueueFull(),
    EngineOverloaded(),
]
GONE = [TierNotReady("local-8b"), EngineUnavailable(), ContextLengthExceeded(900, 512), EmptyAnswer()]
OUTWARD = [
    MaskingRefused("not_text"),
    EgressClosed("pinned"),
    LedgerUnavailable("down"),
    *(UpstreamFailed(k) for k, _ in FAILURES),
]


def kind_of(exc: Exception) -> str:
    return f"{type(exc).__name__} {exc.kind}" if isinstance(exc, UpstreamFailed) else type(exc).__name__


@pytest.mark.parametrize("exc", CONTENDED, ids=kind_of)
def test_contention_opens_the_overflow_roads_alone_and_in_their_order(exc: Exception) -> None:
    way = decision(LOCAL_8B, COMMERCIAL, LOCAL_70B, overflow=(LOCAL_70B, COMMERCIAL))
    setback = setback_of(exc, way)
    assert next_road(way, [LOCAL_8B], setback) == LOCAL_70B
    assert next_road(way, [LOCAL_8B, LOCAL_70B], setback) == COMMERCIAL
    assert next_road(way, [LOCAL_8B, LOCAL_70B, COMMERCIAL], setback) is None
    nowhere = decision(LOCAL_8B, LOCAL_70B, COMMERCIAL)
    assert next_road(nowhere, [LOCAL_8B], setback_of(exc, nowhere)) is None


def test_a_busy_tier_and_one_that_is_down_make_a_busy_gateway() -> None:
    """429 where coming again helps, 503 where nothing is there to come to."""
    way = decision(LOCAL_8B, overflow=(LOCAL_70B,))
    busy, down = setback_of(QueueLockTimeout(9.0), way), setback_of(TierNotReady("local-70b"), way)
    assert final_error([busy, down]) is busy.error
    assert final_error([down, busy]) is busy.error
    assert final_error([down, down]) is down.error


@pytest.mark.parametrize("exc", GONE, ids=kind_of)
def test_a_backend_that_is_gone_opens_every_road_in_order(exc: Exception) -> None:
    for way in (decision(LOCAL_8B, LOCAL_70B, COMMERCIAL), decision(LOCAL_70B, COMMERCIAL, LOCAL_8B)):
        setback = setback_of(exc, way)
        tried = [way.road]
        for expected in way.alternates:
            onward = next_road(way, tried, setback)
            assert onward == expected
            tried.append(expected)
        assert next_road(way, tried, setback) is None


@pytest.mark.parametrize("exc", OUTWARD, ids=kind_of)
def test_a_closed_way_out_opens_the_local_roads_alone(exc: Exception) -> None:
    way = decision(COMMERCIAL, LOCAL_70B, LOCAL_8B)
    setback = setback_of(exc, way)
    assert next_road(way, [COMMERCIAL], setback) == LOCAL_70B
    assert next_road(way, [COMMERCIAL, LOCAL_70B], setback) == LOCAL_8B
    assert next_road(way, [COMMERCIAL, LOCAL_70B, LOCAL_8B], setback) is None
    # Not even where it stands as an alternate that nobody has tried.
    onward = decision(LOCAL_8B, COMMERCIAL)
    assert next_road(onward, [LOCAL_8B], setback_of(exc, onward)) is None


@pytest.mark.parametrize(("first", "told"), [(Opens.ANY, "first"), (Opens.OVERFLOW, "last")])
def test_a_refused_mask_tells_the_cause_that_will_not_pass(first: Opens, told: str) -> None:
    errors = {name: ApiError(400, name, type="invalid_request_error") for name in ("first", "last")}
    setbacks = [
        Setback("window", first, errors["first"]),
        Setback("masking_refused", Opens.LOCAL, errors["last"]),
    ]
    assert final_error(setbacks) is errors[told]
    assert final_error(setbacks[1:]) is errors["last"]


# --- what a commercial endpoint refused, and what its failures leave behind


def late(limit: Late) -> Setback:
    return setback_of(LocalLate(limit), decision(LOCAL_8B, LOCAL_70B, COMMERCIAL))


@pytest.mark.parametrize("limit", get_args(Late))
def test_a_local_answer_that_takes_too_long_opens_every_road(limit: Late) -> None:
    way = decision(LOCAL_8B, LOCAL_70B, COMMERCIAL)
    setback = late(limit)
    assert (setback.cause, setback.opens, setback.upstream) == (limit, Opens.ANY, None)
    error = setback.error
    assert (error.status, error.code, error.type) == (504, f"local_{limit}", SERVER)
    assert next_road(way, [LOCAL_8B], setback) == LOCAL_70B
    assert next_road(way, [LOCAL_8B, LOCAL_70B], setback) == COMMERCIAL


@pytest.mark.parametrize(
    "exc",
    [
        UpstreamFailed("stall"),
        UpstreamRefused(400, "some_code"),
        UpstreamRefused(400, "context_length_exceeded"),
    ],
)
def test_what_an_endpoint_did_stands_in_its_setback_and_in_no_other(exc: Exception) -> None:
    assert setback_of(exc, decision(COMMERCIAL, LOCAL_70B)).upstream is exc
    assert setback_of(ContextLengthExceeded(9, 5), decision()).upstream is None


@pytest.mark.parametrize("road", [COMMERCIAL, LOCAL_8B])
def test_a_prompt_too_long_for_the_provider_may_be_served_here(road: Road) -> None:
    refusal = UpstreamRefused(400, "context_length_exceeded")
    way = decision(road, LOCAL_70B)
    setback = setback_of(refusal, way)
    assert (setback.cause, setback.opens, setback.error) == ("window", Opens.LOCAL, refusal)
    assert next_road(way, [road], setback) == LOCAL_70B
    assert (refusal.status, refusal.code) == (400, "context_length_exceeded")


def test_an_endpoint_that_is_left_alone_says_when_to_come_again() -> None:
    error = setback_of(UpstreamFailed("resting", retry_after_s=4.0), decision(COMMERCIAL)).error
    assert (error.status, error.code, error.type, error.retry_after_s) == (
        503,
        "upstream_resting",
        SERVER,
        4.0,
    )


OTHER = [UpstreamRefused(400, "invalid_value"), UpstreamRefused(401), UpstreamRefused(404, "model_not_found")]


@pytest.mark.parametrize("refusal", OTHER, ids=str)
@pytest.mark.parametrize(
    "cause", [*CONTENDED, EngineUnavailable(), ContextLengthExceeded(900, 512)], ids=kind_of
)
def test_a_refusal_on_the_way_out_does_not_hide_why_it_went(
    cause: Exception, refusal: UpstreamRefused
) -> None:
    way = decision(LOCAL_8B, COMMERCIAL, overflow=(COMMERCIAL,))
    first, last = setback_of(cause, way), setback_of(refusal, way)
    assert final_error([first, last]) is first.error
    assert final_error([last]) is refusal, "chosen, it is the answer"


@pytest.mark.parametrize("code", ["content_filter", "content_policy_violation"])
def test_a_judgement_of_the_content_is_told_wherever_it_came(code: str) -> None:
    way = decision(LOCAL_8B, COMMERCIAL, overflow=(COMMERCIAL,))
    judged = UpstreamRefused(400, code)
    assert final_error([setback_of(QueueFull(), way), setback_of(judged, way)]) is judged


def test_several_refusals_in_a_row_hide_it_no_better() -> None:
    way = decision(LOCAL_8B, COMMERCIAL, overflow=(COMMERCIAL,))
    busy = setback_of(QueueFull(), way)
    short = setback_of(UpstreamRefused(400, "context_length_exceeded"), way)
    other = setback_of(UpstreamRefused(401), way)
    assert final_error([busy, short, other]) is busy.error
    # With nothing before them the first is the reason: the larger window was only asked because of it.
    assert final_error([short, other]) is short.error
    stalled = setback_of(UpstreamFailed("stall"), way)
    assert final_error([busy, stalled, other]) is stalled.error, "what failed last, and not what failed first"
