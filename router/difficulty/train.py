"""Fits the weights of the difficulty score and says what they are worth.

    python -m weighbridge.router.difficulty.train TRAIN.jsonl DEV.jsonl [--write]

Rows need `prompt` and `score_8b` (0..1); for the three-tier figures also `score_70b` and `score_frontier`. The weights
come from TRAIN alone; DEV is only measured. No random numbers, no packages: the same files give the same artefact.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from weighbridge.policies.tasks import Task
from weighbridge.router.difficulty.features import CENTRED, FITTED, NAMES, structure
from weighbridge.router.difficulty.model import Model, to_score
from weighbridge.router.difficulty.task import detect
from weighbridge.router.difficulty.view import look

FITTED_TASKS: Final[tuple[Task, ...]] = ("knowledge", "reasoning", "math", "code")
JUDGED_TASKS: Final[dict[Task, float]] = {
    "classification": 0.17,
    "extraction": 0.25,
    "summarization": 0.38,
    "rag": 0.38,
    "decision": 0.60,
    "translation": 0.27,
    "chat": 0.18,
    "unknown": 0.35,
}
"""P(the 8B fails) where no outcomes exist. `chat` follows one published set where a Llama-3-8B lost 16 %."""

JUDGED_WEIGHTS: Final = {"proof": 0.8, "constraints": 0.15}
DAMPING: Final = 0.4
RIDGE: Final = 10.0
OUTPUT: Final = Path(__file__).with_name("model.json")

Row = dict[str, Any]


def load(path: Path) -> list[Row]:
    """Read rows and add task and features."""
    rows: list[Row] = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row: Row = json.loads(line)
            view = look({"messages": [{"role": "user", "content": row["prompt"]}]})
            found = detect(view)
            rows.append(row | {"found": found.task, "language": found.language, "values": structure(view)})
    return rows


def vector(row: Row, means: dict[str, float]) -> list[float]:
    """Task dummies and centred features."""
    found = row["found"]
    dummies = [1.0 if found == task else 0.0 for task in FITTED_TASKS]
    other = 1.0 if found not in FITTED_TASKS else 0.0
    return [*dummies, other, *(row["values"][name] - means[name] for name in FITTED)]


def fit(xs: list[list[float]], ys: list[float], penalised: int) -> list[float]:
    """Logistic regression by Newton's method; the last `penalised` weights carry a ridge."""
    size = len(xs[0])
    ridge = [0.1] * (size - penalised) + [RIDGE] * penalised
    weights = [0.0] * size
    for _ in range(12):
        gradient = [r * w for r, w in zip(ridge, weights, strict=True)]
        hessian = [[ridge[i] if i == j else 0.0 for j in range(size)] for i in range(size)]
        for x, y in zip(xs, ys, strict=True):
            p = 1.0 / (1.0 + math.exp(-sum(map(lambda a, b: a * b, x, weights))))
            curve = p * (1.0 - p)
            used = [i for i in range(size) if x[i]]
            for i in used:
                gradient[i] += (p - y) * x[i]
                line, scaled = hessian[i], curve * x[i]
                for j in used:
                    line[j] += scaled * x[j]
        step = solve(hessian, gradient)
        weights = [w - s for w, s in zip(weights, step, strict=True)]
        if max(map(abs, step)) < 1e-7:
            break
    return weights


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a linear system by Gaussian elimination with pivoting."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, size):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i], strict=True)]
    result = [0.0] * size
    for i in reversed(range(size)):
        rest = sum(rows[i][j] * result[j] for j in range(i + 1, size))
        result[i] = (rows[i][size] - rest) / rows[i][i]
    return result


def auc(scores: Sequence[float], failed: Sequence[bool]) -> float:
    """Chance that a failed row scores above one that did not fail."""
    order = sorted(range(len(scores)), key=scores.__getitem__)
    ranks = 0.0
    i = 0
    while i < len(order):
        j = i
        while j + 1 < len(order) and scores[order[j + 1]] == scores[order[i]]:
            j += 1
        ranks += (i + j + 2) / 2 * sum(failed[order[k]] for k in range(i, j + 1))
        i = j + 1
    bad = sum(failed)
    return (ranks - bad * (bad + 1) / 2) / (bad * (len(failed) - bad))


