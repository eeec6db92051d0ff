"""The bench of the difficulty score: its verdict is its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HARD = "Prove that there are infinitely many primes of the form 4k + 3."
EASY = "Hi there!"


def bench(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "bench/difficulty.py", str(folder), "--resamples", "20"]
    root = Path(__file__).parents[3]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


def write(folder: Path, hard_wins: bool) -> None:
    won = {"score_8b": 0.0, "score_70b": 0.25, "score_frontier": 1.0}
    level = {"score_8b": 1.0, "score_70b": 1.0, "score_frontier": 1.0}
    rows = [
        {"prompt": HARD, **(won if hard_wins else level)},
        {"prompt": EASY, **(level if hard_wins else won)},
    ]
    lines = [json.dumps(row) for row in rows * 10]
    folder.joinpath("dev.jsonl").write_text("\n".join(lines), encoding="utf-8")


def test_without_data_it_says_so(tmp_path: Path) -> None:
    done = bench(tmp_path)
    assert done.returncode == 2 and "nothing to measure on" in done.stderr


def test_it_says_which_gates_were_missed(tmp_path: Path) -> None:
    write(tmp_path, hard_wins=True)
    right = bench(tmp_path)
    assert "AUC of `the 8B fails` (20 prompts)\n  this score                   1.000" in right.stdout
    assert "gate >= 0.66, goal 0.7: goal reached" in right.stdout
    # A risk is no certainty, and half of these rows were sent away.
    assert right.returncode == 1 and "gate(s) missed" in right.stdout
    write(tmp_path, hard_wins=False)
    wrong = bench(tmp_path)
    assert (
        "  this score                   0.000  [0.000, 0.000]  gate >= 0.66, goal 0.7: MISSED" in wrong.stdout
    )
    assert wrong.returncode == 1
