"""How much risk of a failed answer a policy takes on each local road."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Risk:
    """The calibrated probability of failure up to which a road is good enough (0 to 1); both are strict bounds.

    The first is the 8B's; the second is that of the 70B failing where the frontier model would not.
    """

    local_8b: float = 0.30
    local_70b: float = 0.17
