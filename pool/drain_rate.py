"""How fast a tier's queue drains, from the slots it has given back: what a newcomer has to expect."""

from __future__ import annotations

from typing import Final

MIN_SAMPLES: Final = 4
"""Slots that must have come back before anything is predicted."""

_WEIGHT: Final = 1 / 32
"""Weight of the newest hold in the running mean; with a greater one a few long holds turn too many away. So would the
age of the holds that go on: among those at hand long ones are more common than among all."""

_CERTAINTY: Final = 0.6
"""Share of the predicted wait that is held against a newcomer: a wrong overflow costs money, a wrong wait only time.
Simulated: 5 % of those in time are turned away and 60 % of the others; 0.7 would be 8 and 68, 0.5 would be 3 and 49."""


class DrainRate:
    """The running mean of how long slots are held, in seconds."""

    __slots__ = ("_mean_s", "_samples")

    def __init__(self) -> None:
        self._mean_s = 0.0
        self._samples = 0

    def ended(self, held_s: float) -> None:
        """A slot came back after so many seconds."""
        self._samples += 1
        self._mean_s += max(_WEIGHT, 1 / self._samples) * (held_s - self._mean_s)

    def wait_s(self, ahead: int, in_use: int) -> float | None:
        """Seconds until a slot is free for one who has `ahead` requests before it, a low guess; None when not known.

        Args:
            in_use: slots held now. They, not all the tier has, come back: KV-cache tokens may be the bound.
        """
        if self._samples < MIN_SAMPLES or in_use < 1:
            return None
        return _CERTAINTY * (ahead + 1) * self._mean_s / in_use
