"""Liveness and readiness: which parts can answer, in words an operator can act on."""

from __future__ import annotations

from typing import Any

from weighbridge.gateway.parts import Parts


def commercial_open(parts: Parts) -> bool:
    """Whether a request may leave at this moment: both switches on, the kill switch not thrown, masking up, and
    the ledger able to record it."""
    return (
        parts.gate.configured
        and not parts.switch.thrown()
        and parts.policies.current.egress == "masked"
        and parts.masker.ready
        and parts.ledger.healthy
    )


def readiness(parts: Parts) -> tuple[bool, dict[str, Any]]:
    """Whether at least one road can answer, and the state of every part.

    `status` is `ready` when every part is, `degraded` when some road can answer all the same, else `not_ready`.
    """
    tiers = {str(tier["road"]): tier for tier in parts.pool.status()}
    policy = parts.policies.current
    outward = commercial_open(parts)
    report: dict[str, Any] = {
        "tiers": {road: {"ready": tier["ready"], "state": tier["state"]} for road, tier in tiers.items()},
        # A damaged one was replaced at the start, and stays beside it until somebody takes it away.
        "ledger": {"ready": parts.ledger.healthy, "damaged": parts.ledger.damaged},
        "collector": _collector(parts),
        # Not needed: it is started only when a preview asks for it.
        "masking": {"ready": parts.masker.ready, "needed": parts.gate.configured},
        "commercial": {
            "configured": parts.gate.configured,
            "egress": policy.egress,
            # What has thrown the kill switch, if it is.
            "switched_off": parts.switch.by(),
            "endpoints": {name: how.value for name, how in parts.gate.outlets.standings().items()},
            "ready": outward,
        },
        **({} if parts.redis is None else {"redis": parts.redis.status()}),
        # What serves is a policy that was checked, whatever the file on disk has become.
        "policy": {"ready": True, "version": policy.version, "file": parts.policies.file_state},
    }
    can_answer = not parts.underway.draining and (outward or any(tier["ready"] for tier in tiers.values()))
    # Masking and the gate matter only where something is meant to leave.
    wanted = [tier["whole"] for tier in tiers.values()]
    wanted += [parts.ledger.healthy, not parts.ledger.damaged, report["collector"]["ready"]]
    if parts.redis is not None:
        wanted.append(parts.redis.available is True)
    if parts.gate.configured:
        wanted.append(parts.masker.ready)
    status = "not_ready" if not can_answer else "ready" if all(wanted) else "degraded"
    if parts.underway.draining:
        report["draining"] = True
    return can_answer, {"status": status, "parts": report}


def _collector(parts: Parts) -> dict[str, Any]:
    """Whether usage records arrive: late ones make the gateway degraded, and nothing else waits for them."""
    if parts.shipper is None:
        return {"configured": False, "ready": True}
    standing = parts.shipper.standing()
    return {
        "configured": True,
        "ready": not standing.late,
        "backlog": standing.records,
        "oldest_s": round(standing.oldest_s, 1),
        "trouble": standing.trouble,
    }
