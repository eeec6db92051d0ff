"""Task detection on committed prompts.

`tests/data/task_prompts` was written by people who never saw the classifier, and committed before this one was fitted.
It was measured six times; nothing was chosen by it. Of what is fitted on, prompts that share much with one of these
were taken out. The goals are 0.85, 0.85 and 0.80. The older files beside this test are part of what the classifier was
fitted on: they only guard against a broken artefact.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from weighbridge.router.difficulty.measures import macro_f1
from weighbridge.router.difficulty.score import assess

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "bench" / "data"


UNSEEN = HERE.parents[1] / "data" / "task_prompts"


def prompts(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row if "body" in row else {**row, "body": row} for row in rows]


def measured(rows: list[dict[str, Any]]) -> tuple[float, str]:
    reached, each = macro_f1((row["task"], assess(row["body"]).task) for row in rows)
    return reached, f"macro-F1 {reached:.3f}: " + ", ".join(f"{k} {v:.2f}" for k, v in sorted(each.items()))


@pytest.mark.parametrize(
    ("pattern", "floor"),
    [
        ("en.jsonl", 0.91),  # reached 0.936
        ("ko.jsonl", 0.91),  # reached 0.935
        ("mixed.jsonl", 0.92),  # reached 0.946
    ],
)
def test_macro_f1_on_prompts_that_were_never_fitted_on(pattern: str, floor: float) -> None:
    reached, told = measured([row for path in sorted(UNSEEN.glob(pattern)) for row in prompts(path)])
    assert reached >= floor, told


@pytest.mark.parametrize("lang", ["en", "ko"])
def test_macro_f1_on_prompts_that_were_fitted_on(lang: str) -> None:
    rows = [row for path in sorted(HERE.glob("task_prompts*.jsonl")) for row in prompts(path)]
    reached, told = measured([row for row in rows if row["lang"] == lang])
    assert reached >= 0.93, told


def test_prompts_are_told_apart_by_id_and_text() -> None:
    paths = [
        *HERE.glob("task_prompts*.jsonl"),
        *UNSEEN.glob("*.jsonl"),
        *EXAMPLES.glob("task_examples_*.jsonl"),
    ]
    rows = [row for path in paths for row in prompts(path)]
    assert len({row["id"] for row in rows}) == len(rows)
    texts = [
        json.dumps(
            {key: row["body"].get(key) for key in ("messages", "response_format", "tools")}, sort_keys=True
        )
        for row in rows
    ]
    assert len(set(texts)) == len(texts)


def runs(row: dict[str, Any]) -> set[tuple[str, ...]]:
    """The runs of four words in what is not the assistant's."""
    said = " ".join(str(m["content"]) for m in row["body"]["messages"] if m["role"] != "assistant")
    words = re.findall(r"\w+", said.lower())
    return set(zip(words, words[1:], words[2:], words[3:], strict=False))


def test_nothing_is_fitted_on_that_shares_much_with_what_judges() -> None:
    judging = [runs(row) for path in UNSEEN.glob("*.jsonl") for row in prompts(path)]
    holding: dict[tuple[str, ...], list[int]] = {}
    for number, found in enumerate(judging):
        for run in found:
            holding.setdefault(run, []).append(number)
    for path in (*HERE.glob("task_prompts*.jsonl"), *EXAMPLES.glob("task_examples_*.jsonl")):
        for row in prompts(path):
            found = runs(row)
            shared = Counter(number for run in found for number in holding.get(run, ()))
            for number, count in shared.most_common(1):
                assert count < 4 or count < 0.3 * min(len(found), len(judging[number])), row["id"]
