"""What a request asks the queue of a tier for: how long it may wait, ahead of whom, and at which worker."""

from __future__ import annotations

from collections.abc import Collection

from weighbridge.config.deadline import Deadline
from weighbridge.pool.slot_lock import Ask, Priority
from weighbridge.pool.tier import Tier
from weighbridge.router.admitted import Admitted
from weighbridge.router.affinity import affinity_of
from weighbridge.router.decision import Decision


def first_ask(
    tier: Tier,
    request: Admitted,
    decision: Decision,
    deadline: Deadline,
    *,
    queued_ms: float,
    wait: bool,
    shunned: Collection[str],
) -> Ask:
    """For the start of an answer. All of a request's waiting, on whatever tiers, comes out of one allowance.

    Args:
        queued_ms: milliseconds it has waited so far.
        wait: whether it may wait at all; else it takes a free slot or none.
        shunned: workers that could not serve it.
    """
    left_s = (decision.queue_lock_timeout_ms - queued_ms) / 1000
    may_wait = wait and left_s > 0
    return Ask(
        deadline.within(left_s) if may_wait else deadline,
        Priority.BATCH if decision.batch else Priority.INTERACTIVE,
        request.tenant,
        affinity=_affinity(tier, request),
        wait=may_wait,
        shunned=frozenset(shunned),
    )


def ask_to_go_on(tier: Tier, request: Admitted, deadline: Deadline) -> Ask:
    """For a stream that lost its worker: before everybody who has not begun."""
    return Ask(deadline, Priority.CONTINUED, request.tenant, affinity=_affinity(tier, request))


def _affinity(tier: Tier, request: Admitted) -> bytes:
    return affinity_of(request.body, request.tenant) if len(tier.workers) > 1 else b""
