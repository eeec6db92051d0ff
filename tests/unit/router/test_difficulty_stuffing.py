"""Easy-sounding words around exam questions: what a caller adds pulls none of them under a bound."""

from __future__ import annotations

import json
from collections.abc import Callable
from unicodedata import normalize

import pytest

from weighbridge.router.difficulty.ready import ready, said_once
from weighbridge.router.difficulty.score import Assessment, assess

EXAMS = [
    "A uniform rod of length L and mass m stands upright on a frictionless floor and is given a tiny "
    "push. When its upper end reaches the floor, the speed of that end is\n"
    "A. sqrt(gL)\n"
    "B. sqrt(2gL)\n"
    "C. sqrt(3gL)\n"
    "D. 2 sqrt(gL)\n"
    "E. sqrt(6gL)",
    "An ideal gas with a heat capacity ratio of 5/3 expands reversibly and without exchange of heat to "
    "eight times its volume. By what factor does its temperature change?\n"
    "A. 1/8\n"
    "B. 1/4\n"
    "C. 1/2\n"
    "D. 1/32\n"
    "E. 1/16\n"
    "F. It does not change",
    "A seller writes: 'I offer you the piano for 3,000, open until Friday.' On Wednesday the buyer hears "
    "from a friend that it was sold to somebody else, and accepts by letter on Thursday. Which statement "
    "is correct?\n"
    "A. A contract was formed on Thursday, as the offer was open until Friday.\n"
    "B. No contract was formed, as the buyer knew that the offer was withdrawn.\n"
    "C. A contract was formed, as only the seller can withdraw an offer.\n"
    "D. No contract was formed, as letters are no acceptance.\n"
    "E. The contract can be avoided for mistake.\n"
    "F. The friend is bound.",
    "A reaction is second order in A and zero order in B. Its rate constant at 300 K is 0.02 L/(mol s) "
    "and doubles for every 12 K. After how many seconds at 324 K has half of an initial 0.5 mol/L of A "
    "reacted?\n"
    "A. 12.5\n"
    "B. 25\n"
    "C. 50\n"
    "D. 100\n"
    "E. 200\n"
    "F. 6.25",
    "Two thin lenses of focal lengths 20 cm and -30 cm are 10 cm apart. Parallel light falls on the first "
    "one. Where does it meet?\n"
    "A. 10 cm behind the second lens\n"
    "B. 15 cm behind the second lens\n"
    "C. 30 cm behind the second lens\n"
    "D. 60 cm in front of the second lens\n"
    "E. It never meets\n"
    "F. 7.5 cm behind the second lens",
    "Which of the following statements about a monopolist that sets one price is NOT true when marginal "
    "cost is constant and demand is linear?\n"
    "A. It sells half of what would be sold under perfect competition.\n"
    "B. Its marginal revenue falls twice as fast as demand.\n"
    "C. A tax per unit is passed on by one half.\n"
    "D. Its profit is twice the loss of welfare.\n"
    "E. It produces where demand is inelastic.\n"
    "F. A fixed fee does not change its price.",
    "A signal of bandwidth 4 kHz is sampled at the Nyquist rate, quantised to 256 levels and sent over a "
    "noisy channel with a signal-to-noise ratio of 15. What is the least bandwidth over which it can be "
    "sent without errors?\n"
    "A. 4 kHz\n"
    "B. 8 kHz\n"
    "C. 16 kHz\n"
    "D. 32 kHz\n"
    "E. 64 kHz\n"
    "F. 12 kHz",
    "Let G be a group of order 56 with no normal subgroup of order 7. How many elements of order 7 does "
    "it have, and what follows for its subgroup of order 8?\n"
    "A. 48, it is normal\n"
    "B. 48, it is not normal\n"
    "C. 42, it is normal\n"
    "D. 6, it is normal\n"
    "E. 56, there is none\n"
    "F. 8, it is not normal",
]
STUFFING = [
    "simple task: ",
    "Easy quick question, just label it: ",
    "positive negative neutral spam label tag greeting. ",
    "Hi, thanks a lot! ",
    "A very short summary task. ",
    "Quick translation job: ",
    "hello hello hello thanks thanks easy easy label label " * 12,
    "classify " * 200,
    "This is a trivial classification request. ",
    "간단한 라벨링입니다: ",
    "Only needs a yes or no. ",
]
FROM_ITSELF = 0.04
CLEAR = 0.60
"""Above the second bound by more than the words around a question may move it."""


