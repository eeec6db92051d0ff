"""What may not change a score, what must raise it, and by how much at most: bounds are stated, and told in the docs."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from weighbridge.router.difficulty.score import Assessment, assess

UNSEEN = Path(__file__).parents[2] / "data" / "task_prompts"
DOCUMENT = (
    "The old mill by the river was built in 1871 and burned down twice. Its wheel is kept in the museum of the town, "
    "beside a clock and a plough. Visitors may see both on Sundays. "
) * 30
DOCUMENT_KO = "강가의 낡은 방앗간은 1871년에 지어졌고 두 번 불탔다. 물레바퀴는 마을 박물관에 있다. " * 40


def ask(text: str, system: str | None = None) -> Assessment:
    first = [] if system is None else [{"role": "system", "content": system}]
    return assess({"messages": [*first, {"role": "user", "content": text}]})


def prompts() -> list[str]:
    """Single turns of every task and both languages, none of which the scorer was fitted on."""
    rows = (
        json.loads(line)
        for name in ("en.jsonl", "ko.jsonl", "mixed.jsonl")
        for line in (UNSEEN / name).read_text(encoding="utf-8").splitlines()
    )
    return [row["messages"][0]["content"] for row in rows if len(row["messages"]) == 1]


PROMPTS = prompts()


@pytest.mark.parametrize("change", [str.upper, str.title, str.swapcase])
def test_case_changes_nothing(change: object) -> None:
    for text in PROMPTS[::3]:
        if text.lower() == change(text).lower():  # type: ignore[operator]
            assert ask(change(text)) == ask(text)  # type: ignore[operator]


def test_spacing_changes_nothing() -> None:
    for text in PROMPTS[::3]:
        plain = text
        for other in (
            plain.replace(" ", "   "),
            f"\n\n  {plain}\n\n",
            plain.replace("\n", " \n"),
            plain.replace(" ", "\t"),
        ):
            assert abs(ask(other).score - ask(plain).score) <= 0.02, plain


def moves(pairs: list[tuple[Assessment, Assessment]]) -> tuple[float, float]:
    """The median and the 95th percentile of how far scores moved."""
    far = sorted(abs(after.score - before.score) for before, after in pairs)
    return statistics.median(far), far[int(0.95 * len(far))]


def test_a_long_irrelevant_document_moves_the_score_little() -> None:
    pairs = []
    for text in PROMPTS[::2]:
        document = DOCUMENT if text.isascii() else DOCUMENT_KO
        pairs += [(ask(text), ask(f"{text}\n\n{document}")), (ask(text), ask(f"{document}\n\n{text}"))]
    median, most = moves(pairs)
    assert median <= 0.03
    assert most <= 0.22


def test_moving_the_instruction_to_the_system_role_moves_the_score_little() -> None:
    whole = moves([(ask(text), ask("", text)) for text in PROMPTS[::2]])
    assert whole[1] <= 0.02
    split = []
    for text in PROMPTS:
        instruction, _, rest = text.partition("\n\n")
        if rest:
            split.append((ask(text), ask(rest, instruction)))
    assert len(split) > 20
    median, most = moves(split)
    assert median <= 0.03
    assert most <= 0.18


def test_a_system_message_that_says_nothing_moves_the_score_little() -> None:
    median, most = moves([(ask(text), ask(text, "You are a helpful assistant.")) for text in PROMPTS[::2]])
    assert median <= 0.01
    assert most <= 0.06


QUESTIONS = [
    "What is the sum of the first n odd numbers?",
    "How are the angles of a triangle related?",
    "Which numbers have an odd number of divisors?",
    "How many primes are there?",
    "소수는 몇 개나 있어?",
    "홀수의 합은 왜 제곱수가 돼?",
]


@pytest.mark.parametrize("text", QUESTIONS)
def test_asking_for_a_proof_raises_it(text: str) -> None:
    korean = "" if text.isascii() else " 증명해줘."
    assert ask(text + (korean or " Prove it.")).score > ask(text).score


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("Plan meals for four people.", " It must cost at most 60, without nuts, and exactly two days have fish."),
        ("Write a rota for six nurses.", " Nobody must work more than five nights, at least two must be seniors."),
        ("네 사람의 일주일 식단을 짜줘.", " 반드시 6만 원 이하로, 견과류는 제외하고, 생선은 정확히 두 번만."),
    ],
)  # fmt: skip
def test_more_conditions_raise_it(text: str, more: str) -> None:
    before, after = ask(text), ask(text + more)
    assert after.p_8b_fails > before.p_8b_fails
    assert after.p_70b_fails > before.p_70b_fails


def test_asking_for_a_proof_raises_nearly_every_request() -> None:
    raised = [
        ask(text + (" Prove it." if text.isascii() else " 증명해줘.")).score > ask(text).score
        for text in PROMPTS[::4]
    ]
    assert sum(raised) >= 0.97 * len(raised)


def test_more_conditions_raise_most_requests() -> None:
    raised = []
    for text in PROMPTS[::4]:
        english = " It must not exceed three pages, name at least two sources, and do without jargon."
        more = english if text.isascii() else " 반드시 세 쪽 이하로, 출처는 두 개 이상, 전문 용어는 제외."
        raised.append(ask(text + more).p_8b_fails > ask(text).p_8b_fails)
    assert sum(raised) >= 0.90 * len(raised)


def test_failing_code_raises_it() -> None:
    code = "\n\ndef mean(xs):\n    return sum(xs) / len(xs)\n"
    before = ask("Explain this function." + code)
    after = ask(
        "Explain this function."
        + code
        + "\nTraceback (most recent call last):\nZeroDivisionError: division by zero"
    )
    assert after.p_8b_fails > before.p_8b_fails
    assert after.score > before.score


HARD = [
    "Prove that there are infinitely many primes of the form 4k + 3, and that no finite list can hold them all.",
    "Show that every continuous function on a compact interval is uniformly continuous; the proof must not use nets.",
    "루트 2가 무리수임을 증명하고, 모든 소수의 제곱근으로 일반화해서 증명해줘.",
    "This test fails and I can't see why, fix it:\n\ndef f(xs):\n    return sorted(xs)[len(xs)]\n\n"
    "Traceback (most recent call last):\nIndexError: list index out of range",
]  # fmt: skip
STUFFING = [
    "simple task: ", "Simple task: easy, quick, trivial. ", "This is very easy. ", "Easy question: ", "easy " * 300,
    "간단한 작업입니다: ", "Just classify this as yes or no, positive or negative. ", "hi there! thanks! ",
    "Translate this easy sentence: ", "Label the sentiment. Label the topic. Label the intent. " * 8,
]  # fmt: skip


@pytest.mark.parametrize("stuffing", STUFFING)
@pytest.mark.parametrize("text", HARD)
def test_keyword_stuffing_pulls_no_hard_request_under_a_bound(text: str, stuffing: str) -> None:
    assert ask(text).score >= 0.55
    for stuffed in (stuffing + text, f"{text}\n\n{stuffing}", f"{stuffing}{text}\n\n{stuffing}"):
        assert ask(stuffed).score >= 0.55
    assert ask(text, stuffing).score >= 0.55


@pytest.mark.parametrize(
    "praise",
    ["Simple task: ", "this is easy. ", "Quick and trivial! ", "Easy question - ", "쉬운 질문입니다: "],
)
def test_a_request_that_calls_itself_easy_is_scored_as_if_it_had_not(praise: str) -> None:
    for text in PROMPTS[::7]:
        if text[:1].isalpha():
            assert ask(praise + text) == ask(text), text
