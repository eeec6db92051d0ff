"""The decision: a pure function of the request's weight, the policy version and the recorded facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from weighbridge.config.errors import ApiError
from weighbridge.config.roads import AUTO, COMMERCIAL, LOCAL_70B, LOCAL_ROADS, ROADS, Road
from weighbridge.policies.compiled import Policy
from weighbridge.policies.leaving import FORBIDDEN, NEVER
from weighbridge.policies.reach import THE_KEY, Reach
from weighbridge.router.difficulty.score import CALIBRATION_VERSION, Assessment
from weighbridge.state.pins import PinState


class Facts(msgspec.Struct, frozen=True):
    """What a decision depends on besides the request and the policy; recorded with it."""

    tenant: str
    local_roads: tuple[Road, ...]
    """The tiers this deployment has, from the cheapest to the most capable."""
    commercial_configured: bool
    adapters: Mapping[str, Road] = {}
    """LoRA adapters by name, and the tier that has each."""
    max_queue_ms: int | None = None
    """How long the caller wants to wait for a slot at most."""
    batch: bool = False
    """The caller lets interactive requests go first."""
    key_id: str = ""
    data_class: str | None = None
    """The class of its data that the caller named, in small letters."""
    conversation: PinState | None = None
    """How the conversation stands that the caller named; None where it named none."""
    switched_off: bool = False
    """The kill switch lets nothing leave."""
    barred: frozenset[Road] = frozenset()
    """Roads that the caller's key may not use."""


class Decision(msgspec.Struct, frozen=True):
    """Where a request goes, why, and what may become of it."""

    road: Road
    alternates: tuple[Road, ...]
    """Roads it may move to, in order; which of them a setback opens is `failover.next_road`'s business. None of them is
    forbidden, above the ceiling or below the floor; the same holds for `overflow`."""
    overflow: tuple[Road, ...]
    """Roads it may move to when its tier is contended, in order: the policy's `overflow_order`."""
    explicit: bool
    """The caller named the road."""
    score: float
    """The calibrated score before any clamp."""
    clamped_score: float
    task: str
    language: str
    reasons: tuple[str, ...]
    may_leave: bool
    """The policy lets this request leave, no ceiling and nothing else keeps it in, and a commercial endpoint is
    configured."""
    egress_reason: str
    """Why it would leave if `road` is commercial: `score`, `task`, `rule` or `explicit`."""
    queue_lock_timeout_ms: int
    """How long it may wait for slots in all; 0 takes one that is free or none."""
    batch: bool
    """It goes after the interactive ones."""
    adapter: str | None
    """The LoRA adapter that answers; None is the tier's model itself."""
    drain_s: float
    """Seconds a commercial answer is read on after its caller has left; 0 ends it at once."""
    policy_version: str
    calibration_version: str
    on_refusal: Literal["local", "reject"] = "local"
    """What becomes of it when it may not leave as it stands: a local tier may still serve it, or nobody."""


UNWEIGHED: Final = Assessment(0.0, "unknown", "other", ())
"""Stands for a weight that nobody asked for; see `needs_weight`. The record and the headers then hold no score."""

NOT_FOR_KEY: Final = f"commercial not allowed for {THE_KEY}"

Why = tuple[tuple[str, ...], tuple[str, ...]]


def needs_weight(model: str, policy: Policy, facts: Facts) -> bool:
    """Whether anything hangs on a request's weight: not where the caller named a local tier that no task forbids, the
    policy lets it stay there whatever comes, and there is no conversation that could be pinned for what the request
    is."""
    named = policy.aliases.get(model, model)
    if named in (AUTO, COMMERCIAL) or policy.explicit_local != "stay" or facts.conversation is not None:
        return True
    road = facts.adapters.get(named, named)
    return any(policy.forbids_for_tasks(local) for local in LOCAL_ROADS if local == road)