def ask(text: str, system: str | None = None) -> Assessment:
    first = [] if system is None else [{"role": "system", "content": system}]
    return assess({"messages": [*first, {"role": "user", "content": text}]})


@pytest.mark.parametrize("stuffing", STUFFING)
def test_words_around_an_exam_question_pull_it_under_no_bound(stuffing: str) -> None:
    for text in EXAMS:
        plain = ask(text)
        assert plain.score >= 0.45
        for found in (
            ask(stuffing + text),
            ask(f"{text}\n\n{stuffing}"),
            ask(f"{stuffing}{text}\n\n{stuffing}"),
            ask(text, stuffing),
        ):
            assert found.score >= 0.45, text
            if plain.score >= CLEAR:
                assert found.score >= 0.55, text
                assert found.score >= plain.score - FROM_ITSELF, text


def test_enough_of_them_are_clearly_beyond_the_second_bound() -> None:
    assert sum(ask(text).score >= CLEAR for text in EXAMS) >= 4


def test_a_few_words_said_over_and_over_count_once() -> None:
    question = EXAMS[1]
    for chant in ("label ", "hello thanks label translate "):
        once, often = ask(chant + question), ask(chant * 60 + question)
        assert abs(once.p_8b_fails - often.p_8b_fails) <= 0.01
        once, often = ask(f"{question}\n\n{chant}"), ask(f"{question}\n\n{chant * 60}")
        assert abs(once.p_8b_fails - often.p_8b_fails) <= 0.02


PROOF = "Prove that the square root of 2 is irrational."
UNSEEN = "\u200b"


@pytest.mark.parametrize("blank", [" ", "\n", "\t ", "\r\n", "\u00a0", UNSEEN, "\u3000"])
def test_blank_around_a_request_hides_nothing(blank: str) -> None:
    for text in (PROOF, EXAMS[1]):
        for found in (
            ask(blank * 3_000 + text + blank * 3_000),
            ask(text + blank * 9_000),
            ask(blank * 9_000 + text),
        ):
            assert found.score == pytest.approx(ask(text).score, abs=0.01)


@pytest.mark.parametrize(
    "spelled",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace(" ", "\u00a0"),
        lambda text: text.replace("e", f"e{UNSEEN}"),
        lambda text: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text),
        lambda text: "\ufeff" + text,
    ],
    ids=["crlf", "nbsp", "zero-width", "full-width", "bom"],
)
def test_another_spelling_is_the_same_request(spelled: Callable[[str], str]) -> None:
    for text in (PROOF, *EXAMS[:4], "Label the sentiment as positive or negative: I love it."):
        assert ask(spelled(text)) == ask(text)


def test_korean_taken_apart_is_the_same_request() -> None:
    text = "이 대출을 승인해야 할까? 월소득 320만 원, 부채 1,400만 원, 연체 2회, 재직 19개월."
    assert ask(normalize("NFD", text)) == ask(text)


def test_tool_calls_after_a_request_do_not_hide_it() -> None:
    calls = [{"role": "tool", "tool_call_id": "c", "content": "ok"}] * 200
    body = {"messages": [{"role": "user", "content": PROOF}, *calls]}
    assert assess(body).p_8b_fails >= 0.5


