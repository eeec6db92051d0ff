"""Servers that answer oddly: what still counts as an answer, and what must not pass for one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weighbridge.config.usage import TokenMeter
from weighbridge.pool.engine import Confidence
from weighbridge.pool.http_answer import Broken, Renamed, StreamReader, Sureness, Tally, read_document

NAMES = Renamed("r1", "local-8b")


def chunk(delta: Any = None, finish: Any = None, index: int = 0, **more: Any) -> bytes:
    choices = [{"index": index, "delta": delta, "finish_reason": finish}]
    return json.dumps({"id": "theirs", "model": "theirs", "choices": choices, **more}).encode()


HELLO = chunk({"content": "Hi"})
END = chunk({}, "stop")


def read(*events: bytes, **body: Any) -> tuple[StreamReader, TokenMeter, list[Any]]:
    meter = TokenMeter()
    tally = Tally(meter)
    tally.unknown()
    reader = StreamReader(body, NAMES, tally)
    given = [event for data in events if (event := reader.take(data)) is not None]
    return reader, meter, [json.loads(event.removeprefix(b"data: ")) for event in given]


@pytest.mark.parametrize(
    "event",
    [
        b'{"object":"error","message":"boom","code":400}',
        b'{"detail":"Internal error"}',
        b'{"error":"boom"}',
        b'{"error":{"message":"boom"},"choices":[]}',
        b'{"error":"boom","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
        b"{}",
        b"[]",
        b"",
        b'{"choices":{}}',
        b'{"choices":["x"]}',
        b'{"choices":[{"index":"0"}]}',
        b'{"choices":' + b"[" * 20_000,
        b'{"usage":{"prompt_tokens":-1,"completion_tokens":1}}',
    ],
)
def test_a_failure_is_never_the_end_of_an_answer(event: bytes) -> None:
    with pytest.raises(Broken):
        read(HELLO, END, event)


@pytest.mark.parametrize(
    "event",
    [
        chunk({"content": [{"type": "text", "text": "x"}]}),
        chunk({"tool_calls": {}}),
        chunk(None),
        b'{"choices":[],"prompt_filter_results":[]}',
        b'{"choices":null,"usage":{"prompt_tokens":1,"completion_tokens":1}}',
    ],
)
def test_odd_but_sound_events_pass(event: bytes) -> None:
    assert read(HELLO, event, END)[0].whole


def test_events_carry_our_names_and_keep_the_rest() -> None:
    _, _, (event,) = read(chunk({"content": "가"}, system_fingerprint="f"))
    assert (event["id"], event["model"], event["system_fingerprint"]) == ("chatcmpl-r1", "local-8b", "f")


@pytest.mark.parametrize("field", ["content", "reasoning_content", "reasoning", "refusal", "tool_calls"])
def test_every_kind_of_content_is_counted_and_a_role_is_not(field: str) -> None:
    _, meter, given = read(chunk({"role": "assistant", "content": ""}), chunk({field: "x"}), END)
    assert (meter.completion, meter.exact, len(given)) == (1, False, 3)


@pytest.mark.parametrize("count", [-5, 2**24 + 1, 2**63, 10**40, None, "7", True, 1.5])
def test_nonsense_counts_are_no_usage(count: Any) -> None:
    usage = {"prompt_tokens": count, "completion_tokens": count}
    _, meter, _ = read(HELLO, END, json.dumps({"choices": [], "usage": usage}).encode())
    assert (meter.prompt, meter.completion, meter.exact) == (0, 1, False)


@pytest.mark.parametrize(
    ("prompt", "made", "told"),
    [(512, 1024, True), (513, 1, False), (1, 1025, False)],
    ids=["full", "more read than fits", "more made than fits"],
)
def test_a_server_that_tells_of_more_than_its_window_holds_has_told_nothing(
    prompt: int, made: int, told: bool
) -> None:
    meter = TokenMeter()
    tally = Tally(meter, 512, 2)
    tally.unknown()
    assert tally.take({"prompt_tokens": prompt, "completion_tokens": made}, final=True) is told
    assert meter.exact is told and (meter.prompt == prompt) is told


def test_more_cached_tokens_than_prompt_are_cut_to_it() -> None:
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 9},
    }
    _, meter, given = read(HELLO, END, json.dumps({"choices": [], "usage": usage}).encode())
    assert (meter.prompt, meter.completion, meter.cached, meter.exact) == (5, 1, 5, True)
    assert len(given) == 2, "nobody asked for usage"


def test_an_answer_is_whole_when_all_its_choices_have_ended() -> None:
    assert not read()[0].whole
    assert not read(HELLO)[0].whole
    other = chunk({"content": "x"}, index=1)
    assert not read(HELLO, other, END, n=2)[0].whole
    one_of_two = read(HELLO, END, n=2)[0]
    # With [DONE] it is whole; without, the second may have been cut off.
    assert one_of_two.whole and not one_of_two.finished
    assert read(HELLO, END)[0].finished


@pytest.mark.parametrize(
    "document",
    [
        {"choices": []},
        {"choices": {}},
        {"choices": ["x"]},
        {"error": {"message": "boom"}, "choices": [{"message": {}, "finish_reason": "stop"}]},
        {"choices": [{"message": {}, "finish_reason": "abort"}]},
        {"choices": [{"message": {}, "finish_reason": "error"}]},
        [],
    ],
)
def test_a_document_that_is_no_finished_answer_is_refused(document: Any) -> None:
    meter = TokenMeter()
    with pytest.raises(Broken):
        read_document(json.dumps(document).encode(), NAMES, Tally(meter))


def weighed(*logprobs: Any) -> dict[str, Any]:
    return {"content": [{"token": "x", "logprob": logprob} for logprob in logprobs]}


@pytest.mark.parametrize("shown", [False, True])
def test_how_sure_the_model_was_is_read_and_kept_from_who_did_not_ask(shown: bool) -> None:
    confidence = Confidence()
    choices = [{"message": {"content": "x"}, "finish_reason": "stop", "logprobs": weighed(-1.0, -0.5)}]
    body = json.dumps({"choices": choices}).encode()
    document = json.loads(read_document(body, NAMES, Tally(TokenMeter()), Sureness(confidence, shown)))
    assert confidence == Confidence(-1.5, 2)
    assert document["choices"][0]["logprobs"] == (weighed(-1.0, -0.5) if shown else None)

    confidence = Confidence()
    reader = StreamReader({}, NAMES, Tally(TokenMeter()), Sureness(confidence, shown))
    data = {"index": 0, "delta": {"content": "x"}, "finish_reason": None, "logprobs": weighed(-2.0)}
    event = reader.take(json.dumps({"choices": [data]}).encode())
    assert event is not None and confidence == Confidence(-2.0, 1)
    assert (b"-2.0" in event) is shown


@pytest.mark.parametrize(
    "logprobs", [None, [], {}, {"content": None}, {"content": [3, {}, {"logprob": "x"}]}, weighed(None), "x"]
)
def test_log_probabilities_that_are_none_count_for_nothing(logprobs: Any) -> None:
    confidence, choice = Confidence(), {"logprobs": logprobs}
    Sureness(confidence, False).take(choice)
    assert confidence == Confidence() and choice == {"logprobs": None}