def calibration_error(probabilities: Sequence[float], outcomes: Sequence[float]) -> float:
    """Expected calibration error over ten bins of equal width."""
    bins: list[list[tuple[float, float]]] = [[] for _ in range(10)]
    for p, y in zip(probabilities, outcomes, strict=True):
        bins[min(9, int(p * 10))].append((p, y))
    gaps = (abs(sum(p for p, _ in part) - sum(y for _, y in part)) for part in bins)
    return sum(gaps) / len(probabilities)


def three_tiers(rows: Sequence[tuple[float, Row]]) -> dict[str, float]:
    """Quality kept and shares served at the bounds 0.45 and 0.55, over rows with all three outcomes."""
    kept = [
        pair
        for pair in rows
        if None not in (pair[1]["score_8b"], pair[1]["score_70b"], pair[1]["score_frontier"])
    ]
    names = ["score_8b" if s < 0.45 else "score_70b" if s < 0.55 else "score_frontier" for s, _ in kept]
    best = sum(row["score_frontier"] for _, row in kept)
    shares = {name: names.count(name) / len(kept) for name in ("score_8b", "score_70b", "score_frontier")}
    return {
        "rows": len(kept),
        "retained": sum(row[name] for name, (_, row) in zip(names, kept, strict=True)) / best,
        "retained_random_same_shares": sum(row[n] * shares[n] for _, row in kept for n in shares) / best,
        "retained_all_70b": sum(row["score_70b"] for _, row in kept) / best,
        "share_8b": shares["score_8b"],
        "share_70b": shares["score_70b"],
    }


def measure(model: Model, rows: Sequence[Row]) -> dict[str, Any]:
    """What the whole score, judgements included, is worth on rows with an outcome of the 8B."""
    probabilities = [model.weigh(row["found"], row["language"], row["values"])[0] for row in rows]
    failures = [1.0 - row["score_8b"] for row in rows]
    failed = [value >= 0.5 for value in failures]
    return {
        "rows": len(rows),
        "auc_8b_fails": auc(probabilities, failed),
        "auc_length_only": auc([row["values"]["length"] for row in rows], failed),
        "calibration_error": calibration_error(probabilities, failures),
        "three_tiers": three_tiers([(to_score(p), row) for p, row in zip(probabilities, rows, strict=True)]),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, measure, and with `--write` replace the artefact."""
    parser = argparse.ArgumentParser(description="Fit the difficulty score.")
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--write", action="store_true", help=f"replace {OUTPUT.name}")
    options = parser.parse_args(arguments)
    train = [row for row in load(options.train) if row["score_8b"] is not None]
    dev = [row for row in load(options.dev) if row["score_8b"] is not None]
    means = dict.fromkeys(NAMES, 0.0)
    means |= {name: round(sum(row["values"][name] for row in train) / len(train), 4) for name in CENTRED}
    found = fit([vector(row, means) for row in train], [1.0 - row["score_8b"] for row in train], len(FITTED))
    known = len(FITTED_TASKS)
    weights = {name: round(value, 4) for name, value in zip(FITTED, found[known + 1 :], strict=True)}
    artefact: dict[str, Any] = {
        "name": "structural-1",
        "provenance": {
            "fitted_on": f"{len(train)} English prompts with outcomes of Llama-3.1-8B",
            "sources": "TIGER-AI-Lab/MMLU-Pro (Apache-2.0), ulab-uiuc/LLMRouter (MIT)",
            "target": "P(the 8B fails)",
            "method": f"logistic regression, ridge {RIDGE}; structural features and the detected task",
            "judged": "judged_tasks, damping and the weights of proof and constraints rest on no outcomes",
        },
        "fitted_tasks": {
            task: round(value, 4) for task, value in zip(FITTED_TASKS, found[:known], strict=True)
        },
        "judged_tasks": JUDGED_TASKS,
        "weights": weights | JUDGED_WEIGHTS,
        "means": means,
        "damping": DAMPING,
    }
    artefact["measured_on_dev"] = _rounded(measure(Model(json.dumps(artefact).encode()), dev))
    text = json.dumps(artefact, indent=2) + "\n"
    if options.write:
        OUTPUT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    return {k: _rounded(v) if isinstance(v, dict) else round(v, 4) for k, v in figures.items()}


if __name__ == "__main__":
    raise SystemExit(main())
