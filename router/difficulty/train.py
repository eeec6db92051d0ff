"""Fits tasks and risks, says what they are worth, and writes the artefact.

    python -m weighbridge.router.difficulty.train TRAIN.jsonl DEV.jsonl --tasks FILE... [--write]

TRAIN and DEV: rows with `id`, `task`, `prompt`, `score_8b`, `score_70b`, `score_frontier` (0..1 or null). FILE: rows
with `id`, `task`, `lang` and a request (`messages` or `body`). Everything is fitted on TRAIN and FILE; DEV is only
measured. No random numbers: the same files and packages give the same artefact. Needs numpy and, unless
`--without-vectors`, the encoder of `meaning.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from weighbridge.policies.risk import Risk
from weighbridge.router.difficulty.assessment import assess_with
from weighbridge.router.difficulty.bands import banded
from weighbridge.router.difficulty.examples import FITTED, STUFFED, Learner
from weighbridge.router.difficulty.fit_risks import fit_risks
from weighbridge.router.difficulty.fit_tasks import TaskFit, fit_tasks
from weighbridge.router.difficulty.judged import DAMPING, EXAMS, HARD, LEAST_PRIOR, PRIORS, UNKNOWN
from weighbridge.router.difficulty.measures import apgr, auc, calibration_error, kept
from weighbridge.router.difficulty.model import Model
from weighbridge.router.difficulty.packing import pack

OUTPUT: Final = Path(__file__).with_name("model.json")


def build(
    train: Sequence[dict[str, Any]], tasks: Sequence[dict[str, Any]], *, vectors: bool, cache: Path | None
) -> tuple[dict[str, Any], TaskFit]:
    """The artefact, and what cross-validation said of the tasks."""
    learner = Learner()
    told, outcomes = learner.tasks(tasks), learner.outcomes(train)
    by_hand, by_source = len(told), sum(bool(example.task) for example in outcomes)
    told += learner.stuffed(outcomes)
    fit = fit_tasks(learner, told, outcomes, vectors=vectors, cache=cache)
    risks = fit_risks(fit, outcomes)
    priors = {task: list(pair) for task, pair in PRIORS.items()}
    for task in FITTED:
        eight, seventy = (max(LEAST_PRIOR, risk.mean_of[task]) for risk in risks)
        priors[task] = [eight, EXAMS * seventy]
    content = {
        "name": "linear-2",
        "provenance": {
            "tasks": f"{by_hand} prompts labelled by hand and {by_source} by their source, these {STUFFED} times more "
            "with words around them",
            "risks": f"{len(outcomes)} English prompts with outcomes of Llama-3.1-8B, Llama-3.1-70B or Mixtral-8x7B or "
            "Llama-3.1-Nemotron-51B, gemini-1.5-pro or gpt-4-1106; without one of the frontier model: "
            f"{sum(example.row['score_frontier'] is None for example in outcomes)}",
            "sources": "TIGER-AI-Lab/MMLU-Pro (Apache-2.0), ulab-uiuc/LLMRouter (MIT), lm-sys/RouteLLM (Apache-2.0)",
            "vectors": "universal-sentence-encoder-multilingual v3 (Apache-2.0), folded in"
            if vectors
            else "none",
            "judged": "priors of tasks without outcomes, damping, and what proofs, failing code and conditions add",
        },
        "fitted_tasks": list(FITTED),
        "damping": DAMPING,
        "hard": {name: list(pair) for name, pair in HARD.items()},
        "unknown": list(UNKNOWN),
    }
    return content | pack(fit, risks, priors), fit


def measure(model: Model, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the whole score, judgements included, is worth on rows with outcomes."""
    found = [assess_with(model, {"messages": [{"role": "user", "content": row["prompt"]}]}) for row in rows]
    risk = Risk()
    eight = [
        (a.p_8b_fails, 1.0 - row["score_8b"])
        for a, row in zip(found, rows, strict=True)
        if row["score_8b"] is not None
    ]
    seventy = [
        (a.p_70b_fails, max(0.0, row["score_frontier"] - row["score_70b"]))
        for a, row in zip(found, rows, strict=True)
        if row["score_70b"] is not None and row["score_frontier"] is not None
    ]
    three = [
        (
            banded(a.p_8b_fails, a.p_70b_fails, risk),
            (row["score_8b"], row["score_70b"], row["score_frontier"]),
        )
        for a, row in zip(found, rows, strict=True)
        if None not in (row["score_8b"], row["score_70b"], row["score_frontier"])
    ]
    figures: dict[str, Any] = {"rows_8b": len(eight), "rows_70b": len(seventy), "rows_all_three": len(three)}
    figures["auc_8b_fails"] = auc([p for p, _ in eight], [y > 0.5 for _, y in eight])
    figures["calibration_error_8b"] = calibration_error(*zip(*eight, strict=True))
    if seventy:
        figures["calibration_error_70b"] = calibration_error(*zip(*seventy, strict=True))
    if three:
        scores = [score for score, _ in three]
        figures["apgr_8b_frontier"] = apgr(scores, [y[0] for _, y in three], [y[2] for _, y in three])
        figures["three_roads"] = kept(scores, [y for _, y in three])
    return figures


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, measure, and with `--write` replace the artefact."""
    parser = argparse.ArgumentParser(description="Fit the difficulty score.")
    parser.add_argument("train", type=Path)
    parser.add_argument("dev", type=Path)
    parser.add_argument("--tasks", type=Path, nargs="+", required=True, help="prompts with their task")
    parser.add_argument("--without-vectors", action="store_true", help="do without the encoder")
    parser.add_argument("--vectors", type=Path, help="file that keeps word vectors between runs (.npz)")
    parser.add_argument("--write", action="store_true", help=f"replace {OUTPUT.name}")
    parser.add_argument(
        "--leave-out",
        metavar="TEXT",
        action="append",
        default=[],
        help="leave rows out whose `source/subset` holds TEXT, and measure on all of these instead of DEV",
    )
    options = parser.parse_args(arguments)
    train, dev = read_rows(options.train), read_rows(options.dev)
    if options.leave_out:
        dev = [row for row in [*train, *dev] if _is_of(row, options.leave_out)]
        train = [row for row in train if not _is_of(row, options.leave_out)]
    told = [row for path in sorted(options.tasks, key=lambda path: path.name) for row in read_rows(path)]
    content, fit = build(train, told, vectors=not options.without_vectors, cache=options.vectors)
    plain = dump(content)
    content["measured"] = {"task_f1_cross_validated": fit.cross_validated} | _rounded(
        measure(Model(plain.encode()), dev)
    )
    text = dump(content)
    if options.write and not options.leave_out:
        OUTPUT.write_text(text, encoding="utf-8")
    shown = {key: value for key, value in content.items() if key not in ("tables", "weights")}
    sys.stdout.write(json.dumps(shown, indent=2) + "\n")
    return 0


def _is_of(row: dict[str, Any], named: Sequence[str]) -> bool:
    place = f"{row.get('source')}/{row.get('subset')}"
    return any(name in place for name in named)


def dump(content: dict[str, Any]) -> str:
    """The artefact as text, one part a line."""

    def told(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)

    return (
        "{\n" + ",\n".join(f"{told(key)}:{told(value)}" for key, value in sorted(content.items())) + "\n}\n"
    )


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    return {k: _rounded(v) if isinstance(v, dict) else round(v, 4) for k, v in figures.items()}


if __name__ == "__main__":
    raise SystemExit(main())
