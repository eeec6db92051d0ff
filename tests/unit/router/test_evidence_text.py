"""Refusals, languages and loops: what is found, and the good answers that must not be taken for bad ones."""

from __future__ import annotations

import time

import pytest

from weighbridge.config.evidence import Evidence
from weighbridge.router.evidence import Look, find
from weighbridge.router.evidence_answer import Asked, Said
from weighbridge.router.evidence_json import Allowance
from weighbridge.router.evidence_text import loops, names_a_language, other_language, refuses

ALL: set[Evidence] = {
    "invalid_json",
    "invalid_tool_call",
    "empty",
    "refusal",
    "wrong_language",
    "repetition",
    "length",
    "low_logprob",
}


def asked(question: str, task: str = "chat", system: str | None = None, **more: object) -> Asked:
    messages = [{"role": "user", "content": question}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return Asked({"messages": messages, **more}, task)


def evidence(request: Asked, text: str, finish: str | None = "stop", whole: bool = True) -> Evidence | None:
    return find(Look(ALL, -9.0, whole), request, [Said(text, finish=finish)], -0.5, Allowance(2.0))


# ---- refusals ----

REFUSALS = [
    "I'm sorry, but I can't assist with that request.",
    "I’m sorry, but I can’t help with that.",
    "Sorry, I cannot provide that.",
    "I cannot comply with this.",
    "I am unable to provide information about that topic.",
    "As an AI language model, I am not able to help you with this.",
    "I apologize, but I won't do that.",
    "Unfortunately, I can't answer that.",
    "죄송하지만 해당 요청은 도와드릴 수 없습니다.",
    "죄송합니다. 그 질문에는 답변드릴 수 없습니다.",
    "저는 AI 언어 모델로서 그러한 내용을 제공할 수 없습니다.",
    "미안하지만 그 요청에 응할 수 없어요.",
    "죄송합니다만, 이 주제에 대해서는 정보를 제공해 드릴 수 없습니다.",
]

NO_REFUSALS = [
    (
        "Is there an error in this code?",
        "I'm sorry, I can't find any error in it: the loop ends as it should.",
    ),
    ("Tell me about penguins.", "I can't help but admire penguins. They live in the southern hemisphere."),
    ("What is the capital?", "Sorry for the confusion! The capital of Australia is Canberra."),
    ("How do I cook rice?", "I can't do this for you, but here's how: wash it, add water, and wait."),
    ("What is the weather?", "I can't provide that in real-time. Look at your weather service."),
    ("Answer from the document.", "I can't answer this: the document says nothing about prices."),
    ("Write a polite refusal to a customer.", "I'm sorry, but I can't help with that request."),
    ("환불 요청을 거절하는 답장을 써 줘.", "죄송합니다만 그 요청에 응할 수 없습니다."),
    ("이 문서로 답해 줘.", "죄송합니다. 제공된 문서에는 그 내용이 없어 답변드릴 수 없습니다."),
    ("환불 되나요?", "죄송하지만 개봉한 상품은 환불해 드릴 수 없습니다."),
    ("엑셀로 정리해 줘", "죄송하지만 파일은 도와드릴 수 없습니다. 대신 표로 정리하면 다음과 같습니다: ..."),
    ("Who said it?", '"I cannot" is what Luther said: "I cannot and will not recant."'),
    ("Can you see me?", "No, I can't: I have no camera."),
]


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals_are_seen_whole_and_from_their_beginning(text: str) -> None:
    assert refuses(text, "How does one do this?")
    assert evidence(asked("How does one do this?"), text) == "refusal"
    assert evidence(asked("이건 어떻게 하나요?"), text, finish=None, whole=False) == "refusal"


@pytest.mark.parametrize(("question", "text"), NO_REFUSALS)
def test_answers_that_only_sound_like_refusals(question: str, text: str) -> None:
    assert not refuses(text, question)


def test_who_refuses_at_length_goes_on_to_help() -> None:
    assert not refuses(REFUSALS[0] + " There is more to say." * 40, "How?")


def test_a_translation_may_read_like_a_refusal() -> None:
    request = asked("번역해 줘: 도와드릴 수 없습니다", task="translation")
    assert evidence(request, REFUSALS[0]) is None


def test_what_the_answer_itself_calls_a_refusal_is_one() -> None:
    said = Said("", refusal=True, finish="stop")
    assert find(Look({"refusal"}), asked("Hello"), [said], None, Allowance(2.0)) == "refusal"


# ---- languages ----

KOREAN_Q = "우리 회사의 연차 휴가 규정을 직원에게 설명하는 짧은 글을 써 주세요."
ENGLISH_Q = "Write a short note that explains our annual leave rules to the employees."
ENGLISH_A = (
    "Every employee has fifteen days of paid leave a year, and one more day for every two years of service."
)
KOREAN_A = (
    "모든 직원은 일 년에 열닷새의 유급 휴가를 쓸 수 있고, 근속 두 해마다 하루가 더해집니다. 미리 알려 주세요."
)
CHINESE_A = "每位员工每年享有十五天带薪年假,每服务满两年增加一天。请提前通知您的主管,以便安排工作。谢谢您的配合与理解。"


@pytest.mark.parametrize(
    ("question", "answer"),
    [(KOREAN_Q, ENGLISH_A), (ENGLISH_Q, KOREAN_A), (KOREAN_Q, CHINESE_A), (ENGLISH_Q, CHINESE_A)],
)
def test_an_answer_in_another_language_than_the_question(question: str, answer: str) -> None:
    assert other_language(question, answer)
    assert evidence(asked(question), answer) == "wrong_language"
    assert evidence(asked(question), answer, finish=None, whole=False) == "wrong_language"


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (KOREAN_Q, KOREAN_A),
        (ENGLISH_Q, ENGLISH_A),
        (
            KOREAN_Q,
            "API Gateway와 Kubernetes Ingress Controller를 Terraform module로 배포하면 됩니다. "
            + ENGLISH_A[:40],
        ),
        ("다음 메일의 제목만 뽑아 줘: " + ENGLISH_A * 3, ENGLISH_A),
        (KOREAN_Q, "Yes."),
        ("네?", ENGLISH_A),
        (
            "이 함수를 고쳐 주세요. 합계가 틀립니다.",
            "```python\ndef total(values):\n    return sum(values)\n```" * 3,
        ),
        (
            "이 식을 풀어 주세요, 부탁드립니다.",
            "$x = \\frac{-b \\pm \\sqrt{b^2 - 4ac}}{2a}$ 12 34 56 78 = 90",
        ),
        ("Explain `안녕하세요` and 감사합니다 to me please, in a few words", KOREAN_A),
        ("서울의 주요 호텔 이름을 알려 주세요.", "Lotte, Shilla, Hyatt"),
    ],
)
def test_answers_whose_language_is_right_or_cannot_be_told(question: str, answer: str) -> None:
    assert not other_language(question, answer)


