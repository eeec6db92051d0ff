"""Which answers can be continued, and what goes out of a continuation's events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.engine_lab import chat, new_call
from weighbridge.config.usage import TokenMeter
from weighbridge.pool.continuation import Handover, continuable, usable_trail
from weighbridge.pool.engine import Trail
from weighbridge.pool.metering import Track

TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"n": 1},
        {"n": None},
        {"response_format": {"type": "text"}},
        {"response_format": None},
        {"tools": [TOOL]},
        {"tools": [TOOL], "tool_choice": "auto"},
        {"tools": [TOOL], "tool_choice": "none"},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "bad_words": []},
        {"repetition_penalty": 1.2, "min_tokens": 5, "stop": ["x"], "seed": 1, "temperature": 1.0},
        {"logprobs": True, "top_logprobs": 3, "logit_bias": {"5": 1.0}, "allowed_token_ids": [4]},
        {"echo": False, "structured_outputs": None, "vllm_xargs": {}},
    ],
)
def test_what_can_be_continued(fields: dict[str, Any]) -> None:
    assert continuable(chat(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"n": 0},
        {"n": "1"},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {}}},
        {"response_format": {"type": "structural_tag"}},
        {"response_format": "text"},
        {"structured_outputs": {"choice": ["a", "b"]}},
        {"guided_json": {"type": "object"}},
        {"guided_regex": "a+"},
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"presence_penalty": 0.1},
        {"frequency_penalty": -0.5},
        {"bad_words": ["a word"]},
        {"repetition_detection": {"min_count": 2}},
        {"thinking_token_budget": 0},
        {"prompt_logprobs": 0},
        {"echo": True},
        {"vllm_xargs": {"own": 1}},
    ],
)
def test_what_cannot_be_continued(fields: dict[str, Any]) -> None:
    assert not continuable(chat(**fields))


def test_the_trail_of_a_call() -> None:
    assert usable_trail(new_call(chat())) is None
    trail = Trail()
    assert usable_trail(new_call(chat(), trail=trail)) is trail and not trail.lost
    assert usable_trail(new_call(chat(n=2), trail=trail)) is None and trail.lost
    for fault, body in (
        (Trail(token_ids=[1], lost=True), chat()),
        (Trail(created=1), chat(n=2)),
        (Trail(token_ids=[1]), chat(tool_choice="required")),
    ):
        with pytest.raises(RuntimeError):
            usable_trail(new_call(body, trail=fault))


# -- the last look at the events


def event(
    delta: dict[str, Any] | None, *, created: int = 50, reason: str | None = None, **more: Any
) -> bytes:
    """An event as the chat layer makes it; without a delta it is the one with the usage."""
    document: dict[str, Any] = {"id": 'chatcmpl-"created":50,', "object": "chat.completion.chunk"}
    document["created"] = created
    document["model"] = "local-8b"
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason, **more}
    document["choices"] = [] if delta is None else [choice]
    if delta is None:
        document["usage"] = {"total_tokens": 3}
    return b"data: " + json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


ROLE = event({"role": "assistant", "content": ""})


class Line:
    """A stream under way."""

    def __init__(self, trail: Trail) -> None:
        self.trail = trail
        self.track = Track(TokenMeter(), trail=trail)
        self.handover = Handover(trail, self.track)

    def sends(self, data: bytes, *tokens: int, replaying: bool = False) -> dict[str, Any] | None:
        self.track.unsent += tokens
        self.track.replaying = replaying
        out = self.handover.hand_over(data)
        return None if out is None else json.loads(out.removeprefix(b"data: "))


def test_a_first_stream_is_passed_on_as_it_is_and_kept() -> None:
    trail = Trail()
    line = Line(trail)
    for data, tokens, ids, chars in (
        (ROLE, [7], [], 0),
        (event({"content": "가"}), [], [7], 1),
        (event({"content": ""}), [8], [7, 8], 1),
        (event({"content": "bc"}), [9, 10], [7, 8, 9, 10], 3),
        (event({}), [11], [7, 8, 9, 10, 11], 3),
        (event({"content": None}, reason="stop"), [12], [7, 8, 9, 10, 11, 12], 3),
        (event(None), [], [7, 8, 9, 10, 11, 12], 3),
    ):
        line.track.unsent += tokens
        assert line.handover.hand_over(data) == data
        assert (trail.token_ids, trail.text_chars, trail.created) == (ids, chars, 50)
    assert not trail.lost


def test_tokens_whose_event_is_still_to_come_are_not_in_the_trail() -> None:
    trail = Trail()
    line = Line(trail)
    line.sends(ROLE, 1)
    # The parser held these back: no event.
    line.track.unsent += [2, 3]
    assert trail.token_ids == []
    line.sends(event({"content": "x"}), 4)
    assert trail.token_ids == [1, 2, 3, 4]


def test_a_tool_call_loses_the_trail() -> None:
    trail = Trail()
    line = Line(trail)
    line.sends(ROLE)
    line.sends(event({"content": "ab"}), 1)
    line.sends(event({"tool_calls": []}), 2)
    assert not trail.lost
    line.sends(event({"tool_calls": [{"index": 0, "function": {"name": "f"}}]}), 3)
    assert trail.lost and trail.text_chars == 2


def test_a_continuation_sends_what_the_client_does_not_have() -> None:
    trail = Trail(token_ids=[1, 2], text_chars=3, created=20)
    line = Line(trail)
    assert line.sends(ROLE, 3, replaying=True) is None
    assert line.sends(event({"content": "abc"}), replaying=True) is None
    assert trail.token_ids == [1, 2], "what is made first is not handed over yet"
    sent = line.sends(event({"content": "de"}))
    assert sent is not None and sent["choices"][0]["delta"] == {"content": "de"}
    assert sent["created"] == 20 and sent["id"] == 'chatcmpl-"created":50,'
    assert (trail.token_ids, trail.text_chars, trail.created) == ([1, 2, 3], 5, 20)
    usage = line.sends(event(None))
    assert usage is not None and usage["created"] == 20 and usage["usage"] == {"total_tokens": 3}


def test_text_of_old_tokens_that_was_held_back_goes_out_without_their_details() -> None:
    trail = Trail(token_ids=[1, 2], text_chars=3, created=20)
    line = Line(trail)
    line.sends(ROLE, 3, replaying=True)
    details = {"logprobs": {"content": [{"token": "x"}]}, "token_ids": [1, 2]}
    sent = line.sends(event({"content": "abc가"}, **details), replaying=True)
    assert sent is not None
    (choice,) = sent["choices"]
    assert choice == {"index": 0, "delta": {"content": "가"}, "logprobs": None, "finish_reason": None}
    assert (trail.token_ids, trail.text_chars) == ([1, 2], 4)


def test_a_parser_that_releases_old_text_later_does_not_repeat_it() -> None:
    trail = Trail(token_ids=[1, 2], text_chars=5, created=20)
    line = Line(trail)
    line.sends(ROLE, 3, replaying=True)
    assert line.sends(event({"content": "abc"}), replaying=True) is None
    details = {"logprobs": {"content": [{"token": "x"}]}}
    first = line.sends(event({"content": "d"}, **details))
    assert first is not None and first["choices"][0]["delta"] == {"content": ""}
    assert first["choices"][0]["logprobs"] == details["logprobs"], "they are of new tokens"
    second = line.sends(event({"content": "ef"}), 4)
    assert second is not None and second["choices"][0]["delta"] == {"content": "f"}
    assert (trail.token_ids, trail.text_chars) == ([1, 2, 3, 4], 6)


def test_an_end_and_a_tool_call_go_out_while_the_rest_is_known() -> None:
    trail = Trail(token_ids=[1], text_chars=3, created=20)
    line = Line(trail)
    line.sends(ROLE, replaying=True)
    sent = line.sends(event({"content": "abc"}, reason="length"), replaying=True)
    assert sent is not None and sent["choices"][0]["finish_reason"] == "length"
    assert sent["choices"][0]["delta"] == {"content": ""}

    trail = Trail(token_ids=[1], text_chars=0, created=20)
    line = Line(trail)
    call = [{"index": 0, "function": {"name": "f"}}]
    sent = line.sends(event({"tool_calls": call}), replaying=True)
    assert sent is not None and sent["choices"][0]["delta"]["tool_calls"] == call
    assert trail.lost


def test_only_the_role_had_gone_out() -> None:
    trail = Trail(created=20)
    line = Line(trail)
    assert line.sends(ROLE, 1) is None
    sent = line.sends(event({"content": "ab"}))
    assert sent is not None and sent["created"] == 20
    assert (trail.token_ids, trail.text_chars) == ([1], 2)
