"""What a failed attempt means: the word for the record, the roads it opens, the error if none is left."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Literal

from weighbridge.commercial.errors import ClosedBy, EgressClosed, UpstreamFailed, UpstreamRefused
from weighbridge.config.errors import ApiError, ContextLengthExceeded
from weighbridge.config.evidence import Evidence
from weighbridge.config.roads import COMMERCIAL, LOCAL_ROADS, Road
from weighbridge.masking.errors import PASSING, MaskingRefused, Reason
from weighbridge.observability.ledger import LedgerUnavailable
from weighbridge.pool.engine import EngineOverloaded, EngineUnavailable
from weighbridge.pool.slot_lock import NoFreeSlot, QueueFull, QueueLockTimeout, WaitTooLong
from weighbridge.pool.worker import TierNotReady
from weighbridge.router.decision import Decision, egress_refused

log = logging.getLogger("weighbridge.router")


class EmptyAnswer(Exception):
    """A stream ended without content and without a finish reason."""


class WorkerLost(ApiError):
    """A stream broke off, and no other worker could go on with it in time."""

    def __init__(self) -> None:
        super().__init__(
            503,
            "The local model's worker was lost in the middle of the answer, and no other one could go on with it.",
            type="server_error",
            code="worker_lost",
            retry_after_s=5,
        )


Late = Literal["first_token_late", "stalled", "too_long"]


class LocalLate(ApiError):
    """A local model took longer than the policy's limits for local answers.

    Args:
        limit: which one.
    """

    def __init__(self, limit: Late) -> None:
        super().__init__(
            504,
            "The local model took longer than the policy allows.",
            type="server_error",
            code=f"local_{limit}",
        )
        self.limit: Late = limit


class Escalated(ApiError):
    """A local answer is not good enough, and nothing of it was sent.

    Args:
        road: where it was made.
        evidence: what speaks against it.
        again: only its beginning was made, so the road is asked again where none above it serves.
    """

    def __init__(self, road: Road, evidence: Evidence, *, again: bool) -> None:
        super().__init__(502, "The local model gave no usable answer.", type="server_error", code="escalated")
        self.road: Road = road
        self.evidence: Evidence = evidence
        self.again = again


class Opens(Enum):
    """Which roads a setback opens."""

    NOTHING = auto()
    """The request itself is at fault, or the provider's word is final."""
    OVERFLOW = auto()
    """The tier is contended: the roads of the policy's `overflow_order`. No other queue is joined."""
    ANY = auto()
    """The backend is gone or cannot hold the prompt."""
    ABOVE = auto()
    """There is an answer, and a better one is wanted: the roads above, one after the other."""
    LOCAL = auto()
    """The outward road failed or was refused; a refusal closes it for good."""


_CONTENDED: Final[Mapping[type[ApiError], str]] = {
    QueueLockTimeout: "queue_timeout",
    WaitTooLong: "queue_predicted",
    NoFreeSlot: "no_free_slot",
    QueueFull: "queue_full",
    EngineOverloaded: "engine_overloaded",
}


POLICY_CODES: Final = frozenset({"content_filter", "content_policy_violation", "moderation_blocked"})
"""The provider has judged the content itself."""

TOO_LONG: Final = "context_length_exceeded"
"""The provider's model has too small a window; one with a larger one may take the same request."""

_REFUSED: Final = ("masking_refused", "egress_closed")


@dataclass(frozen=True, slots=True)
class Setback:
    """One attempt that did not serve."""

    cause: str
    opens: Opens
    error: ApiError
    upstream: UpstreamFailed | UpstreamRefused | None = None
    """What the commercial endpoint did, where it was one."""
    detail: str = ""
    """For the log: the status, code or reason beside the cause."""
    again: bool = False
    """Where no road above serves, the same one is asked again."""

    @property
    def words(self) -> str:
        """For the log."""
        return f"{self.cause} ({self.detail})" if self.detail else self.cause

    @property
    def refused(self) -> bool:
        """The request was not let out. For it no outward road is open any more, and it may ask a tier again that it
        left in a hurry."""
        return self.cause in _REFUSED


