"""The bound of the mean log-probability is chosen on answers of known worth."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "bench/logprob_bound.py", str(path), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def rows(tells: bool, count: int = 400) -> list[dict[str, Any]]:
    """Unsure answers under -1, which fail four times of five where it tells, and sure ones, which fail once of five."""
    lots = random.Random(3)
    made = []
    for number in range(count):
        unsure = number % 4 == 0
        failed = lots.random() < (0.8 if unsure and tells else 0.2)
        made.append(
            {"mean_logprob": lots.uniform(-2, -1) if unsure else lots.uniform(-1, -0.05), "failed": failed}
        )
    return made


def write(path: Path, made: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, made)), encoding="utf-8")
    return path


def test_it_finds_where_failures_begin(tmp_path: Path) -> None:
    done = run(write(tmp_path / "a.jsonl", rows(tells=True)), "--precision", "0.7")
    assert done.returncode == 0, done.stderr
    chosen = float(done.stdout.rpartition("min_mean_logprob: ")[2])
    assert -1.1 <= chosen <= -0.85
    # Asking for less moves more up.
    lax = run(tmp_path / "a.jsonl", "--precision", "0.4")
    assert float(lax.stdout.rpartition("min_mean_logprob: ")[2]) > chosen


def test_where_it_tells_nothing_no_bound_is_named(tmp_path: Path) -> None:
    done = run(write(tmp_path / "a.jsonl", rows(tells=False)), "--precision", "0.6")
    assert done.returncode == 1
    assert "leave min_mean_logprob out" in done.stdout and "min_mean_logprob:" not in done.stdout


def test_whole_answers_will_do(tmp_path: Path) -> None:
    made = [
        {
            "failed": row["failed"],
            "response": {
                "choices": [
                    {"logprobs": {"content": [{"logprob": 2 * row["mean_logprob"]}, {"logprob": 0.0}]}}
                ]
            },
        }
        for row in rows(tells=True)
    ]
    plain = run(write(tmp_path / "a.jsonl", rows(tells=True)))
    assert run(write(tmp_path / "b.jsonl", made)).stdout == plain.stdout != ""


def test_what_cannot_be_chosen_on_is_said(tmp_path: Path) -> None:
    for made, said in (
        (rows(tells=True, count=50), "too few"),
        ([{"failed": False, "mean_logprob": -0.1}] * 200, "too few"),
        ([{"mean_logprob": -0.1}], "failed"),
        ([{"failed": 1, "mean_logprob": 0.5}], "mean_logprob"),
        ([{"failed": 1, "response": {"choices": [{"logprobs": None}]}}], "mean_logprob"),
    ):
        done = run(write(tmp_path / "a.jsonl", made))
        assert done.returncode == 2 and said in done.stderr
    assert run(tmp_path / "gone").returncode == 2