def why_not(weight: Assessment, policy: Policy, facts: Facts) -> Why:
    """Why the request does not leave.

    Returns:
        What the policy or the key has against it, and what else keeps it in. The first lies in the request and lasts: a
        conversation that was kept in for it stays local for good.
    """
    lasting = policy.leaving.why_not(facts.tenant, facts.key_id, weight.task, facts.data_class)
    if COMMERCIAL in facts.barred:
        lasting = (*lasting, NOT_FOR_KEY)
    other = [] if facts.conversation in (None, "open") else [_CONVERSATION[facts.conversation]]
    if facts.switched_off:
        other.append("egress switched off")
    return lasting, tuple(other)


_CONVERSATION: Mapping[PinState | None, str] = {
    "local": "conversation pinned local",
    "lost": "conversation pin lost: pinned local",
    "unreadable": "conversation pins not readable",
}


def decide(model: str, weight: Assessment, policy: Policy, facts: Facts, why: Why | None = None) -> Decision:
    """Choose the road for a request for `model`, which may be an alias of the policy's.

    Args:
        why: what `why_not` says of the same arguments, where that is known already.

    Raises:
        ApiError: 403 for an explicit commercial road that is closed, 404 for a tier that is not here, 503
            when there is no road at all; 403 where the policy's rules and the key leave none.
    """
    lasting, other = why or why_not(weight, policy, facts)
    closed = (*lasting, *other)
    may_leave = not closed and facts.commercial_configured
    named = policy.aliases.get(model)
    alias = () if named is None else (f"alias {model} of {named}",)
    model = named or model
    score = weight.score_at(policy.risk)
    reach = policy.reach(weight.task, facts.tenant, facts.key_id, facts.barred)
    if model == AUTO:
        placed = policy.place(weight.task, score, facts.tenant, facts.key_id, facts.barred)
        may_leave = may_leave and reach.allows(COMMERCIAL)
        road, moved = _reachable(placed.road, facts, reach, may_leave, closed)
        alternates = _alternates(road, facts.local_roads, may_leave)
        overflow = _overflow(road, policy.overflow_order, facts.local_roads, may_leave)
        reasons = (*placed.reasons, *moved)
        clamped = placed.clamped_score
        egress_reason: str = placed.decided_by
    else:
        road = _explicit(model, facts, closed, reach)
        may_leave = may_leave and (road == COMMERCIAL or reach.allows(COMMERCIAL))
        may_move = policy.explicit_local == "overflow" and road in LOCAL_ROADS
        alternates = (COMMERCIAL,) if may_move and may_leave else ()
        overflow = _overflow(road, policy.overflow_order, facts.local_roads, may_leave) if may_move else ()
        if model in facts.adapters:
            # No other tier has it.
            overflow = tuple(other for other in overflow if other == COMMERCIAL)
        reasons = (f"explicit model {model}" if model == road else f"explicit adapter {model} on {road}",)
        clamped = score
        egress_reason = "explicit"
    wait_ms = policy.queue_lock_timeout_ms_for(facts.tenant)
    return Decision(
        road=road,
        alternates=_within(alternates, reach),
        overflow=_within(overflow, reach),
        explicit=model != AUTO,
        score=score,
        clamped_score=clamped,
        task=weight.task,
        language=weight.language,
        # What holds for the policy, the tenant or the key as a whole is told only where it moved the request.
        reasons=(
            *alias,
            *_wishes(facts),
            *(why for why in closed if why not in (NEVER, FORBIDDEN, NOT_FOR_KEY)),
            *reasons,
        ),
        may_leave=may_leave,
        egress_reason=egress_reason,
        queue_lock_timeout_ms=wait_ms if facts.max_queue_ms is None else min(wait_ms, facts.max_queue_ms),
        batch=facts.batch or policy.is_batch(facts.tenant),
        adapter=model if model in facts.adapters else None,
        drain_s=policy.drain_s,
        policy_version=policy.version,
        calibration_version=CALIBRATION_VERSION,
        on_refusal=policy.leaving.on_refusal,
    )


