"""P(the 8B fails) and P(the 70B fails and the frontier does not), from prompts on which all three were run."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from weighbridge.router.difficulty.examples import FITTED, Example
from weighbridge.router.difficulty.fit_tasks import LABELS, TaskFit
from weighbridge.router.difficulty.fitting import Floats, Row, Sparse, logistic_fit, platt
from weighbridge.router.difficulty.judged import PRIORS
from weighbridge.router.difficulty.model import FEWEST

GAIN: Final = {"word": 1.0, "pair": 0.7, "mark": 0.3, "lean": 0.3}
PENALTY: Final = 1.0
PARTS: Final = 5
_ALIKE: Final = 40
_UNKNOWN_MEAN: Final = 0.5
UNRUN_WEIGHT: Final = 0.3
"""What a prompt counts in the second risk where the frontier model was not run: nothing is left open where the 70B was
right, and where it was wrong the frontier may have been as well."""


@dataclass(frozen=True)
class RiskFit:
    """What was learnt of one risk; weights are log-odds, one row a known number of the tasks' fit.

    Args:
        weights: of words (divided by the root of how many there are) and marks.
        lean: of the probabilities of the tasks with outcomes.
        bias: log-odds of nothing.
        slope: of the calibration.
        shift: of the calibration.
        mean_of: share of failures by task.
    """

    weights: Floats
    lean: dict[str, float]
    bias: float
    slope: float
    shift: float
    mean_of: dict[str, float]


def eight_fails(row: dict[str, Any]) -> tuple[float, float] | None:
    """Target and weight of the first risk."""
    return None if row["score_8b"] is None else (1.0 - row["score_8b"], 1.0)


def seventy_fails_alone(share_won: float) -> Callable[[dict[str, Any]], tuple[float, float] | None]:
    """Target and weight of the second risk; `share_won`: of the 70B's failures, those the frontier got right."""

    def target(row: dict[str, Any]) -> tuple[float, float] | None:
        if row["score_70b"] is None:
            return None
        if row["score_frontier"] is not None:
            return max(0.0, row["score_frontier"] - row["score_70b"]), 1.0
        return (1.0 - row["score_70b"]) * share_won, UNRUN_WEIGHT

    return target


def fit_risks(fit: TaskFit, outcomes: Sequence[Example]) -> tuple[RiskFit, RiskFit]:
    """Fit both on the same view of the prompts."""
    lost = [
        r
        for e in outcomes
        if (r := e.row)["score_frontier"] is not None and r["score_70b"] is not None and r["score_70b"] < 0.5
    ]
    won = sum(r["score_frontier"] for r in lost) / len(lost) if lost else 0.5
    return _fit(fit, outcomes, 0, eight_fails), _fit(fit, outcomes, 1, seventy_fails_alone(won))


def _row(fit: TaskFit, example: Example) -> Row:
    """Words of the last turn, marks, task probabilities and a constant; only English words are looked at."""
    zones = fit.zones(example)
    own = zones["asking"] if example.seen.tall else [*zones["asking"], *zones["other"]]
    root = math.sqrt(max(FEWEST, len(own)))
    row: Row = {number: gain / root for number in own if (gain := GAIN.get(fit.names[number - 1][0]))}
    row |= dict.fromkeys(fit.mark_numbers(example), GAIN["mark"])
    wide = len(fit.names) + 1
    shares = fit.shares(example)
    places = [LABELS.index(task) for task in FITTED]
    mass = max(1e-9, float(sum(shares[place] for place in places)))
    return (
        row
        | {wide + k: GAIN["lean"] * float(shares[place]) / mass for k, place in enumerate(places)}
        | {0: 1.0}
    )


def _fit(
    fit: TaskFit,
    outcomes: Sequence[Example],
    place: int,
    target: Callable[[dict[str, Any]], tuple[float, float] | None],
) -> RiskFit:
    chosen = [(example, aim) for example in outcomes if (aim := target(example.row)) is not None]
    wide = len(fit.names) + 1
    rows = [_row(fit, example) for example, _ in chosen]
    width = wide + len(FITTED)
    targets = np.array([value for _, (value, _) in chosen])
    weights = np.array([weight for _, (_, weight) in chosen])
    penalty = np.full(width, PENALTY)
    penalty[0] = 1e-3
    part = np.array([_part(example.row["prompt"]) for example, _ in chosen])
    held = np.zeros(len(rows))
    for number in range(PARTS):
        out, rest = np.flatnonzero(part == number), np.flatnonzero(part != number)
        if not len(out) or not len(rest):
            continue
        found = logistic_fit(Sparse.of([rows[i] for i in rest], width), targets[rest], weights[rest], penalty)
        held[out] = Sparse.of([rows[i] for i in out], width).times(found)
    sure = weights >= 1.0
    slope, shift = _calibrated(fit, [example for example, _ in chosen], place, held, targets, sure)
    found = logistic_fit(Sparse.of(rows, width), targets, weights, penalty)
    gain = np.array([0.0, *[GAIN.get(kind, 0.0) for kind, _ in fit.names]])
    mean_of = {}
    for task in FITTED:
        outcomes_of = [value for example, (value, _) in chosen if example.row["task"] == task]
        mean_of[task] = sum(outcomes_of) / len(outcomes_of) if outcomes_of else _UNKNOWN_MEAN
    return RiskFit(
        found[:wide] * gain, {task: float(found[wide + k]) * GAIN["lean"] for k, task in enumerate(FITTED)},
        float(found[0]), slope, shift, mean_of,
    )  # fmt: skip


def _part(prompt: str) -> int:
    """The fold of a prompt; those that begin alike share it, as one may tell of the other."""
    start = "".join(filter(str.isalpha, prompt.lower()))[:_ALIKE]
    return hashlib.sha256(start.encode("utf-8", "replace")).digest()[0] % PARTS


def _calibrated(
    fit: TaskFit, examples: Sequence[Example], place: int, held: Floats, targets: Floats, sure: Any
) -> tuple[float, float]:
    """Slope and shift of the fitted part, so that with the judged part of what looks like another task the whole is
    calibrated."""
    shares = np.array([fit.shares(example) for example in examples])
    fitted = np.array([label in FITTED for label in LABELS])
    priors = np.array([PRIORS[label][place] if label in PRIORS else 0.0 for label in LABELS])
    mass = shares[:, fitted].sum(axis=1)
    left = np.clip((targets - shares @ priors) / np.maximum(mass, 0.05), 0.0, 1.0)
    return platt(held[sure], left[sure], mass[sure])