@pytest.mark.parametrize(
    "dress",
    [
        "안녕하세요! 아래 메시지의 감정을 긍정, 부정, 중립 중 하나로 분류해 주세요.\n\n",
        "아래 글을 한 줄로 요약해 주세요. 감사합니다!\n\n",
        "label tag sentiment positive negative neutral spam ham hello thanks category intent greeting classify "
        * 4
        + "\n",
    ],
)
def test_another_language_around_an_exam_question_is_no_way_under_the_first_bound(dress: str) -> None:
    for text in EXAMS:
        for found in (ask(dress + text), ask(f"{text}\n\n{dress}"), ask(f"{dress}{text}\n\n{dress}")):
            assert found.score >= 0.45, (text, found)


@pytest.mark.parametrize("lead", ["{}: ", "[{}] ", "- {}. ", "**{}.** ", "> {}. ", "{}) "])
def test_answers_to_choose_from_are_known_however_they_are_listed(lead: str) -> None:
    for text in EXAMS:
        lines = text.split("\n")
        listed = "\n".join([lines[0], *(lead.format(line[0]) + line[3:] for line in lines[1:])])
        assert ask("Classify the sentiment as positive or negative, one label:\n\n" + listed).score >= 0.45, (
            listed
        )


CHANT = (
    "label tag sentiment positive negative neutral spam ham hello thanks category intent greeting classify "
)


@pytest.mark.parametrize(
    "text",
    [PROOF, "Show that every finite integral domain is a field.", "소수가 무한히 많음을 증명하시오.",
     "Demonstrate that the harmonic series diverges.", "루트 2가 irrational임을 prove해줘.",
     "Write a detailed proof of the little theorem of Fermat."],
)  # fmt: skip
def test_a_proof_amid_a_page_of_other_words_is_seen(text: str) -> None:
    around = f"{CHANT}\n" * 4
    assert ask(f"{around}{text}\n{around}").score >= 0.55
    assert ask("Hi!", f"{CHANT * 5}\n{text}").score >= 0.55


@pytest.mark.parametrize(
    "text",
    [
        "How do I improve my English?",
        "Please approve my vacation text and make it friendlier.",
        "Which waterproof jacket is best?",
        "What does soundproof mean?",
        "Where do I upload my proof of purchase?",
        "I want to prove my boss wrong, cheer me up.",
        "졸업증명서 발급은 어디서 해?",
        "증명사진은 어떤 옷을 입고 찍어?",
        "내용증명은 어떤 효력이 있어?",
        "지분증명이 뭐야?",
        "가족관계증명 발급은 어디서 해?",
        "Translate into Korean: Time will prove who was right.",
        "Label as spam or not: this trick will prove you wrong!",
        "Is this coin a proof or uncirculated? one label",
    ],
)
def test_words_that_only_look_like_a_proof_are_none(text: str) -> None:
    assert "evidence" not in dict(ask(text).moved)
    assert ask(text).score < 0.6


@pytest.mark.parametrize(
    "text",
    [
        "Quick-sort: what is its worst case?",
        "Short-term versus long-term bonds?",
        "Easy, medium or hard? Rate this hike.",
        "Basic income: explain it.",
        "Translate into Korean:\n\nEasy.",
        "Put these in order:\nhard\nmedium\neasy",
        "Compute the determinant:\n" + "1 0 2 0 1 0 0 2 1 0\n" * 30,
        "Find the longest run:\n" + "A C G T A A " * 80,
    ],
)
def test_what_only_looks_like_praise_or_a_chant_is_kept(text: str) -> None:
    assert ready(said_once(text)) == text.strip().lower()


@pytest.mark.parametrize(
    "praise",
    [
        "(simple task) ",
        "Simple task\n\n",
        "Simple task \u2013 ",
        "easy_task: ",
        "Quick question\u2026 ",
        "쉬운 질문입니다\n",
    ],
)
def test_praise_is_known_however_it_is_set_off(praise: str) -> None:
    assert ready(praise + PROOF) == PROOF.lower()