@pytest.mark.parametrize(
    "request_",
    [
        asked("다음 글을 영어로 써 주세요: " + KOREAN_Q),
        asked(KOREAN_Q, system="Answer in English."),
        asked(KOREAN_Q, task="translation"),
        asked(KOREAN_Q, task="code"),
        asked(KOREAN_Q, system="항상 영문으로 답한다."),
    ],
)
def test_another_language_that_was_asked_for(request_: Asked) -> None:
    assert evidence(request_, ENGLISH_A) is None


# ---- loops ----

LOOPS = [
    "The answer is as follows. " + "The answer is 4 because it is 4. " * 12,
    "First, we look at it.\n" + "- Check the logs of the server.\n" * 20,
    "이 문제는 다음과 같습니다. " + "따라서 정답은 네 가지입니다. " * 20,
    "yes " * 100,
    "\n".join(f"{n}. The customer is satisfied with the product." for n in range(1, 30)),
    "def f():\n" + "    print('hello world')\n" * 30,
    ("One long paragraph that says a great many things, and says all of them again without any change. " * 6),
    "Once upon a time " + "there was a cat, and the cat sat, and " * 9 + "there was a",
]


@pytest.mark.parametrize("text", LOOPS)
def test_loops_in_answers_that_were_cut_off(text: str) -> None:
    assert loops(text, "Tell me a story.", cut=True)
    assert evidence(asked("Tell me a story.", max_tokens=500), text, finish="length") == "repetition"


