"""The decision: a pure function of the request's weight, the policy version and the recorded facts."""

from __future__ import annotations

import msgspec

from weighbridge.config.errors import ApiError
from weighbridge.config.roads import AUTO, COMMERCIAL, LOCAL_70B, LOCAL_ROADS, Road
from weighbridge.policies.compiled import Policy
from weighbridge.router.difficulty.score import CALIBRATION_VERSION, Assessment


class Facts(msgspec.Struct, frozen=True):
    """What a decision depends on besides the request and the policy; recorded with it."""

    tenant: str
    local_roads: tuple[Road, ...]
    """The tiers this deployment has, from the cheapest to the most capable."""
    commercial_configured: bool


class Decision(msgspec.Struct, frozen=True):
    """Where a request goes, why, and what may become of it."""

    road: Road
    alternates: tuple[Road, ...]
    """Roads it may move to, in order; which of them a setback opens is `failover.next_road`'s business."""
    explicit: bool
    """The caller named the road."""
    score: float
    """The calibrated score before any clamp."""
    clamped_score: float
    task: str
    language: str
    reasons: tuple[str, ...]
    may_leave: bool
    """Both switches are on: the policy says masked and a commercial endpoint is configured."""
    egress_reason: str
    """Why it would leave if `road` is commercial: `score`, `task` or `explicit`."""
    queue_lock_timeout_ms: int
    policy_version: str
    calibration_version: str


def decide(model: str, weight: Assessment, policy: Policy, facts: Facts) -> Decision:
    """Choose the road.

    Raises:
        ApiError: 403 for an explicit commercial road that is closed, 404 for a tier that is not here, 503
            when there is no road at all.
    """
    egress = policy.egress_for(facts.tenant)
    may_leave = egress == "masked" and facts.commercial_configured
    if model == AUTO:
        placed = policy.place(weight.task, weight.score, facts.tenant)
        road, moved = _reachable(placed.road, facts.local_roads, may_leave, egress)
        alternates = _alternates(road, facts.local_roads, may_leave)
        reasons = (*placed.reasons, *moved)
        clamped = placed.clamped_score
        egress_reason: str = placed.decided_by
    else:
        road = _explicit(model, facts, egress)
        overflow = policy.explicit_local == "overflow" and road in LOCAL_ROADS and may_leave
        alternates = (COMMERCIAL,) if overflow else ()
        reasons = (f"explicit model {road}",)
        clamped = weight.score
        egress_reason = "explicit"
    return Decision(
        road=road,
        alternates=alternates,
        explicit=model != AUTO,
        score=weight.score,
        clamped_score=clamped,
        task=weight.task,
        language=weight.language,
        reasons=reasons,
        may_leave=may_leave,
        egress_reason=egress_reason,
        queue_lock_timeout_ms=policy.queue_lock_timeout_ms_for(facts.tenant),
        policy_version=policy.version,
        calibration_version=CALIBRATION_VERSION,
    )


def _reachable(
    wanted: Road, local: tuple[Road, ...], may_leave: bool, egress: str
) -> tuple[Road, tuple[str, ...]]:
    """`wanted`, or the best road there is instead, with the reason in words."""
    if wanted == COMMERCIAL:
        if may_leave:
            return wanted, ()
        why = "egress never" if egress == "never" else "no commercial endpoint configured"
        if not local:
            raise ApiError(503, f"No road is open: {why}.", type="server_error", code="no_road")
        return local[-1], (f"{why}: best local tier {local[-1]}",)
    if wanted in local:
        return wanted, ()
    why = f"no {wanted} tier here"
    if local:
        return local[-1], (f"{why}: {local[-1]}",)
    if may_leave:
        return COMMERCIAL, (f"{why}: commercial",)
    raise ApiError(503, f"No road is open: {why}.", type="server_error", code="no_road")


def _alternates(road: Road, local: tuple[Road, ...], may_leave: bool) -> tuple[Road, ...]:
    """Upwards first; a smaller model only when nothing else is left."""
    outward: tuple[Road, ...] = (COMMERCIAL,) if may_leave and road != COMMERCIAL else ()
    others = tuple(tier for tier in reversed(local) if tier != road)
    return (*outward, *others) if road == LOCAL_70B else (*others, *outward)


def _explicit(model: str, facts: Facts, egress: str) -> Road:
    if model == COMMERCIAL:
        if egress == "never":
            raise ApiError(
                403,
                "The policy in force lets nothing leave (egress: never); choose a local model or 'auto'.",
                type="permission_error",
                code="egress_refused",
                param="model",
            )
        if not facts.commercial_configured:
            raise ApiError(
                403,
                "No commercial endpoint is configured here; choose a local model or 'auto'.",
                type="permission_error",
                code="commercial_not_configured",
                param="model",
            )
        return COMMERCIAL
    for road in facts.local_roads:
        if road == model:
            return road
    raise ApiError(
        404,
        "This gateway does not serve that model; GET /v1/models lists those it serves.",
        type="invalid_request_error",
        code="model_not_found",
        param="model",
    )
