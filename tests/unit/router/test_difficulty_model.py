"""Packed arithmetic agrees with plain arithmetic, and a damaged artefact is refused."""

from __future__ import annotations

import base64
import json
import math
import random
import subprocess
import sys
import time
from importlib.resources import files
from typing import Any

import pytest

from weighbridge.router.difficulty.marks import Hard
from weighbridge.router.difficulty.model import FEWEST, KINDS, ZONES, Model, log_odds, logistic

TASKS = ("knowledge", "chat")
NOTHING = Hard(False, False, 0)
WORDS = ["alpha", "beta", "gamma"]


def artefact(**changes: Any) -> bytes:
    """Three words and two marks, with weights drawn by lot."""
    lots = random.Random(7)
    rows = [[lots.randrange(1, 256) for _ in range(4)] for _ in range(5)]
    content: dict[str, Any] = {
        "name": "small",
        "tasks": TASKS,
        "tables": {kind: [] for kind in KINDS} | {"word": WORDS, "mark": ["round", "square"]},
        "weights": base64.b64encode(bytes(value for row in rows for value in row)).decode(),
        "word_scale": [0.01, 0.02, 0.005, 0.004],
        "mark_scale": [0.002, 0.003, 0.004, 0.005],
        "bias": [0.1, -0.1],
        "sharpness": 3.0,
        "unknown": [0.3, 0.1],
        "fitted_tasks": ["knowledge"],
        "damping": {"judged": 0.4, "fitted": 0.5},
        "hard": {"proof": [0.6, 0.5], "failing": [0.4, 0.3], "constraint": [0.1, 0.2],
                 "proof_floor": [0.5, 0.3], "failing_floor": [0.4, 0.2]},
        "heads": {
            name: {"bias": 0.2, "slope": 0.9, "shift": -0.1, "lean": [0.3, 0.0], "prior": [-0.5, -1.5],
                   "slots": {"ko": [1.0, 0.0]}}
            for name in ("8b", "70b")
        },
    }  # fmt: skip
    return json.dumps(content | changes).encode()


def plain(raw: bytes, zones: dict[str, set[int]], marks: list[str]) -> tuple[list[float], float]:
    """Probabilities of the tasks and P(the 8B fails) in English, worked out field by field."""
    content = json.loads(raw)
    flat = base64.b64decode(content["weights"])
    weight = [[0] * 4, *[[value - 128 for value in flat[i : i + 4]] for i in range(0, len(flat), 4)]]
    share = ZONES
    root = math.sqrt(max(100 * FEWEST, sum(share[z] ** 2 * len(found) for z, found in zones.items())))
    of_marks = [sum(weight[4 + ["round", "square"].index(mark)][k] for mark in marks) for k in range(4)]
    votes = [
        content["bias"][k]
        + sum(share[z] * weight[n][k] for z, found in zones.items() for n in found)
        * content["word_scale"][k]
        / root
        + of_marks[k] * content["mark_scale"][k]
        for k in range(2)
    ]
    powers = [math.exp(content["sharpness"] * vote) for vote in votes]
    chances = [power / sum(powers) for power in powers]
    own = zones["asking"] | zones["other"]
    words = sum(weight[n][2] for n in own) * content["word_scale"][2] / math.sqrt(max(FEWEST, len(own)))
    structure = of_marks[2] * content["mark_scale"][2]
    fitted = logistic(0.9 * (0.2 + max(-0.5, words) + structure + 0.3) - 0.1)
    return chances, chances[0] * fitted + chances[1] * logistic(-1.5 + 0.4 * structure)


@pytest.mark.parametrize(
    ("zones", "marks"),
    [
        ({"asking": {1, 2}, "other": {3}}, ["round"]),
        ({"asking": set(), "other": set()}, ["round", "square"]),
        ({"asking": {1}, "other": {2, 3}, "system": {1, 2, 3}, "earlier": {2}}, []),
    ],
)
def test_packed_sums_are_plain_sums(zones: dict[str, set[int]], marks: list[str]) -> None:
    raw = artefact()
    found = Model(raw).weigh(zones, marks, NOTHING, "en")
    chances, risk = plain(raw, zones, marks)
    assert found.task == TASKS[chances.index(max(chances))]
    assert found.p_8b_fails == pytest.approx(risk, abs=1e-9)


def test_no_field_flows_over_into_the_next() -> None:
    many = [f"w{i}" for i in range(2_000)]
    raw = artefact(
        tables={kind: [] for kind in KINDS} | {"word": many},
        weights=base64.b64encode(bytes([255, 1, 255, 1] * len(many))).decode(),
    )
    found = Model(raw)._apart(10 * sum(Model(raw)._vector(n) for n in range(1, 2_001)))
    assert found == (255 * 20_000, 20_000, 255 * 20_000, 20_000)


def test_words_count_in_english_alone_and_structure_half_elsewhere() -> None:
    model = Model(artefact())
    zones = {"asking": {1, 2, 3}, "other": set[int]()}
    nothing = {"asking": set[int](), "other": set[int]()}
    assert dict(model.weigh(zones, [], NOTHING, "en").moved)["words"] != 0.0
    assert dict(model.weigh(zones, [], NOTHING, "ko").moved)["words"] == 0.0
    assert model.weigh(nothing, ["round"], NOTHING, "ko") != model.weigh(nothing, [], NOTHING, "ko")


def test_words_alone_lower_a_risk_only_so_far() -> None:
    model = Model(artefact(word_scale=[0.01, 0.02, 5.0, 5.0]))
    pushes = [
        dict(model.weigh({"asking": {n}, "other": set()}, [], NOTHING, "en").moved)["words"]
        for n in (1, 2, 3)
    ]
    assert min(pushes) >= -0.5


