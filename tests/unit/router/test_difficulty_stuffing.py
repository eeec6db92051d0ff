"""Easy-sounding words around exam questions: what a caller adds pulls none of them under a bound."""

from __future__ import annotations

import pytest

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
