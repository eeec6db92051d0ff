"""Chooses `escalation.min_mean_logprob` on answers of a local model whose worth is known.

FILE holds JSON Lines, one answer each: `failed` (true, false, or 0 to 1), and either `mean_logprob` or `response`, the
chat completion that came back on `"logprobs": true`. Printed are how well the mean log-probability tells failures
(AUC), and for each bound which share of the answers would move up, how many of these had failed, and how many of all
failures that is, with 95 % intervals from resampled rows. Chosen is the highest bound under which at least
`--precision` of what moves up had failed. Exit status: 0 a bound was chosen; 1 none is worth it; 2 nothing to choose
on.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weighbridge.router.difficulty.measures import auc

FEWEST = 100
"""Rows, and of them at least a tenth of either kind, below which no bound is chosen."""

STEPS = 20
SEED = 20_260
RESAMPLES = 300


class Row(NamedTuple):
    """One answer: its mean log-probability (natural, at most 0), and how much of a failure it was (0 to 1)."""

    sure: float
    failed: float


class Moved(NamedTuple):
    """What a bound does: the share that moves up, failures among it, and of all failures those that it catches."""

    share: float
    precision: float
    caught: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Choose escalation.min_mean_logprob on answers of known worth."
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument(
        "--precision", type=float, default=0.5, help="share of failures wanted among what moves up (0.5)"
    )
    options = parser.parse_args()
    try:
        rows = [
            parsed(line) for line in options.file.read_text(encoding="utf-8-sig").splitlines() if line.strip()
        ]
    except (OSError, ValueError) as exc:
        print(f"{options.file}: {exc}", file=sys.stderr)
        return 2
    failures = sum(row.failed for row in rows)
    if len(rows) < FEWEST or not 0.1 <= failures / len(rows) <= 0.9:
        print(f"{len(rows)} answers, {failures:g} of them failures: too few to choose on", file=sys.stderr)
        return 2
    low, high = interval(telling, rows)
    print(
        f"{len(rows)} answers, {failures / len(rows):.0%} failures; AUC {telling(rows):.2f} [{low:.2f}, {high:.2f}]\n"
    )
    print("   bound   moves up   had failed        of all failures")
    chosen = None
    for bound in bounds(rows):
        found = moved(rows, bound)
        low, high = interval(lambda drawn, bound=bound: moved(drawn, bound).precision, rows)
        print(
            f"{bound:8.2f}   {found.share:7.1%}   {found.precision:6.1%} [{low:.0%}, {high:.0%}]   {found.caught:6.1%}"
        )
        if found.precision >= options.precision:
            chosen = bound
    if chosen is None:
        print(f"\nunder no bound had {options.precision:.0%} failed: leave min_mean_logprob out")
        return 1
    print(f"\nmin_mean_logprob: {chosen:.2f}")
    return 0


def parsed(line: str) -> Row:
    """One line. Raises: ValueError, which says what is wrong with it and not what it holds."""
    row: Any = json.loads(line)
    if not isinstance(row, dict) or not isinstance(row.get("failed"), bool | int | float):
        raise ValueError("a line without `failed`, a number from 0 to 1")
    failed = float(row["failed"])
    sure = row["mean_logprob"] if "mean_logprob" in row else mean_of(row.get("response"))
    if not isinstance(sure, int | float) or isinstance(sure, bool) or not (sure <= 0.0 <= failed <= 1.0):
        raise ValueError("a line without `mean_logprob` or a `response` with log-probabilities")
    return Row(float(sure), failed)


def mean_of(response: Any) -> float | None:
    """The mean log-probability of the tokens of a chat completion's first choice, as the router takes it."""
    try:
        tokens = response["choices"][0]["logprobs"]["content"]
        return math.fsum(token["logprob"] for token in tokens) / len(tokens)
    except (TypeError, KeyError, IndexError, ZeroDivisionError):
        return None


def bounds(rows: Sequence[Row]) -> list[float]:
    """Candidates, rounded up to hundredths, from the least sure answers to all but the surest."""
    values = sorted(row.sure for row in rows)
    return sorted({math.ceil(values[len(values) * step // STEPS] * 100) / 100 for step in range(1, STEPS)})


def moved(rows: Sequence[Row], bound: float) -> Moved:
    """What would move up under a bound."""
    under = [row.failed for row in rows if row.sure < bound]
    failures = sum(row.failed for row in rows)
    return Moved(
        len(under) / len(rows),
        sum(under) / len(under) if under else 0.0,
        sum(under) / failures if failures else 0.0,
    )


def telling(rows: Sequence[Row]) -> float:
    """Chance that a failure is less sure than an answer that did not fail."""
    failed = [row.failed > 0.5 for row in rows]
    return auc([-row.sure for row in rows], failed) if any(failed) and not all(failed) else 0.5


def interval(figure: Callable[[Sequence[Row]], float], rows: Sequence[Row]) -> tuple[float, float]:
    """The middle 95 % of a figure over rows drawn with replacement."""
    lots = random.Random(SEED)
    values = sorted(figure(lots.choices(rows, k=len(rows))) for _ in range(RESAMPLES))
    return values[int(0.025 * RESAMPLES)], values[int(0.975 * RESAMPLES)]


if __name__ == "__main__":
    raise SystemExit(main())
