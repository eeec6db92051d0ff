"""How a decision came about, for a caller who asks: names and figures of ours, never a piece of the request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from weighbridge.router.decision import UNWEIGHED, Decision
from weighbridge.router.difficulty.score import assess
from weighbridge.router.roads import Weighed

EXPLANATION: Final = b"x-weighbridge-explanation"


def explanation(weighed: Weighed, body: Mapping[str, Any]) -> bytes:
    """One line of JSON in ASCII, as the value of a header.

    `score` is the calibrated one, `clamped_score` what the policy made of it; `above_bound` is its distance to either
    bound, below 0 where it is under it. `moved_by` are the features that moved P(the 8B fails) most, in log-odds.
    `decided_road` is where the request was sent first, whatever became of it there. A request that was decided without
    being weighed is weighed for this line alone.
    """
    policy, weight = weighed.policy, weighed.weight
    if weight is UNWEIGHED:
        weight = assess(body)
    score = weight.score_at(policy.risk)
    bounds = {"local-8b": policy.local_8b, "local-70b": policy.local_70b}
    told: dict[str, Any] = {
        "task": weight.task,
        "language": weight.language,
        "p_8b_fails": round(weight.p_8b_fails, 4),
        "p_70b_fails": round(weight.p_70b_fails, 4),
        "risk": {"local-8b": policy.risk.local_8b, "local-70b": policy.risk.local_70b},
        "score": round(score, 4),
        "above_bound": {road: round(score - bound, 4) for road, bound in bounds.items()},
        "moved_by": weight.features,
    }
    if isinstance(weighed.outcome, Decision) and weighed.score is not None:
        told["clamped_score"] = round(weighed.outcome.clamped_score, 4)
    told |= {
        "decided_road": weighed.road or None,
        "reasons": weighed.reasons,
        "policy": policy.version,
        "calibration": weighed.calibration_version,
    }
    return json.dumps(told, separators=(",", ":")).encode("ascii")