def _reachable(
    wanted: Road, facts: Facts, reach: Reach, may_leave: bool, closed: tuple[str, ...]
) -> tuple[Road, tuple[str, ...]]:
    """`wanted`, or the best road there is instead, with the reason in words. None that the rules do not allow; a floor
    gives way where nothing above it is open."""
    here = facts.local_roads
    local = tuple(tier for tier in here if reach.allows(tier))
    if wanted == COMMERCIAL:
        if may_leave:
            return wanted, ()
        why = closed[0] if closed else "no commercial endpoint configured"
        if local:
            return local[-1], (f"{why}: best local tier {local[-1]}",)
        if here:
            raise _no_road_left(facts.barred)
        if closed:
            raise egress_refused(why, "there is no local model here")
        raise ApiError(503, f"No road is open: {why}.", type="server_error", code="no_road")
    if wanted in local:
        return wanted, ()
    why = f"no {wanted} tier here"
    if local and (reach.holds(local[-1]) or not may_leave):
        return local[-1], (f"{why}: {local[-1]}",)
    if may_leave:
        return COMMERCIAL, (f"{why}: commercial",)
    if here:
        raise _no_road_left(facts.barred)
    raise ApiError(503, f"No road is open: {why}.", type="server_error", code="no_road")


def _no_road_left(barred: frozenset[Road]) -> ApiError:
    allowed = ", ".join(road for road in ROADS if road not in barred)
    return ApiError(
        403,
        f"No road is open for this request: its API key may use {allowed} alone, and what the policy leaves of that is "
        "not to be had here."
        if barred
        else "The policy leaves no road open for this request: the others are forbidden or above its ceiling.",
        type="permission_error",
        code="no_road_allowed",
    )


def _within(roads: tuple[Road, ...], reach: Reach) -> tuple[Road, ...]:
    """Those that a request may move to: a ceiling is not passed upwards, nor a floor downwards."""
    return tuple(road for road in roads if reach.allows(road) and reach.holds(road))


def _alternates(road: Road, local: tuple[Road, ...], may_leave: bool) -> tuple[Road, ...]:
    """Upwards first; a smaller model only when nothing else is left."""
    outward: tuple[Road, ...] = (COMMERCIAL,) if may_leave and road != COMMERCIAL else ()
    others = tuple(tier for tier in reversed(local) if tier != road)
    return (*outward, *others) if road == LOCAL_70B else (*others, *outward)


def _wishes(facts: Facts) -> tuple[str, ...]:
    """What the caller's headers had to do with it, for the record."""
    wait = () if facts.max_queue_ms is None else (f"caller waits {facts.max_queue_ms} ms at most",)
    return (*wait, "caller says batch") if facts.batch else wait


def _overflow(
    road: Road, order: tuple[str, ...], local: tuple[Road, ...], may_leave: bool
) -> tuple[Road, ...]:
    """The policy's words as roads: the nearest tier first, above or below."""
    if road == COMMERCIAL:
        return ()
    at = LOCAL_ROADS.index(road)
    roads: list[Road] = []
    for word in order:
        if word == "higher-local":
            roads += [tier for tier in LOCAL_ROADS[at + 1 :] if tier in local]
        elif word == "lower-local":
            roads += [tier for tier in reversed(LOCAL_ROADS[:at]) if tier in local]
        elif may_leave:
            roads.append(COMMERCIAL)
    return tuple(roads)


def egress_refused(why: str, what: str, param: str | None = None) -> ApiError:
    """403 without `Retry-After`: coming again does not help. `why` and `what` hold nothing of the request."""
    return ApiError(
        403,
        f"This request may not leave ({why}); {what}.",
        type="permission_error",
        code="egress_refused",
        param=param,
    )


def _explicit(model: str, facts: Facts, closed: tuple[str, ...], reach: Reach) -> Road:
    """The road that the caller named. It stands before pin, floor and ceiling, and never before what is forbidden."""
    if model == COMMERCIAL:
        if closed:
            raise egress_refused(closed[0], "choose a local model or 'auto'", param="model")
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
        if road == model or facts.adapters.get(model) == road:
            if road in reach.forbidden:
                who = (
                    "This API key may not" if road in facts.barred else "The policy does not let this request"
                )
                raise ApiError(
                    403,
                    f"{who} use {road}; choose another model or 'auto'.",
                    type="permission_error",
                    code="road_forbidden",
                    param="model",
                )
            return road
    raise ApiError(
        404,
        "This gateway does not serve that model; GET /v1/models lists those it serves.",
        type="invalid_request_error",
        code="model_not_found",
        param="model",
    )
