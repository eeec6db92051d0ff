"""What requests of each kind are taken for, how hard, and where the shipped policy sends them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weighbridge.policies.loader import shipped
from weighbridge.router.difficulty.score import CALIBRATION_VERSION, SCORING, Assessment, assess

ARTICLE = (
    "The council voted on Tuesday to rebuild the riverside district. Opponents said the river had risen twice. "
    * 8
)
ARTICLE_KO = (
    "시의회는 화요일 강변 지구 재개발 계획을 통과시켰다. 반대 측은 강물이 두 번이나 넘쳤다고 말했다. " * 8
)


def ask(text: str, **more: Any) -> Assessment:
    return assess({"messages": [{"role": "user", "content": text}], **more})


def road(found: Assessment) -> str:
    return shipped("default").place(found.task, found.score, "default").road


@pytest.mark.parametrize(
    ("text", "task", "expected_road"),
    [
        ("Label this ticket as billing, technical or other: I was charged twice.", "classification", "local-8b"),
        ("다음 문의를 결제, 기술, 기타 중 하나로 분류해 줘: 요금이 두 번 나갔어요.", "classification", "local-8b"),
        ("Extract the invoice number and the total as JSON: INV-7, 120 EUR", "extraction", "local-8b"),
        ("Summarize the following article in three sentences.\n\n" + ARTICLE, "summarization", "local-70b"),
        ("다음 글을 세 문장으로 요약해 줘.\n\n" + ARTICLE_KO, "summarization", "local-70b"),
        ("Answer from the text.\n\nText: " + ARTICLE + "\n\nQuestion: when did it rise?", "rag", "local-70b"),
        ("Write a Python function that merges overlapping intervals.", "code", "commercial"),
        ("이 코드의 버그를 찾아 고쳐줘\n\ndef f(xs):\n    return sum(xs) / len(x)", "code", "commercial"),
        ("Should we approve this loan? Income 3,200, debt 14,000, two late payments, our rules: debt to income "
         "below 40 %, employed for two years (she has 19 months).", "decision", "commercial"),
        ("Hi there!", "chat", "local-8b"),
        ("안녕하세요!", "chat", "local-8b"),
    ],
)  # fmt: skip
def test_a_request_is_recognised_and_sent_where_the_seed_matrix_says(
    text: str, task: str, expected_road: str
) -> None:
    found = ask(text)
    assert found.task == task
    assert road(found) == expected_road


@pytest.mark.parametrize(
    "text",
    ["Hi there!", "안녕하세요!", "고마워 덕분에 잘 해결됐어", "Tell me a joke.", "프랑스어로 번역해줘: 내일 봐요.",
     "Translate into French: See you tomorrow."],
)  # fmt: skip
def test_greetings_and_short_translations_are_easy(text: str) -> None:
    assert ask(text).score < 0.45


@pytest.mark.parametrize(
    ("plain", "proof"),
    [
        ("What is the square root of 2?",
         "Prove that the square root of 2 is irrational, then generalise to every prime; the proof must not use unique "
         "factorisation."),
        ("루트 2는 얼마야?", "루트 2가 무리수임을 증명하고, 모든 소수에 대해 일반화해서 증명해줘."),
    ],
)  # fmt: skip
def test_a_proof_of_several_steps_is_harder_and_leaves_the_local_roads(plain: str, proof: str) -> None:
    easy, hard = ask(plain), ask(proof)
    assert hard.task in ("math", "reasoning")
    assert hard.score > easy.score + 0.05
    assert road(hard) == "commercial"


def test_more_conditions_make_a_request_harder() -> None:
    base = "Which days can the four of us meet? Park works at night."
    more = base + " Kim must come, at least two must be seniors, and no more than one may travel."
    assert ask(more).score > ask(base).score


def test_a_json_schema_does_not_hide_what_is_asked() -> None:
    fields = {"points": {"type": "array"}, "title": {"type": "string"}}
    schema = {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": {"type": "object", "properties": fields}},
    }
    assert ask("Please summarise the article.\n\n" + ARTICLE, response_format=schema).task == "summarization"
    assert ask("기사를 요약해 주세요.\n\n" + ARTICLE_KO, response_format=schema).task == "summarization"


def test_tools_on_offer_do_not_hide_what_is_asked() -> None:
    tools = [{"type": "function", "function": {"name": "save_note", "parameters": {"type": "object"}}}]
    assert ask("Write a Python function that parses a date.", tools=tools).task == "code"
    assert ask("Two margheritas to 14 Elm Street, please.", tools=tools).task == "extraction"


def test_the_system_prompt_tells_the_task_when_the_user_only_sends_material() -> None:
    body = {"messages": [
        {"role": "system", "content": "Translate everything the user writes into Korean."},
        {"role": "user", "content": "Your order has been shipped."},
    ]}  # fmt: skip
    assert assess(body).task == "translation"


def test_the_last_user_turn_outweighs_the_earlier_ones() -> None:
    body = {"messages": [
        {"role": "user", "content": "Translate to Dutch: Good luck!"},
        {"role": "assistant", "content": "Veel succes!"},
        {"role": "user", "content": "Write an SQL query that finds duplicate emails."},
    ]}  # fmt: skip
    assert assess(body).task == "code"


def test_content_parts_are_read() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "text", "text": "Translate to German: yes."},
    ]
    assert assess({"messages": [{"role": "user", "content": parts}]}).task == "translation"


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": [{"role": "user", "content": ""}]}])
def test_nothing_to_read_is_unknown(body: dict[str, Any]) -> None:
    assert assess(body).task == "unknown"


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("What is the capital of Australia?", "en"),
        ("호주의 수도는 어디야?", "ko"),
        ("Summarise this: " + ARTICLE_KO, "ko"),
        ("ㅋㅋㅋㅋ", "ko"),
        ("明日の会議は三時からです。", "other"),
        ("Bitte übersetzen Sie den Brief und schicken Sie ihn morgen zurück.", "other"),
    ],
)
def test_language(text: str, language: str) -> None:
    assert ask(text).language == language


def test_features_are_names_and_never_text() -> None:
    found = ask("Zebrafink 4711: prove that every zebrafink must be at least striped.\n\n" + ARTICLE)
    assert found.features
    for feature in found.features:
        assert re.fullmatch(r"[a-z0-9-]+[+-]\d+\.\d\d", feature), feature
        assert "zebra" not in feature


def test_the_calibration_version_names_the_content() -> None:
    assert re.fullmatch(r"linear-2@[0-9a-f]{8}", CALIBRATION_VERSION)


def test_every_module_that_scoring_imports_counts_for_the_version() -> None:
    program = (
        "import sys\n"
        "import weighbridge.router.difficulty.score as score\n"
        "print(*[name.rpartition('.')[2] for name in sys.modules if name.startswith(score.__package__ + '.')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    # `compiled` looks for a library that was made of the others, and loads it.
    assert set(done.stdout.split()) - {"score", "compiled", "scoring__mypyc"} == set(SCORING)


def test_two_processes_agree_whatever_their_hash_seed() -> None:
    program = (
        "import json, pathlib, sys\n"
        "from weighbridge.router.difficulty.score import CALIBRATION_VERSION, assess\n"
        "lines = pathlib.Path(sys.argv[1]).read_text(encoding='utf-8').splitlines()\n"
        "print(CALIBRATION_VERSION, [repr(assess(json.loads(line)['body'])) for line in lines])\n"
    )
    prompts = Path(__file__).with_name("task_prompts_unseen.jsonl")
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program, str(prompts)],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "4711")
    ]
    assert outputs[0] == outputs[1]
    assert b"Assessment(" in outputs[0]


def documented(page: str) -> list[tuple[str, str, str, str]]:
    """The rows of the last table of a page."""
    text = (Path(__file__).parents[3] / "docs" / page).read_text(encoding="utf-8")
    table = text.rpartition("|---|---|---|---|\n")[2]
    rows = [line.strip("| ").split(" | ") for line in table.strip().splitlines()]
    return [(row[0], row[1], row[2], row[3]) for row in rows]


@pytest.mark.parametrize("page", ["difficulty.md", "ko/difficulty.md"])
def test_the_table_of_example_prompts_is_true(page: str) -> None:
    rows = documented(page)
    assert len(rows) > 20
    for prompt, task, score, expected_road in rows:
        found = ask(prompt)
        assert (found.task, f"{found.score:.2f}", road(found)) == (task, score, expected_road), prompt
