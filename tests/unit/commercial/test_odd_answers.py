"""Providers that answer oddly: what still counts as an answer, and what must not pass for one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weighbridge.commercial.answer import StreamReading, read_document
from weighbridge.commercial.errors import UpstreamFailed
from weighbridge.config.usage import TokenMeter


def chunk(delta: Any = None, finish: Any = None, **more: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}).encode()


HELLO = chunk({"content": "Hi"})
END = chunk({}, "stop")


def read(*events: bytes) -> tuple[StreamReading, TokenMeter]:
    meter = TokenMeter()
    reading = StreamReading(1, meter)
    for event in events:
        reading.take(event)
    return reading, meter


@pytest.mark.parametrize(
    "event",
    [
        b'{"object":"error","message":"boom","code":400}',
        b'{"detail":"Internal error"}',
        b'{"message":"overloaded","code":529}',
        b'{"error":"boom"}',
        b"{}",
    ],
)
def test_a_failure_in_a_shape_of_its_own_is_no_answer(event: bytes) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        read(HELLO, event)
    assert failed.value.kind == "status"


def test_done_without_a_finish_reason_is_not_whole() -> None:
    assert not read(HELLO)[0].whole
    assert read(HELLO, END)[0].whole
    assert not read()[0].whole
    two = json.dumps({"choices": [{"index": 1, "delta": {"content": "x"}}]}).encode()
    assert not read(HELLO, two, END)[0].whole, "the second choice has not ended"


@pytest.mark.parametrize(
    "event",
    [
        chunk({"content": [{"type": "text", "text": "x"}]}),
        chunk({"tool_calls": {}}),
        chunk(None),
        b'{"choices":[{"index":null,"delta":{"content":"a"},"finish_reason":null}]}',
        b'{"choices":null,"usage":{"prompt_tokens":1,"completion_tokens":1}}',
        b'{"x":' + b"[" * 400 + b"]" * 400 + b',"choices":[]}',
    ],
)
def test_odd_but_sound_events_pass(event: bytes) -> None:
    assert read(HELLO, event, END)[0].whole


def test_an_event_nested_without_end_is_malformed() -> None:
    with pytest.raises(UpstreamFailed) as failed:
        read(b'{"choices":' + b"[" * 20_000)
    assert failed.value.kind == "malformed"


@pytest.mark.parametrize("count", [-5, 2**63, 10**40, None, "7", True, 1.5])
def test_nonsense_counts_are_no_usage(count: Any) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": count}
    reading, meter = read(HELLO, END, json.dumps({"choices": [], "usage": usage}).encode())
    assert reading.whole
    assert (meter.prompt, meter.completion, meter.exact) == (0, 1, False)
    meter = TokenMeter()
    read_document(json.dumps({"choices": [{}], "usage": usage}).encode(), meter)
    assert (meter.prompt, meter.completion, meter.exact) == (0, 0, False)


def test_more_cached_than_prompted_is_cut_to_the_prompt() -> None:
    usage = {"prompt_tokens": 3.0, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9}}
    _, meter = read(HELLO, END, json.dumps({"choices": [], "usage": usage}).encode())
    assert (meter.prompt, meter.completion, meter.cached, meter.exact) == (3, 2, 3, True)


def test_empty_usage_in_every_chunk_does_not_stop_the_counting() -> None:
    _, meter = read(chunk({"content": "a"}, usage={}), chunk({"content": "b"}, usage=None), END)
    assert (meter.completion, meter.exact) == (2, False)
