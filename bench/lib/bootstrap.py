"""How sure a median is: a percentile bootstrap over the pairs of one run."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 10_000
SHARE = 0.95
SEED = 20_261_129


@dataclass(frozen=True)
class Interval:
    """A median and where it may lie."""

    median: float
    low: float
    high: float


def interval(values: Sequence[float], *, resamples: int = RESAMPLES, seed: int = SEED) -> Interval:
    """The median of `values` and the middle 95 % of the medians of as many values drawn from them with repetition.

    The same values give the same interval.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values")
    draw = random.Random(seed)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(resamples))
    cut = round(resamples * (1 - SHARE) / 2)
    return Interval(statistics.median(values), medians[cut], medians[resamples - 1 - cut])
