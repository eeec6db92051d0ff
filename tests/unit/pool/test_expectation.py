"""What a request is expected to need: a bit high, quick to learn, bounded."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.pool.expectation import MAX_TASKS, MIN_SAMPLES, START_ANSWER, WINDOW, Expectation


def learned(*answers: int, task: str = "qa", body_bytes: int = 300, prompt_tokens: int = 100) -> Expectation:
    expectation = Expectation()
    for answer in answers:
        expectation.learn(task, body_bytes, prompt_tokens, answer, 1)
    return expectation


def test_before_anything_is_known_it_is_careful() -> None:
    fresh = Expectation()
    assert fresh.prompt_tokens(0) == 0
    assert fresh.prompt_tokens(1) == 1
    assert fresh.prompt_tokens(3001) == 1001
    assert fresh.answer_tokens("qa", None, 1) == 256
    assert fresh.answer_tokens("qa", 4096, 1) == 256
    assert fresh.answer_tokens("qa", 20, 3) == 60


def test_a_few_answers_are_not_believed_yet() -> None:
    few = learned(*[10] * 7, body_bytes=100, prompt_tokens=90)
    assert (few.answer_tokens("qa", None, 1), few.prompt_tokens(300)) == (256, 100)
    few.learn("qa", 100, 90, 10, 1)
    assert (few.answer_tokens("qa", None, 1), few.prompt_tokens(300)) == (10, 270)


def test_max_tokens_is_a_ceiling_and_not_what_is_reserved() -> None:
    rng = random.Random(7)
    answers = [round(rng.gauss(200, 30)) for _ in range(WINDOW)]
    expectation = learned(*answers)
    ninth_decile = sorted(answers)[math.ceil(0.9 * WINDOW) - 1]
    assert 220 < ninth_decile < 260
    assert expectation.answer_tokens("qa", 4096, 1) == ninth_decile
    assert expectation.answer_tokens("qa", None, 4) == 4 * ninth_decile
    assert expectation.answer_tokens("qa", 50, 4) == 200


def test_a_task_goes_by_its_own_answers_and_an_unknown_one_by_all() -> None:
    expectation = learned(*[20] * 40, task="classify")
    for _ in range(MIN_SAMPLES - 1):
        expectation.learn("summarise", 300, 100, 900, 1)
    assert expectation.answer_tokens("classify", None, 1) == 20
    # Too few of its own: 900 is above nine tenths of all.
    assert expectation.answer_tokens("summarise", None, 1) == expectation.answer_tokens("new", None, 1) == 900
    for _ in range(33):
        expectation.learn("classify", 300, 100, 20, 1)
    assert expectation.answer_tokens("new", None, 1) == 20
    expectation.learn("summarise", 300, 100, 900, 1)
    assert expectation.answer_tokens("summarise", None, 1) == 900


def test_several_answers_are_counted_one_by_one() -> None:
    expectation = Expectation()
    for _ in range(MIN_SAMPLES):
        expectation.learn("qa", 300, 100, 401, 4)
    assert expectation.answer_tokens("qa", None, 1) == 101
    assert expectation.answer_tokens("qa", None, 2) == 202


def test_most_prompts_fit_what_is_expected_of_them() -> None:
    expectation = Expectation()
    # Three in four are English, the fourth has a token for every byte.
    for n in range(WINDOW):
        expectation.learn("qa", 1000, 1000 if n % 4 == 3 else 250, 10, 1)
    assert expectation.prompt_tokens(1001) == 251
    expectation.learn("qa", 1000, 1000, 10, 1)
    assert expectation.prompt_tokens(1000) == 1000


def test_what_is_long_ago_is_forgotten() -> None:
    expectation = learned(*[3000] * WINDOW, body_bytes=100, prompt_tokens=100)
    for _ in range(WINDOW):
        expectation.learn("qa", 400, 100, 30, 1)
    assert expectation.answer_tokens("qa", None, 1) == 30
    assert expectation.answer_tokens("other", None, 1) == 30
    assert expectation.prompt_tokens(400) == 100


def test_counts_of_zero_say_nothing() -> None:
    expectation = learned(*[100] * MIN_SAMPLES)
    for _ in range(WINDOW):
        expectation.learn("qa", 300, 0, 0, 1)
        expectation.learn("qa", 0, 5, 0, 1)
    assert expectation.answer_tokens("qa", None, 1) == 100
    assert expectation.prompt_tokens(300) == 100


def test_tasks_without_end_do_not_pile_up_and_busy_ones_stay() -> None:
    expectation = learned(*[30] * MIN_SAMPLES, task="busy")
    for n in range(10 * MAX_TASKS):
        for _ in range(MIN_SAMPLES):
            expectation.learn(f"task {n}", 300, 100, 500, 1)
        expectation.learn("busy", 300, 100, 30, 1)
    assert len(expectation._by_task) == MAX_TASKS
    assert expectation.answer_tokens("busy", None, 1) == 30


FINISHED = st.lists(
    st.tuples(
        st.sampled_from(["qa", "code", ""]),
        st.integers(1, 50_000),
        st.integers(1, 60_000),
        st.integers(1, 9000),
        st.integers(1, 4),
    ),
    max_size=300,
)


@given(FINISHED, st.sampled_from(["qa", "code", "?"]), st.none() | st.integers(1, 5000), st.integers(1, 8))
def test_it_is_the_percentile_of_the_newest(
    finished: list[tuple[str, int, int, int, int]], task: str, limit: int | None, n: int
) -> None:
    expectation = Expectation()
    for one in finished:
        expectation.learn(*one)

    def percentile(values: list[float], percent: int) -> float | None:
        newest = sorted(values[-WINDOW:])
        # The smallest value that at least so many percent do not exceed.
        return next(
            (
                v
                for k, v in enumerate(newest, 1)
                if len(newest) >= MIN_SAMPLES and 100 * k >= percent * len(newest)
            ),
            None,
        )

    own = percentile([-(-made // of) for name, _, _, made, of in finished if name == task], 90)
    every = percentile([-(-made // of) for _, _, _, made, of in finished], 90)
    each = own or every or START_ANSWER
    assert expectation.answer_tokens(task, limit, n) == n * (each if limit is None else min(limit, each))

    ratio = percentile([prompt / size for _, size, prompt, _, _ in finished], 75) or 1 / 3
    assert expectation.prompt_tokens(1234) == math.ceil(1234 * ratio)


@pytest.mark.parametrize("body_bytes", [1, 10, 1000, 10**7])
def test_a_body_always_has_a_token(body_bytes: int) -> None:
    assert learned(*[5] * 50, body_bytes=10**6, prompt_tokens=1).prompt_tokens(body_bytes) >= 1