def setback_of(exc: Exception, decision: Decision) -> Setback:
    """Read what went wrong. Exceptions that are nobody's plan are re-raised."""
    retry = math.ceil(max(1.0, decision.queue_lock_timeout_ms / 1000))
    match exc:
        case QueueLockTimeout() | QueueFull() | EngineOverloaded():
            cause = _CONTENDED[type(exc)]
            return Setback(cause, Opens.OVERFLOW, _contended(cause, retry))
        case TierNotReady():
            return Setback("not_ready", Opens.ANY, _no_capacity(retry))
        case WorkerLost():
            return Setback("worker_lost", Opens.NOTHING, exc)
        case EngineUnavailable():
            return Setback("engine_unavailable", Opens.ANY, exc)
        case ContextLengthExceeded():
            return Setback("window", Opens.ANY, exc)
        case MaskingRefused(reason=reason):
            opens = Opens.NOTHING if decision.on_refusal == "reject" else Opens.LOCAL
            return Setback("masking_refused", opens, _refused(decision, reason, retry), detail=reason)
        case EgressClosed(by=by):
            return Setback("egress_closed", Opens.LOCAL, _closed(decision, by, retry), detail=by)
        case LedgerUnavailable():
            return Setback("ledger_unavailable", Opens.LOCAL, _no_record(retry))
        case EmptyAnswer():
            return Setback("empty_answer", Opens.ANY, _empty())
        case Escalated(evidence=evidence, again=again):
            return Setback(f"escalated_{evidence}", Opens.ABOVE, exc, again=again)
        case LocalLate(limit=limit):
            return Setback(limit, Opens.ANY, exc)
        case UpstreamFailed():
            status = "" if exc.status is None else f"status {exc.status}"
            return Setback(f"upstream_{exc.kind}", Opens.LOCAL, _upstream(exc), exc, status)
        case UpstreamRefused() if exc.upstream_code == TOO_LONG:
            return Setback("window", Opens.LOCAL, exc, exc, _refusal(exc))
        case UpstreamRefused():
            return Setback("refused", Opens.NOTHING, exc, exc, _refusal(exc))
        case ApiError():
            return Setback("refused", Opens.NOTHING, exc)
        case _:
            raise exc


def next_road(decision: Decision, tried: Collection[Road], setback: Setback) -> Road | None:
    """The first road that `setback` opens and that was not tried yet."""
    if setback.opens is Opens.NOTHING:
        return None
    for road in decision.overflow if setback.opens is Opens.OVERFLOW else decision.alternates:
        if road in tried or (setback.opens is Opens.LOCAL and road not in LOCAL_ROADS):
            continue
        return road
    return None


def final_error(setbacks: Sequence[Setback]) -> ApiError:
    """What the caller is told when no road is left.

    A request that was on its way out for want of a window or of a tier, and could not be masked, hears of the first
    cause: coming again would not help it, as it does after a full queue.
    """
    last = setbacks[-1]
    if _turned_away(last):
        # It came there because a tier or another endpoint was busy or gone, and was not wanted: that is no news of the
        # request.
        last = next((setback for setback in reversed(setbacks) if not _turned_away(setback)), setbacks[0])
    if last.refused and last.opens is Opens.LOCAL and len(setbacks) > 1 and setbacks[-2].opens is Opens.ANY:
        return setbacks[-2].error
    if last.cause == "not_ready":
        # Busy, not gone: the caller may come again.
        last = next((setback for setback in setbacks if setback.opens is Opens.OVERFLOW), last)
    if last.opens is Opens.OVERFLOW:
        # What closed the way out besides, with its reason.
        last = next(
            (setback for setback in setbacks if setback.refused and setback.error.status == 429), last
        )
    return last.error


def _turned_away(setback: Setback) -> bool:
    """Whether a provider refused the request for another reason than its content."""
    said = setback.upstream
    return isinstance(said, UpstreamRefused) and said.upstream_code not in POLICY_CODES


