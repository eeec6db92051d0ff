"""How much risk of a failed answer a policy takes on each local road."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Risk:
    """The calibrated probability of failure up to which a road is good enough (0 to 1)."""

    local_8b: float = 0.30
    local_70b: float = 0.30
