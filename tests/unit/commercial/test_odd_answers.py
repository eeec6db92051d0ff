"""Providers that answer oddly: what still counts as an answer, and what must not pass for one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weighbridge.commercial.answer import StreamReading, error_code, read_document
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


@pytest.mark.parametrize("count", [-5, 2**24 + 1, 2**63, 10**40, None, "7", True, 1.5])
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


WORDS = [b"", b"ping", b"keep-alive", b"ok", b"null", b"true", b" .:_- ", b"x" * 64]


@pytest.mark.parametrize("word", WORDS)
def test_a_bare_word_is_passed_over(word: bytes) -> None:
    reading = StreamReading(1, TokenMeter())
    assert reading.take(word) is None and not reading.begun
    assert reading.take(HELLO) == HELLO
    assert reading.take(word) is None
    assert reading.take(END) == END and reading.whole


@pytest.mark.parametrize(
    "event",
    [
        b"x" * 65,
        b"7",
        b'"text"',
        b"[1]",
        "안녕".encode(),
        b"<html>",
        b"a\nb",
        b"\xff",
        b'{"choices": [broken]}',
        b'{"choices": [{"index": "0"}]}',
        b'{"choices": [null]}',
        b"[" * 5,
        b'ata: {"choices"',
    ],
)
def test_what_may_have_held_content_is_not_passed_over(event: bytes) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        read(HELLO, event)
    assert failed.value.kind == "malformed"


def test_two_halves_of_a_chunk_are_one_and_what_is_given_on_is_whole() -> None:
    reading = StreamReading(1, TokenMeter())
    assert reading.take(HELLO[:20]) is None
    assert reading.take(HELLO[20:]) == HELLO
    assert reading.begun and not reading.whole
    reading.take(END)
    assert reading.whole and reading.finished


@pytest.mark.parametrize("second", [HELLO, END, b"ping", b"", HELLO[1:], HELLO[20:-1], b"{"])
def test_a_half_is_completed_by_its_other_half_or_not_at_all(second: bytes) -> None:
    for at in (1, 11, 20, len(HELLO) - 1):
        if HELLO[:at] + second == HELLO:
            continue
        reading = StreamReading(1, TokenMeter())
        reading.take(HELLO[:at])
        with pytest.raises(UpstreamFailed, match="malformed"):
            reading.take(second)


def test_an_end_with_half_a_chunk_open_is_none() -> None:
    reading, _ = read(HELLO, END, HELLO[:20])
    assert not reading.whole and not reading.finished


def test_usage_in_the_last_chunk_of_the_answer_is_counted() -> None:
    reading, meter = read(HELLO, chunk({}, "stop", usage={"prompt_tokens": 4, "completion_tokens": 9}))
    assert reading.finished and (meter.prompt, meter.completion, meter.exact) == (4, 9, True)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": "context_length_exceeded", "type": "invalid_request_error"}, "context_length_exceeded"),
        ({"code": None, "type": "invalid_request_error"}, "invalid_request_error"),
        ({"type": "overloaded_error"}, "overloaded_error"),
        ({"code": 400, "type": "invalid_request_error"}, "invalid_request_error"),
        ({"code": "User said: hello", "type": "content_filter"}, "content_filter"),
        ({"code": "한국어", "type": "010-1234-5678"}, None),
        ({"code": "x" * 65, "type": ["content_filter"]}, None),
        ({}, None),
        (None, None),
        ("content_filter", None),
    ],
)
def test_the_reason_is_the_first_plain_word(error: Any, code: str | None) -> None:
    assert error_code(json.dumps({"error": error}).encode()) == code


@pytest.mark.parametrize(
    "body",
    [None, b"", b"no", b"[]", b'{"error":{"code":' + b"[" * 30_000, b'{"x":' + b'{"x":' * 30_000, b"\xff"],
)
def test_an_error_document_of_any_shape_has_no_reason(body: bytes | None) -> None:
    assert error_code(body) is None
