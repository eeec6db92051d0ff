"""What the difficulty score is worth on prompts with recorded outcomes of three models, against gates and goals.

DATA_DIR holds `dev.jsonl` (or another file named with --rows): rows with `prompt`, `score_8b`, `score_70b`,
`score_frontier` from 0 to 1, null where a model was not run. Each figure has a 95 % interval from resampled rows,
beside the same figure for scores drawn by lot, prompt length, and everything on the 70B. The score is judged under the
default appetite for risk. Exit status: 0 all gates held; 1 one was missed; 2 there is nothing to measure on.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weighbridge.router.difficulty.measures import apgr, auc, calibration_error, kept
from weighbridge.router.difficulty.score import CALIBRATION_VERSION, assess

SEED = 20_260
LOCAL_ALL = 0.5
"""A score that sends everything to the 70B."""


@dataclass(frozen=True)
class Row:
    """One prompt: three scores of it, its two risks, and what each model did."""

    ours: float
    by_length: float
    by_lot: float
    p_8b: float
    p_70b: float
    eight: float | None
    seventy: float | None
    frontier: float | None


@dataclass(frozen=True)
class Gate:
    """A figure that must be reached, and one that would be good."""

    least: float
    goal: float
    at_most: bool = False

    def holds(self, value: float) -> bool:
        """Whether the gate is passed."""
        return value <= self.least if self.at_most else value >= self.least

    def words(self, value: float) -> str:
        """What to print behind a figure."""
        sign = "<=" if self.at_most else ">="
        good = value <= self.goal if self.at_most else value >= self.goal
        state = "goal reached" if good else "held" if self.holds(value) else "MISSED"
        return f"gate {sign} {self.least:g}, goal {self.goal:g}: {state}"


Figure = Callable[[Sequence[Row]], float]
Scorer = Callable[[Row], float]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the difficulty score on recorded outcomes.")
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("--rows", default="dev.jsonl", help="file in DATA_DIR (default: dev.jsonl)")
    parser.add_argument("--resamples", type=int, default=300, help="for the intervals (default: 300)")
    options = parser.parse_args()
    path = options.data / options.rows
    if not path.is_file():
        print(f"{path} is not there: nothing to measure on", file=sys.stderr)
        return 2
    rows = read(path)
    print(f"{len(rows)} prompts of {path.name}, calibration {CALIBRATION_VERSION}\n")
    missed = 0
    for title, gate, usable, scorers in figures():
        chosen = [row for row in rows if usable(row)]
        if not chosen:
            print(f"{title}: no rows with these outcomes\n")
            continue
        print(f"{title} ({len(chosen)} prompts)")
        for name, figure in scorers:
            value = figure(chosen)
            low, high = interval(figure, chosen, options.resamples)
            judged = gate is not None and name == "this score"
            note = f"  {gate.words(value)}" if gate is not None and judged else ""
            missed += judged and gate is not None and not gate.holds(value)
            print(f"  {name:<28} {value:.3f}  [{low:.3f}, {high:.3f}]{note}")
        print()
    print(f"{missed} gate(s) missed" if missed else "all gates held")
    return 1 if missed else 0


def read(path: Path) -> list[Row]:
    """Score every prompt once."""
    lots = random.Random(SEED)
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found = assess({"messages": [{"role": "user", "content": row["prompt"]}]})
        rows.append(
            Row(
                found.score, float(len(row["prompt"])), lots.random(), found.p_8b_fails, found.p_70b_fails,
                row.get("score_8b"), row.get("score_70b"), row.get("score_frontier"),
            )
        )  # fmt: skip
    return rows


def figures() -> list[tuple[str, Gate | None, Callable[[Row], bool], list[tuple[str, Figure]]]]:
    """Title, gate, which rows count, and the figure for each scorer."""
    others: list[tuple[str, Scorer]] = [
        ("prompt length", lambda r: r.by_length),
        ("by lot", lambda r: r.by_lot),
        ("all on the 70B", lambda _: LOCAL_ALL),
    ]
    fails: list[tuple[str, Scorer]] = [("this score", lambda r: r.p_8b), *others]
    leads: list[tuple[str, Scorer]] = [("this score", lambda r: r.ours), *others]

    def gap(strong: Callable[[Row], float | None]) -> list[tuple[str, Figure]]:
        return [(name, _apgr(scorer, strong)) for name, scorer in leads]

    return [
        ("AUC of `the 8B fails`", Gate(0.66, 0.70), lambda r: r.eight is not None,
         [(name, _auc(scorer)) for name, scorer in fails]),
        ("calibration error of P(the 8B fails)", Gate(0.05, 0.03, at_most=True), lambda r: r.eight is not None,
         [("this score", _error(lambda r: r.p_8b, lambda r: 1.0 - (r.eight or 0.0))),
          ("the mean of all", _error(None, lambda r: 1.0 - (r.eight or 0.0)))]),
        ("calibration error of P(the 70B fails where the frontier does not)", Gate(0.05, 0.03, at_most=True),
         lambda r: r.seventy is not None and r.frontier is not None,
         [("this score", _error(lambda r: r.p_70b, _lost)), ("the mean of all", _error(None, _lost))]),
        ("APGR from the 8B to the frontier", Gate(0.54, 0.57),
         lambda r: None not in (r.eight, r.seventy, r.frontier), gap(lambda r: r.frontier)),
        ("APGR from the 8B to the 70B", None, lambda r: r.eight is not None and r.seventy is not None,
         gap(lambda r: r.seventy)),
        ("quality at 0.45 and 0.55, as a share of all-frontier", Gate(0.93, 0.95),
         lambda r: None not in (r.eight, r.seventy, r.frontier),
         [("this score", _kept("quality", lambda r: r.ours)),
          ("its shares, drawn by lot", _kept("quality_by_lot", lambda r: r.ours)),
          ("all on the 70B", _kept("quality", lambda _: LOCAL_ALL)),
          ("all on the 8B", _kept("quality", lambda _: 0.0))]),
        ("answered locally at 0.45 and 0.55", Gate(0.54, 0.54),
         lambda r: None not in (r.eight, r.seventy, r.frontier),
         [("this score", _kept("local", lambda r: r.ours)), ("of it by the 8B", _kept("by_the_8b", lambda r: r.ours))]),
    ]  # fmt: skip


def _lost(row: Row) -> float:
    return max(0.0, (row.frontier or 0.0) - (row.seventy or 0.0))


def _auc(scorer: Scorer) -> Figure:
    return lambda rows: auc([scorer(r) for r in rows], [(r.eight or 0.0) < 0.5 for r in rows])


def _error(scorer: Scorer | None, outcome: Scorer) -> Figure:
    def figure(rows: Sequence[Row]) -> float:
        outcomes = [outcome(row) for row in rows]
        mean = sum(outcomes) / len(outcomes)
        return calibration_error([mean if scorer is None else scorer(row) for row in rows], outcomes)

    return figure


def _apgr(scorer: Scorer, strong: Callable[[Row], float | None]) -> Figure:
    return lambda rows: apgr(
        [scorer(r) for r in rows], [r.eight or 0.0 for r in rows], [strong(r) or 0.0 for r in rows]
    )


def _kept(name: str, scorer: Scorer) -> Figure:
    return lambda rows: kept(
        [scorer(r) for r in rows], [(r.eight or 0.0, r.seventy or 0.0, r.frontier or 0.0) for r in rows]
    )[name]


def interval(figure: Figure, rows: Sequence[Row], resamples: int) -> tuple[float, float]:
    """The middle 95 % of the figure over rows drawn with replacement."""
    lots = random.Random(SEED)
    values = sorted(figure(lots.choices(rows, k=len(rows))) for _ in range(resamples))
    return values[int(0.025 * resamples)], values[min(resamples - 1, int(0.975 * resamples))]


if __name__ == "__main__":
    raise SystemExit(main())
