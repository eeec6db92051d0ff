"""The trainer finds what is in its data, says what it is worth, and is reproducible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weighbridge.router.difficulty import train
from weighbridge.router.difficulty.model import Model


def rows(count: int) -> list[dict[str, Any]]:
    """Questions of which those with many formula marks mostly fail on the 8B."""
    made = []
    for i in range(count):
        hard = i % 2 == 0
        prompt = f"What is the value of x{' + 3*x = 7/2 + ' * (3 if hard else 0)} in case {i}?"
        wrong = hard != (i % 10 == 0)
        made.append(
            {"prompt": prompt, "score_8b": 0.0 if wrong else 1.0, "score_70b": 1.0, "score_frontier": 1.0}
        )
    return made


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    paths = []
    for name, count in (("train.jsonl", 400), ("dev.jsonl", 120)):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows(count)), encoding="utf-8")
        paths.append(str(path))
    return paths[0], paths[1]


def test_it_finds_the_pattern_and_measures_it(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert train.main(files) == 0
    text = capsys.readouterr().out
    artefact = json.loads(text)
    assert artefact["weights"]["formula"] > 0
    figures = artefact["measured_on_dev"]
    assert figures["auc_8b_fails"] > 0.85
    assert figures["three_tiers"]["retained_all_70b"] == 1.0
    assert Model(text.encode()).version.startswith("structural-1@")
    assert train.main(files) == 0
    assert capsys.readouterr().out == text


def test_the_shipped_artefact_holds_the_judgements_of_the_trainer() -> None:
    shipped = json.loads(train.OUTPUT.read_text(encoding="utf-8"))
    assert shipped["judged_tasks"] == train.JUDGED_TASKS
    assert shipped["weights"].items() >= train.JUDGED_WEIGHTS.items()
    assert shipped["damping"] == train.DAMPING
    assert set(shipped["fitted_tasks"]) == set(train.FITTED_TASKS)


def test_auc_counts_ties_half() -> None:
    assert train.auc([1, 2, 3, 4], [False, False, True, True]) == 1.0
    assert train.auc([4, 3, 2, 1], [False, False, True, True]) == 0.0
    assert train.auc([1, 1, 1, 1], [False, True, False, True]) == 0.5


def test_calibration_error_is_the_gap_between_promise_and_outcome() -> None:
    assert train.calibration_error([0.2, 0.2, 0.2, 0.2, 0.2], [1, 0, 0, 0, 0]) == pytest.approx(0.0)
    assert train.calibration_error([0.95, 0.95], [0, 0]) == pytest.approx(0.95)


def test_three_tiers_serves_each_row_where_its_score_says() -> None:
    outcome = {"score_8b": 0.0, "score_70b": 0.5, "score_frontier": 1.0}
    pairs = [(0.44, outcome), (0.45, outcome), (0.55, outcome), (0.9, {**outcome, "score_70b": None})]
    figures = train.three_tiers(pairs)
    assert figures["rows"] == 3
    assert figures["retained"] == pytest.approx((0.0 + 0.5 + 1.0) / 3)
    assert figures["share_8b"] == figures["share_70b"] == pytest.approx(1 / 3)
