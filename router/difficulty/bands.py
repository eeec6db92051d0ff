"""From two risks to one score: three bands whose borders are the policy's fixed bounds."""

from __future__ import annotations

import math
from typing import Final

from weighbridge.policies.risk import Risk

FIRST: Final = 0.45
SECOND: Final = 0.55
_BELOW_FIRST: Final = math.nextafter(FIRST, 0.0)
_BELOW_SECOND: Final = math.nextafter(SECOND, 0.0)


_8B_IN_SECOND: Final = 0.5
_8B_BEYOND: Final = 0.35
"""How much of the way through a band is the 8B's risk; the rest is the 70B's. Chosen on the development part: the order
then says nearly as much of who wins by the dearer road as the second risk alone, and more of whom the 8B fails."""


def banded(p_8b_fails: float, p_70b_fails: float, risk: Risk) -> float:
    """The score of two probabilities (0 to 1) under an appetite for risk.

    Below 0.45 exactly when the 8B's risk is under `risk.local_8b`; from there to 0.55 exactly when it is not and the
    70B's is under `risk.local_70b`; 0.55 and above otherwise. In the first band the score rises with the 8B's risk, in
    the other two with both. So it is monotone in each probability while the other stands still, and which band a
    request is in never depends on how far inside it is.
    """
    if p_8b_fails < risk.local_8b:
        return min(FIRST * p_8b_fails / risk.local_8b, _BELOW_FIRST)
    eight = _beyond(p_8b_fails, risk.local_8b)
    if p_70b_fails < risk.local_70b:
        way = _8B_IN_SECOND * eight + (1.0 - _8B_IN_SECOND) * p_70b_fails / risk.local_70b
        return min(FIRST + (SECOND - FIRST) * way, _BELOW_SECOND)
    way = _8B_BEYOND * eight + (1.0 - _8B_BEYOND) * _beyond(p_70b_fails, risk.local_70b)
    return min(1.0, SECOND + (1.0 - SECOND) * way)


def _beyond(probability: float, appetite: float) -> float:
    """How far above the appetite, from 0 there to 1 at certainty."""
    room = 1.0 - appetite
    return (probability - appetite) / room if room > 0.0 else 1.0