def answer_to(exc: Exception, request_id: str, phase: str) -> ApiError:
    """What the caller is told of whatever ended the request. The others are for the log."""
    if isinstance(exc, ApiError):
        return exc
    if isinstance(exc, TimeoutError):
        return ApiError(
            504, "The request took longer than this gateway allows.", type="server_error", code="timeout"
        )
    # The type alone: an exception's text may hold a piece of the request.
    log.error("request %s: unexpected %s in %s", request_id, type(exc).__name__, phase)
    return ApiError(500, "Something went wrong in the gateway.", type="server_error", code="internal_error")


def egress_reason(setback: Setback) -> str:
    """The word the egress row gives for an overflow after `setback`."""
    if setback.opens is Opens.OVERFLOW:
        return "queue_lock_timeout"
    if setback.cause in ("first_token_late", "too_long"):
        return "local_late"
    return "window" if setback.cause == "window" else "worker_lost"


def _refusal(exc: UpstreamRefused) -> str:
    return f"status {exc.upstream_status}" + (f", {exc.upstream_code}" if exc.upstream_code else "")


def _empty() -> ApiError:
    return ApiError(502, "The model gave no answer.", type="server_error", code="empty_answer")


def _contended(cause: str, retry: int) -> ApiError:
    return ApiError(
        429,
        "The local models are busy and this request may not be served elsewhere; try again shortly.",
        type="rate_limit_error",
        code="queue_full" if cause == "queue_full" else "queue_lock_timeout",
        retry_after_s=retry,
    )


def _no_capacity(retry: int) -> ApiError:
    return ApiError(
        503,
        "The local model is still loading or is down, and no other road is open for this request.",
        type="server_error",
        code="no_capacity",
        retry_after_s=max(retry, 5),
    )


def _refused(decision: Decision, reason: Reason, retry: int) -> ApiError:
    # Else the local queue was the problem, and it passes: the caller may come again.
    final = decision.road == COMMERCIAL or decision.on_refusal == "reject"
    if final and reason in PASSING:
        return ApiError(
            503,
            f"The request could not be masked at the moment ({reason}), so it was not sent.",
            type="server_error",
            code="masking_unavailable",
            retry_after_s=retry,
        )
    if final:
        return ApiError(
            403,
            f"The request could not be made safe to leave ({reason}), so it was not sent.",
            type="permission_error",
            code="egress_refused",
        )
    return _not_let_out(f"could not be made safe to leave ({reason})", retry)


def _closed(decision: Decision, by: ClosedBy, retry: int) -> ApiError:
    why = "egress switched off" if by == "switched_off" else "conversation pinned local"
    if decision.road == COMMERCIAL:
        return egress_refused(why, "it was not sent")
    return _not_let_out(f"may not leave ({why})", retry)


def _not_let_out(why: str, retry: int) -> ApiError:
    return ApiError(
        429,
        f"The local models are busy, and the request {why}.",
        type="rate_limit_error",
        code="overflow_not_permitted",
        retry_after_s=retry,
    )


def _no_record(retry: int) -> ApiError:
    return ApiError(
        503,
        "The usage ledger cannot be written, so nothing may leave; local models go on serving.",
        type="server_error",
        code="ledger_unavailable",
        retry_after_s=max(retry, 5),
    )


def _upstream(exc: UpstreamFailed) -> ApiError:
    if exc.status == 429:
        return ApiError(
            429,
            "The commercial API is rate limiting.",
            type="rate_limit_error",
            code="upstream_rate_limited",
            retry_after_s=exc.retry_after_s or 1,
        )
    if exc.kind == "resting":
        return ApiError(
            503,
            "The commercial API has failed too often and is being left alone for a moment.",
            type="server_error",
            code="upstream_resting",
            retry_after_s=exc.retry_after_s,
        )
    late = exc.kind in ("stall", "timeout")
    return ApiError(
        504 if late else 502,
        "The commercial API did not answer in time." if late else "The commercial API failed.",
        type="server_error",
        code=f"upstream_{exc.kind}",
        retry_after_s=exc.retry_after_s,
    )