def test_a_loop_that_ended_by_itself_has_to_be_a_long_one() -> None:
    sentence = "The answer is 4 because it is 4. "
    assert not loops(sentence * 12, "What is it?", cut=False)
    assert loops(sentence * 40, "What is it?", cut=False)


def test_an_answer_that_repeats_itself_a_little_and_ends_is_none() -> None:
    request = asked("Say thank you like an excited fan.")
    assert evidence(request, "Thank you so much! " * 9) is None
    assert (
        evidence(asked("Go on.", max_tokens=99), "Thank you so much! " * 9, finish="length") == "repetition"
    )


def test_a_loop_that_was_asked_for() -> None:
    text = "I will not talk in class.\n" * 60
    assert not loops(text, "Write 'I will not talk in class' 60 times.", cut=True)
    assert not loops(text, "'떠들지 않겠습니다'를 60번 써 줘", cut=True)
    assert loops(text, "Write an essay about school.", cut=True)


# ---- good answers of many kinds ----

TABLE = "| Name | Q1 | Q2 | Note |\n|------|----|----|------|\n" + "\n".join(
    f"| Branch {n} | {n * 3} | N/A | no change this quarter |" for n in range(25)
)
REFRAIN = (
    "The rain came down on the tin roof of the barn,\nand the horses stood still in the dark,\n"
    "Oh carry me home, carry me home tonight.\n\n"
    "The river rose over the stones of the ford,\nand the ferryman put out his light,\n"
    "Oh carry me home, carry me home tonight.\n\n"
    "The bells of the village were ringing for dawn,\nand the bread in the oven was bright,\n"
    "Oh carry me home, carry me home tonight.\n"
)
KOREAN_POEM = (
    "산에는 꽃이 피고\n물가에는 새가 울고\n아, 그리운 내 고향\n\n"
    "들에는 바람 불고\n하늘에는 별이 뜨고\n아, 그리운 내 고향\n\n"
    "길에는 눈이 쌓이고\n마을에는 불이 켜지고\n아, 그리운 내 고향\n"
)
CODE = (
    "Here is the function you asked for:\n\n```python\nclass Node:\n"
    + "".join(f"    def field_{n}(self) -> int:\n        return self._fields[{n}]\n\n" for n in range(20))
    + "```\n\nIt returns each field by its number."
)
TEST_CODE = (
    "```python\n"
    + "".join(f"total = add({n})\nassert total == expected, 'the total is wrong'\n" for n in range(15))
    + "```"
)
HTML = "```html\n" + "<div>\n" * 12 + "  text\n" + "</div>\n" * 12 + "```"
GOOD = [
    ("Label each of these 40 reviews, one a line.", "positive\n" * 20 + "negative\n" + "positive\n" * 19),
    ("Label each review.", "\n".join(f"{n}. positive" for n in range(1, 41))),
    ("각 리뷰를 한 줄씩 분류해 주세요.", "긍정\n" * 40),
    ("Show the table.", TABLE),
    (
        "Show the empty form.",
        "| Day | Morning | Evening |\n|---|---|---|\n" + "| to be filled in | none yet | none |\n" * 11,
    ),
    ("Write a test for each case.", TEST_CODE),
    ("Write a song with a chorus.", REFRAIN),
    ("고향을 그리는 노랫말을 써 주세요, 후렴도 넣어서.", KOREAN_POEM),
    ("Write the class.", CODE),
    ("Nest the divs.", HTML),
    ("Give me a zero matrix.", "[" + ", ".join(["[0, 0, 0, 0, 0, 0, 0, 0]"] * 8) + "]"),
    ("Draw a line.", "=" * 400),
    (
        "List the steps to install it.",
        "\n".join(
            f"{n}. Run step {n} of the installer and wait until it says that it is done."
            for n in range(1, 15)
        ),
    ),
    ("What is 2 + 2?", "4"),
    (
        "회의록을 요약해 주세요.",
        "오늘 회의에서는 세 가지를 정했습니다.\n\n1. 배포는 목요일에 합니다.\n2. 점검은 김 과장이 맡습니다.\n"
        "3. 다음 회의는 월요일 오전입니다.\n\n남은 일은 담당자가 정해지는 대로 다시 알려 드리겠습니다.",
    ),
    (
        "Explain recursion.",
        "A function that calls itself is recursive. Each call works on a smaller part of the problem, until a part is "
        "so small that the answer is known. That is the base case; without it the calls would never end.",
    ),
    (
        "고객 문의에 답장을 써 주세요.",
        "안녕하세요, 고객님. 문의해 주셔서 감사합니다. 배송은 내일 도착할 예정입니다. 감사합니다.",
    ),
    ("Count to fifty.", " ".join(str(n) for n in range(1, 51))),
    ("Write a CSV.", "id,name,state\n" + "\n".join(f"{n},item,open" for n in range(60))),
]