def test_evidence_has_a_floor_whatever_the_words_say() -> None:
    head = {"bias": -9.0, "slope": 1.0, "shift": 0.0, "lean": [0.0, 0.0], "prior": [-9.0, -9.0], "slots": {}}
    model = Model(artefact(heads={"8b": head, "70b": head}))
    zones = {"asking": {1}, "other": set[int]()}
    proof = model.weigh(zones, [], Hard(True, False, 0), "en")
    assert (proof.p_8b_fails, proof.p_70b_fails) == (0.5, 0.3)
    failing = model.weigh(zones, [], Hard(False, True, 0), "ko")
    assert (failing.p_8b_fails, failing.p_70b_fails) == (0.4, 0.2)


def test_tables_that_do_not_fit_their_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        Model(artefact(tables={kind: [] for kind in KINDS} | {"word": WORDS}))
    with pytest.raises(KeyError):
        Model(json.dumps({"name": "x", "tasks": []}).encode())


def test_log_odds_and_back() -> None:
    for chance in (0.001, 0.3, 0.5, 0.97):
        assert logistic(log_odds(chance)) == pytest.approx(chance)
    assert logistic(1e9) < 1.0 + 1e-12
    assert logistic(-1e9) >= 0.0


def test_the_shipped_artefact_is_small_and_quick_to_load() -> None:
    raw = files("weighbridge.router.difficulty").joinpath("model.json").read_bytes()
    assert len(raw) <= 5_000_000
    best = math.inf
    for _ in range(3):
        began = time.process_time()
        Model(raw)
        best = min(best, time.process_time() - began)
    assert best < 0.6  # 0.09 s where this was written


def test_nothing_that_serves_imports_numpy() -> None:
    program = "import sys; import weighbridge.router.difficulty.score; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_no_label_hides_an_exam_question() -> None:
    words = ["label"]
    raw = artefact(
        tables={kind: [] for kind in KINDS} | {"word": words, "mark": ["options", "open"]},
        # The word speaks for the second task, which is judged; the marks say nothing.
        weights=base64.b64encode(bytes([100, 255, 128, 128] + [128] * 8)).decode(),
        word_scale=[0.1, 0.1, 0.005, 0.004],
    )
    model, zones = Model(raw), {"asking": {1}, "other": set[int]()}
    exam, plain_text = (model.weigh(zones, [mark], NOTHING, "en") for mark in ("options", "open"))
    assert exam.task == plain_text.task == "chat"
    sure = 1 / (1 + math.exp(-(0.9 * (0.2 + exam.moved[0][1]) - 0.1)))
    assert plain_text.p_8b_fails < exam.p_8b_fails
    assert exam.p_8b_fails == pytest.approx(sure, abs=0.02)
    assert plain_text.p_70b_fails < exam.p_70b_fails
    korean, plain_korean = (model.weigh(zones, [mark], NOTHING, "ko") for mark in ("options", "open"))
    assert plain_korean.p_8b_fails < korean.p_8b_fails == pytest.approx(logistic(-0.5), abs=0.01)


def test_a_language_without_outcomes_has_a_slot_of_its_own() -> None:
    content = json.loads(artefact())
    content["heads"]["8b"]["slots"]["ko"] = [0.5, 1.0]
    zones = {"asking": {1, 2}, "other": set[int]()}
    before, after = Model(artefact()), Model(json.dumps(content).encode())
    for language in ("en", "other"):
        assert before.weigh(zones, [], NOTHING, language) == after.weigh(zones, [], NOTHING, language)  # type: ignore[arg-type]
    plain_korean, calibrated = (model.weigh(zones, [], NOTHING, "ko") for model in (before, after))
    # Both tasks are judged there, with priors of -0.5 and -1.5 in log-odds.
    low, high = logistic(-0.75 + 1.0), logistic(-0.25 + 1.0)
    assert low < calibrated.p_8b_fails < high
    assert calibrated.p_8b_fails != plain_korean.p_8b_fails
    assert calibrated.p_70b_fails == plain_korean.p_70b_fails


def test_what_is_told_to_have_moved_a_risk_moved_it_so() -> None:
    raw = artefact(
        tables={kind: [] for kind in KINDS} | {"word": ["alpha"], "mark": ["round"]},
        # Neither says anything of the task; both tell the first risk.
        weights=base64.b64encode(bytes([128, 128, 160, 128] * 2)).decode(),
        bias=[0.5, -0.5],
        sharpness=40.0,
        word_scale=[0.01, 0.02, 0.02, 0.004],
    )
    model = Model(raw)
    with_both = model.weigh({"asking": {1}, "other": set()}, ["round"], NOTHING, "en")
    for zones, marks, name in (({"asking": {1}}, [], "round"), ({"asking": set()}, ["round"], "words")):
        without = model.weigh({"other": set[int](), **zones}, marks, NOTHING, "en")  # type: ignore[dict-item]
        moved = log_odds(with_both.p_8b_fails) - log_odds(without.p_8b_fails)
        assert dict(with_both.moved)[name] == pytest.approx(moved, abs=0.01) != 0.0
    korean = model.weigh({"asking": {1}, "other": set()}, ["round"], NOTHING, "ko")
    assert dict(korean.moved)["words"] == 0.0
    assert dict(korean.moved)["round"] == pytest.approx(dict(with_both.moved)["round"] * 0.5 / 0.9, abs=0.001)
    proof = model.weigh({"asking": {1}, "other": set()}, [], Hard(True, False, 0), "en")
    told = dict(proof.moved)
    assert ("floor" in told) == (proof.p_8b_fails == 0.5)
