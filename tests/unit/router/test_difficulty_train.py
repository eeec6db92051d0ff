"""The trainer finds what is in its data, says what it is worth, and is reproducible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weighbridge.router.difficulty import train
from weighbridge.router.difficulty.assessment import assess_with
from weighbridge.router.difficulty.fitting import Sparse, logistic_fit, platt, ridge
from weighbridge.router.difficulty.judged import DAMPING, HARD, PRIORS
from weighbridge.router.difficulty.model import Model, log_odds

PLACES = ["mill", "river", "school", "tower", "market", "bridge", "garden", "harbour", "station", "church"]


def outcomes(count: int) -> list[dict[str, Any]]:
    """Questions of which those with many formula marks mostly fail on the 8B, and some of them on the 70B."""
    made: list[dict[str, Any]] = []
    for i in range(count):
        hard = i % 2 == 0
        wrong = hard != (i % 10 == 0)
        made.append(
            {"id": f"row-{i}", "task": "math", "source": "made", "subset": f"s{i % 5}",
             "prompt": f"{PLACES[i % 10]} {PLACES[i // 10 % 10]} {PLACES[i // 100]}: what is the value of "
             f"x{' + 3*x = 7/2 + ' * (3 if hard else 0)} in case {i}?",
             "score_8b": 0.0 if wrong else 1.0, "score_70b": 0.0 if wrong and i % 3 == 0 else 1.0,
             "score_frontier": 1.0}
        )  # fmt: skip
    return made


def labelled() -> list[dict[str, Any]]:
    asked = {
        "translation": "Translate the sign at the {} into French.",
        "chat": "Hello my friend, how was your day at the {}?",
        "knowledge": "When was the old {} built and by whom?",
        "math": "Compute the area of a {} with sides 4 and 7.",
    }
    return [
        {"id": f"{task}-{place}", "task": task, "lang": "en",
         "messages": [{"role": "user", "content": words.format(place)}]}
        for task, words in asked.items()
        for place in PLACES
    ]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("training")
    for name, rows in (("train", outcomes(300)), ("dev", outcomes(90)), ("tasks", labelled())):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return [str(folder / name) for name in ("train.jsonl", "dev.jsonl", "tasks.jsonl")]


def test_it_finds_the_patterns_measures_them_and_is_reproducible(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "OUTPUT", tmp_path / "model.json")
    arguments = [*files[:2], "--tasks", files[2], "--without-vectors", "--write"]
    assert train.main(arguments) == 0
    first = train.OUTPUT.read_bytes()
    figures = json.loads(capsys.readouterr().out)["measured"]
    assert figures["auc_8b_fails"] > 0.85
    assert figures["calibration_error_8b"] < 0.1
    assert figures["task_f1_cross_validated"]["en"] > 0.9
    model = Model(first)

    def ask(text: str) -> Any:
        return assess_with(model, {"messages": [{"role": "user", "content": text}]})

    assert ask("Translate the sign at the museum into French.").task == "translation"
    easy, hard = (
        ask(f"school tower bridge: what is the value of x{mid} in case 7?")
        for mid in ("", " + 3*x = 7/2 + " * 3)
    )
    assert hard.p_8b_fails > easy.p_8b_fails + 0.3
    assert hard.p_70b_fails > easy.p_70b_fails
    assert train.main(arguments) == 0
    assert train.OUTPUT.read_bytes() == first


def test_the_shipped_artefact_holds_the_judgements_of_the_trainer() -> None:
    shipped = json.loads(train.OUTPUT.read_text(encoding="utf-8"))
    assert shipped["damping"] == DAMPING
    assert shipped["hard"] == {name: list(pair) for name, pair in HARD.items()}
    for which, head in enumerate(("8b", "70b")):
        told = dict(zip(shipped["tasks"], shipped["heads"][head]["prior"], strict=True))
        for task, pair in PRIORS.items():
            assert told[task] == pytest.approx(log_odds(pair[which]), abs=1e-4)


def test_a_praised_word_never_gets_a_weight() -> None:
    tables = json.loads(train.OUTPUT.read_text(encoding="utf-8"))["tables"]
    words = {word.lstrip("^$") for word in tables["word"]} | {
        w for pair in tables["pair"] for w in pair.split(" ")
    }
    assert words.isdisjoint({"simple", "easy", "quick", "trivial", "task", "간단한", "쉬운"})


def test_rows_of_few_values_multiply_like_full_ones() -> None:
    lots = np.random.default_rng(3)
    full = np.where(lots.random((90, 40)) < 0.3, lots.normal(size=(90, 40)), 0.0)
    full[:, 0] = 1.0
    rows = Sparse.of([{int(j): float(line[j]) for j in np.flatnonzero(line)} for line in full], 40)
    weights = lots.normal(size=40)
    assert np.allclose(rows.times(weights), full @ weights)
    assert np.allclose(rows.gram(), full @ full.T)
    assert np.allclose(
        ridge(rows.gram(), full[:, 1], np.ones(90), 0.5),
        np.linalg.solve(full @ full.T + 0.5 * np.eye(90), full[:, 1]),
    )


def test_logistic_regression_finds_its_minimum() -> None:
    lots = np.random.default_rng(5)
    full = np.hstack([np.ones((400, 1)), lots.normal(size=(400, 3))])
    truth = np.array([-0.5, 1.0, -2.0, 0.0])
    targets = (lots.random(400) < 1 / (1 + np.exp(-full @ truth))).astype(float)
    rows = Sparse.of([{j: float(v) for j, v in enumerate(line)} for line in full], 4)
    found = logistic_fit(rows, targets, np.ones(400), np.full(4, 0.1))
    gradient = full.T @ (1 / (1 + np.exp(-full @ found)) - targets) + 0.1 * found
    assert np.abs(gradient).max() < 1e-2
    assert np.abs(found - truth).max() < 0.5


def test_platt_makes_doubled_log_odds_honest_again() -> None:
    lots = np.random.default_rng(9)
    honest = lots.normal(size=4_000)
    targets = (lots.random(4_000) < 1 / (1 + np.exp(-honest))).astype(float)
    slope, shift = platt(2.0 * honest + 1.0, targets, np.ones(4_000))
    assert slope == pytest.approx(0.5, abs=0.06)
    assert shift == pytest.approx(-0.5, abs=0.12)
