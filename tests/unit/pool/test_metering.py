"""Counting tokens from vLLM's outputs, which are stood in for by shape."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weighbridge.config.usage import TokenMeter
from weighbridge.pool.engine import Confidence, EngineUnavailable, Trail
from weighbridge.pool.metering import Tally, Track


def output(*tokens: int, cached: int | None = 0, finished: bool = False, reason: str | None = None) -> Any:
    choices = [SimpleNamespace(token_ids=[0] * count, finish_reason=reason) for count in tokens]
    return SimpleNamespace(outputs=choices, num_cached_tokens=cached, finished=finished)


def state(made: int, prompt: int = 7) -> Any:
    return SimpleNamespace(
        prompt_len=prompt, detokenizer=SimpleNamespace(num_output_tokens=lambda: made), made=made
    )


def test_new_tokens_of_all_choices_add_up() -> None:
    meter = TokenMeter()
    track = Track(meter)
    track.taken(state(0))
    track.taken(state(0))
    track.passed(output(1, cached=5))
    track.passed(output(2, 3, cached=6))
    assert not track.finished
    track.passed(output(1, finished=True, reason="stop"))
    track.settle()
    assert track.finished and track.taken_by_engine
    assert meter == TokenMeter(prompt=7, completion=7, cached=5)


def test_a_call_that_is_cut_off_counts_what_was_made_and_never_passed() -> None:
    meter = TokenMeter()
    track = Track(meter)
    track.taken(state(10))
    track.taken(state(4))
    track.passed(output(3))
    track.settle()
    track.settle()
    assert meter.completion == 14


def test_settling_never_takes_tokens_back() -> None:
    track = Track(TokenMeter())
    track.taken(state(1))
    track.passed(output(3))
    track.settle()
    assert track.meter.completion == 3


def test_a_finished_call_is_counted_by_what_passed_alone() -> None:
    track = Track(TokenMeter())
    track.taken(state(50))
    track.passed(output(3, finished=True, reason="length"))
    track.settle()
    assert track.meter.completion == 3


def test_a_request_the_engine_never_took_counts_nothing() -> None:
    track = Track(TokenMeter())
    track.settle()
    assert track.meter == TokenMeter() and not track.taken_by_engine


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_output_that_breaks_off_is_counted_and_is_no_end(reason: str) -> None:
    track = Track(TokenMeter())
    with pytest.raises(EngineUnavailable):
        track.passed(output(2, finished=True, reason=reason))
    assert track.meter.completion == 2 and not track.finished


def test_an_engine_without_a_prefix_cache_says_none() -> None:
    track = Track(TokenMeter())
    track.passed(output(1, cached=None))
    assert track.meter.cached == 0


def test_an_engine_counts_over_its_calls_what_passed() -> None:
    tally = Tally()
    first, second = Track(TokenMeter(), tally=tally), Track(TokenMeter(), tally=tally)
    first.passed(output(3))
    second.passed(output(1, 2))
    with pytest.raises(EngineUnavailable):
        second.passed(output(1, reason="abort"))
    assert tally.made == 7


def test_a_stream_that_may_be_continued_keeps_the_ids_that_passed() -> None:
    trail = Trail()
    track = Track(TokenMeter(), trail=trail)
    track.taken(state(0))
    track.passed(output(2))
    track.passed(output(1, finished=True, reason="stop"))
    assert track.unsent == [0, 0, 0] and trail == Trail(prompt_tokens=7)
    other = Track(TokenMeter())
    other.passed(output(2))
    assert other.unsent == []


def test_a_continuation_is_counted_by_what_this_engine_did() -> None:
    meter = TokenMeter()
    trail = Trail(token_ids=[1, 2, 3], text_chars=5, created=9)
    track = Track(meter, trail=trail)
    # vLLM's record has the trail's tokens in the prompt, and in the detokenizer.
    track.taken(state(3 + 4, prompt=7 + 3))
    assert trail.prompt_tokens == 7
    track.passed(output(1, cached=8))
    trail.token_ids.append(4)
    track.settle()
    assert meter == TokenMeter(prompt=10, completion=4, cached=8)


def sure(*choices: tuple[int, int, float | None]) -> Any:
    """An output with new tokens and the sum of the log-probabilities so far, by the number of the choice."""
    outputs = [
        SimpleNamespace(index=index, token_ids=[0] * count, cumulative_logprob=total, finish_reason=None)
        for index, count, total in choices
    ]
    return SimpleNamespace(outputs=outputs, num_cached_tokens=0, finished=False)


def test_log_probabilities_of_all_choices_add_up() -> None:
    confidence = Confidence()
    assert confidence.mean is None
    track = Track(TokenMeter(), confidence=confidence)
    track.passed(sure((0, 2, -1.0), (1, 1, -4.0)))
    track.passed(sure((0, 1, -1.5)))
    track.passed(sure((1, 2, -6.5)))
    assert confidence == Confidence(-8.0, 6)
    assert confidence.mean == pytest.approx(-8.0 / 6)


def test_an_engine_without_log_probabilities_is_not_counted_against_the_answer() -> None:
    track = Track(TokenMeter(), confidence=Confidence())
    track.passed(sure((0, 2, None)))
    assert track.confidence is not None and track.confidence.total == 0.0
