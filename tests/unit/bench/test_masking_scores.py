"""The scores that the quality bench prints and judges."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.lib import masking_scores as scoring
from bench.lib.masking_scores import FILES, Goal, Labelled, drops, goals, score
from weighbridge.masking.entities import Span

NEWS = Labelled("news", "en", "WHO", frozenset({"NUMBER"}), frozenset({"WHO", "NUMBER"}), chars=40)
TEXT = "Ada Ng: 42 and 42"
DOCUMENT = {
    "text": TEXT,
    "entities": [
        {"type": "WHO", "value": "Ada Ng", "start": 0, "end": 6},
        {"type": "NUMBER", "value": "42"},
    ],
}


def find(*spans: Span):
    return lambda text: list(spans) if text == TEXT else []


def test_white_space_may_stay_and_every_place_counts() -> None:
    scores = score(
        find((0, 3, "PERSON"), (4, 6, "PERSON"), (8, 10, "NUM"), (15, 17, "NUM")), NEWS, [DOCUMENT]
    )
    assert scores.recall("WHO") == scores.recall("NUMBER") == 1.0
    assert (scores.structured_clean, scores.promised_clean) == (1, 1)
    assert scores.masked == 9
    assert scores.gold == 9


def test_one_character_left_is_a_leak_and_an_overlap() -> None:
    scores = score(find((0, 5, "PERSON"), (8, 10, "NUM")), NEWS, [DOCUMENT])
    assert scores.full["WHO"] == 0
    assert scores.overlap["WHO"] == 1
    assert scores.full["NUMBER"] == 0
    assert scores.structured_clean == scores.promised_clean == 0
    assert scores.structured_documents == scores.promised_documents == 1


def test_a_refusal_covers_everything_and_is_told() -> None:
    scores = score(find((12, 13, "CREDENTIAL")), NEWS, [DOCUMENT])
    assert scores.recall("WHO") == 1.0
    assert scores.promised_clean == 1
    assert scores.refused == 1
    assert scores.masked == 1


def test_the_second_look_counts_between_the_spans() -> None:
    text = "Ada: 555 123 4567"
    spans = scoring.spans_as_masked(lambda _: [(0, 3, "PERSON")], text)
    assert [text[start:end] for start, end, _ in spans] == ["Ada", "555 123 4567"]


def test_figures_are_shares() -> None:
    document = {**DOCUMENT, "entities": [DOCUMENT["entities"][0]]}
    figures = score(find((0, 6, "PERSON")), NEWS, [document, DOCUMENT]).figures(NEWS)
    assert figures["recall_full WHO"] == 1.0
    assert figures["recall_full NUMBER"] == 0.0
    assert figures["no_residue"] == 0.5
    assert figures["structured_clean"] == 0.0
    assert figures["masked"] == round(6 / 17, 4)


@pytest.mark.parametrize(
    ("name", "was", "value", "worse"),
    [
        ("recall_full PS", 0.90, 0.89, False),
        ("recall_full PS", 0.90, 0.889, True),
        ("recall_full PS", 0.90, 0.95, False),
        ("masked", 0.10, 0.112, True),
        ("masked", 0.10, 0.02, False),
        ("refused", 0.0, 0.02, True),
    ],
)
def test_more_than_one_point_is_a_drop(name: str, was: float, value: float, worse: bool) -> None:
    assert bool(drops({"f": {name: value}}, {"f": {name: was}})) is worse


def test_a_figure_that_is_gone_is_a_drop() -> None:
    assert drops({}, {"f": {"recall_full PS": 0.5}}) == ["f: recall_full PS was 0.500 and is not measured"]


def test_goals_are_floors_and_ceilings() -> None:
    assert Goal(NEWS, "x", least=0.97).missed(0.96)
    assert not Goal(NEWS, "x", least=0.97).missed(0.97)
    assert Goal(NEWS, "x", most=0.25).missed(0.26)
    floors = {
        large: next(goal.least for goal in goals(large_english_model=large) if "PERSON" in goal.figure)
        for large in (True, False)
    }
    assert floors == {True: 0.85, False: 0.77}


def test_structured_types_are_promised_too() -> None:
    for labelled in FILES:
        assert labelled.structured <= labelled.promised
        assert labelled.name in labelled.promised


def test_without_data_the_bench_says_so(tmp_path: Path) -> None:
    bench = Path(scoring.__file__).parents[1] / "masking_quality.py"
    done = subprocess.run(
        [sys.executable, str(bench), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "nothing to measure on" in done.stderr


def run_bench(monkeypatch: pytest.MonkeyPatch, data: Path, *arguments: str) -> int:
    from bench import masking_quality

    monkeypatch.setattr(sys, "argv", ["masking_quality", str(data), *arguments])
    held = {name: sys.modules.get(name) for name in ("torch", "transformers")}
    try:
        masking_quality.main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        for name, module in held.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
    return 0


class Everything:
    """Stands for the detectors."""

    layers = ("all",)
    names = frozenset({"en"})
    version = "none"

    def __init__(self, *_: object) -> None:
        self.missing = {"kiwi": "the package kiwipiepy is not installed"}

    def find(self, text: str) -> list[Span]:
        return [(0, len(text), "NUM")]


class Nothing(Everything):
    """Finds nothing."""

    def find(self, text: str) -> list[Span]:
        return []


def test_the_bench_fails_on_goals_and_drops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench import masking_quality

    for labelled in FILES:
        entities = [{"type": entity, "value": "Ada Ng"} for entity in sorted(labelled.promised)]
        document = {"text": "Ada Ng was not there for a long long while, they say.", "entities": entities}
        (tmp_path / labelled.file).write_text(json.dumps(document) + "\n", encoding="utf-8")
    baseline = tmp_path / "baseline.json"
    monkeypatch.setattr(masking_quality, "Detector", Everything)
    # Masking everything misses one goal.
    assert run_bench(monkeypatch, tmp_path, "--baseline", str(baseline), "--write-baseline") == 1
    said = capsys.readouterr().out
    assert "MISSING layer kiwi: the package kiwipiepy is not installed" in said
    assert said.count("MISSED") == 1
    assert "masked <= 0.25: 1.000" in said
    assert "Ada" not in baseline.read_text()
    monkeypatch.setattr(masking_quality, "Detector", Nothing)
    assert run_bench(monkeypatch, tmp_path, "--baseline", str(baseline)) == 1
    assert "WORSE  klue_ner_dev.jsonl: recall_full PS was 1.000 and is 0.000" in capsys.readouterr().out
    assert run_bench(monkeypatch, tmp_path, "--layers", "en-rules") == 0
