"""Counting tokens from vLLM's outputs, which are stood in for by shape."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weighbridge.config.usage import TokenMeter
from weighbridge.pool.engine import EngineUnavailable
from weighbridge.pool.metering import Track


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
    track.taken([state(0), state(0)])
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
    track.taken([state(10), state(4)])
    track.passed(output(3))
    track.settle()
    track.settle()
    assert meter.completion == 14


def test_settling_never_takes_tokens_back() -> None:
    track = Track(TokenMeter())
    track.taken([state(1)])
    track.passed(output(3))
    track.settle()
    assert track.meter.completion == 3


def test_a_finished_call_is_counted_by_what_passed_alone() -> None:
    track = Track(TokenMeter())
    track.taken([state(50)])
    track.passed(output(3, finished=True, reason="length"))
    track.settle()
    assert track.meter.completion == 3


def test_a_request_the_engine_never_took_counts_nothing() -> None:
    track = Track(TokenMeter())
    track.taken([])
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