OPEN = [
    "Which river forms the border between Namibia and South Africa?",
    "Which group of the 1970s had Joe Elliott as its singer and Rick Savage on bass?",
    "In which year was the treaty that ended the war of the Spanish succession signed?",
    "What was the surname of the 12th president of the USA, and which war made him famous?",
]
AROUND = [
    "Classify the sentiment of this text as positive or negative:",
    "Translate this easy sentence into French:",
    "Simple task: just classify this.",
    "Extract the names from this text:",
    "간단한 분류 작업입니다:",
    "다음 글의 감정을 분류해줘:",
    "classify label sentiment spam tag simple easy greeting hello translate",
    "yes or no, positive or negative, spam or ham, label, tag.",
]


HELD_OF = 0.75
"""Of all arrangements, what leaves the question beyond the second bound; none leaves it under the first."""


def band(found: Assessment) -> int:
    """Below the first bound, between both, above."""
    return (found.score >= 0.45) + (found.score >= 0.55)


def dressed(text: str, words: str) -> list[Assessment]:
    """A question with words before, behind and on both sides of it, with and without line breaks, and as the system
    message."""
    return [
        ask(f"{words} {text}"),
        ask(f"{words}\n\n{text}"),
        ask(f"{text} {words}"),
        ask(f"{text}\n\n{words}"),
        ask(f"{words} {text} {words}"),
        ask(f"{words}\n\n{text}\n\n{words}"),
        ask(text, words),
    ]


@pytest.mark.parametrize("words", AROUND)
def test_an_easy_task_or_a_row_of_labels_around_an_open_question_hides_it_seldom(words: str) -> None:
    assert all(ask(text).score >= 0.6 for text in OPEN)
    found = [one for text in OPEN for one in dressed(text, words)]
    assert all(band(one) >= 1 for one in found)
    assert all(one.task == "knowledge" for one in found)
    assert sum(band(one) == 2 for one in found) >= HELD_OF * len(found)


def test_a_question_inside_json_is_no_easier_than_outside() -> None:
    for text in EXAMS:
        lines = text.split("\n")
        inside = json.dumps({"question": lines[0], "choices": [line[3:] for line in lines[1:]]})
        for found in (ask(inside), ask(f"{AROUND[0]}\n\n{inside}"), ask(f"{inside}\n\n{AROUND[1]}")):
            assert found.p_8b_fails >= ask(text).p_8b_fails - 0.01, text


def test_a_page_of_label_words_behind_an_exam_question_changes_nothing() -> None:
    for text in EXAMS:
        plain, found = ask(text), ask(f"{text}\n\n{CHANT * 3}")
        assert found.score >= plain.score - 0.01, text


def test_a_question_nobody_answered_is_still_there() -> None:
    turns = [{"role": "user", "content": OPEN[0]}, {"role": "user", "content": "thanks!"}]
    assert band(assess({"messages": turns})) == 2
    answered = [turns[0], {"role": "assistant", "content": "The Zambezi."}, turns[1]]
    assert assess({"messages": answered}).task == "chat"


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Classify the sentiment as positive or negative: The room was clean, yet we waited.", "classification"),
        ("Is this spam or ham? One word.\n\nDear customer, your parcel waits, pay the fee now.", "classification"),
        ("Translate into French: See you tomorrow at the station, bring the blue folder.", "translation"),
        ("Hi there! How are you today? I had a great weekend.", "chat"),
        ("Extract the names from this text:\n\nAnna met Ben and Mr. Kim in Seoul on Friday.", "extraction"),
        ("다음 리뷰의 감정을 긍정 또는 부정으로 분류해줘: 방은 깨끗했지만 한 시간을 기다렸어요.", "classification"),
    ],
)  # fmt: skip
def test_ordinary_text_to_be_worked_on_stays_easy(text: str, task: str) -> None:
    found = ask(text)
    assert (found.task, band(found)) == (task, 0)
    assert "question" not in dict(found.moved)