@pytest.mark.parametrize(("question", "text"), GOOD, ids=[question[:20] for question, _ in GOOD])
def test_good_answers_stay(question: str, text: str) -> None:
    assert evidence(asked(question), text) is None
    beginning = text[: (len(text) + 1) // 2]
    assert evidence(asked(question), beginning, finish=None, whole=False) is None


HOSTILE = [
    "```",
    "`",
    "`a",
    "\\(",
    "\\(a",
    "a ",
    "a",
    "\n",
    " ",
    "$",
    "$a",
    "- ",
    "-\n",
    "7",
    "7 ",
    "77777 번호 ",
    "as an ai ",
    "I'm sorry ",
    '"',
    "죄송합니다 ",
    "죄송하지만 도움을 줄 ",
    "http://",
    "한a",
    "| ",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
    "turkis lati hind ",
]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("size", [600, 8_000, 20_000, 1_000_000])
def test_text_of_any_kind_is_judged_in_no_time(piece: str, size: int) -> None:
    text = piece * (size // len(piece))
    used = time.thread_time()
    refuses(text, text)
    refuses(REFUSALS[0], text)
    loops(text, text, cut=True)
    loops(LOOPS[0], text, cut=True)
    other_language(KOREAN_Q, text)
    other_language(text, KOREAN_A)
    names_a_language([text])
    names_a_language([text[:600]] * (size // 600))
    assert time.thread_time() - used < 0.1


def test_a_question_is_read_at_both_its_ends() -> None:
    letter = " A long letter from a customer. " * 2_000
    for question in ("Write a polite refusal." + letter, letter + "거절하는 답장을 써 줘."):
        assert not refuses(REFUSALS[0], question)
    for question in ("Say it 60 times." + letter, letter + "60번 써 줘"):
        assert not loops(LOOPS[1], question, cut=True)
    assert refuses(REFUSALS[0], letter) and loops(LOOPS[1], letter, cut=True)


def test_messages_that_are_too_long_to_tell_are_no_evidence() -> None:
    request = asked(KOREAN_Q, system="모든 답은 공손하게 한다. " * 1_000)
    assert evidence(request, ENGLISH_A) == "wrong_language"
    request = asked(KOREAN_Q, system="모든 답은 공손하게 한다. " * 9_000)
    assert evidence(request, ENGLISH_A) is None
