"""Which evidence is found: emptiness, length, doubt, their order, and reading answers off the wire."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.evidence import Evidence
from weighbridge.router.answer import has_content
from weighbridge.router.evidence import Look, find
from weighbridge.router.evidence_answer import Asked, Call, Heard, Said, read_answer
from weighbridge.router.evidence_json import Allowance

JSON = {"response_format": {"type": "json_object"}}


def asking(**body: Any) -> Asked:
    return Asked({"messages": [{"role": "user", "content": "Hello"}], **body}, "chat")


def found(
    asked: Asked,
    *answer: Said,
    on: tuple[Evidence, ...] = get_args(Evidence),
    whole: bool = True,
    mean: float = -0.1,
) -> Evidence | None:
    return find(Look(on, -1.0, whole), asked, answer, mean, Allowance(2.0))


# ---- empty ----


@pytest.mark.parametrize("text", ["", " ", "\n\n\t "])
def test_an_answer_without_text_is_empty(text: str) -> None:
    assert found(asking(), Said(text, finish="stop")) == "empty"
    assert found(asking(), Said(text, finish="length")) == "empty"
    assert found(asking(), Said(text, thought=True, finish="stop")) == "empty"


def test_not_where_something_else_stands_for_it() -> None:
    assert found(asking(tools=[]), Said("", calls=[Call("function", "x")], finish="stop")) is None
    assert found(asking(), Said("", refusal=True, finish="stop"), on=("empty",)) is None
    assert found(asking(), Said("0", finish="stop")) is None


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None, "function_call": {"name": "look", "arguments": "{}"}}, ""),
        ({"content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}, "Hello"),
        ({"content": [{"type": "image_url", "image_url": {"url": "data:"}}]}, ""),
        ({"content": None, "audio": {"id": "a", "data": "AAAA"}}, ""),
    ],
)
def test_what_answers_in_another_way_is_an_answer(message: dict[str, Any], text: str) -> None:
    (said,) = read_answer(document({"message": message, "finish_reason": "stop"}))
    assert said.text == text
    assert found(asking(), said) is None
    if not text:
        assert found(asking(**JSON), said, on=("invalid_json",)) is None
    heard = Heard()
    heard.take(b"data: " + document({"index": 0, "delta": message, "finish_reason": "stop"}) + b"\n\n")
    assert heard.said() == [said]
    assert has_content(document({"index": 0, "delta": message}))


@pytest.mark.parametrize("content", [[], [{"type": "text", "text": ""}], [{"type": "text", "text": " "}]])
def test_parts_without_text_are_empty(content: Any) -> None:
    (said,) = read_answer(document({"message": {"content": content}, "finish_reason": "stop"}))
    assert found(asking(), said) == "empty"


def test_not_where_the_caller_has_ended_it() -> None:
    assert found(asking(stop=["\n"]), Said("", finish="stop")) is None
    assert found(asking(), Said("", finish="stop", stop="END")) is None
    assert found(asking(max_tokens=1), Said(" ", finish="length")) is None
    assert found(asking(max_tokens=1), Said(" ", finish="stop")) == "empty"


def test_a_beginning_without_text_is_empty_unless_the_model_thinks() -> None:
    assert found(asking(), Said("\n\n"), whole=False) == "empty"
    assert found(asking(), Said("", thought=True), whole=False) is None


# ---- length ----


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_an_answer_that_was_cut_counts_where_the_caller_did_not_ask_for_it(limit: str) -> None:
    cut = Said("and then", finish="length")
    assert found(asking(), cut) == "length"
    assert found(asking(**{limit: 5}), cut) is None
    assert found(asking(**{limit: None}), cut) == "length"
    assert found(asking(), Said("and then.", finish="stop")) is None


def test_json_and_calls_have_to_be_whole_whatever_the_limit() -> None:
    assert found(asking(max_tokens=5, **JSON), Said("{", finish="length"), on=("length",)) == "length"
    calls = [Call("function", "x", "{")]
    assert found(asking(max_tokens=5), Said("", calls=calls, finish="length"), on=("length",)) == "length"


# ---- doubt ----


def test_an_unsure_answer_counts_under_the_bound_only() -> None:
    said = Said("Perhaps.", finish="stop")
    assert found(asking(), said, mean=-1.5) == "low_logprob"
    assert found(asking(), said, mean=-1.0) is None
    assert found(asking(), said, mean=-1.5, on=("empty",)) is None
    assert find(Look(("low_logprob",), None), asking(), [said], -9.0, Allowance(2.0)) is None
    assert find(Look(("low_logprob",), -1.0), asking(), [said], None, Allowance(2.0)) is None


# ---- order and choice ----


def test_only_what_is_wanted_counts_and_the_plainest_first() -> None:
    empty = Said("", finish="length")
    assert found(asking(**JSON), empty, mean=-9.0) == "empty"
    assert found(asking(**JSON), empty, mean=-9.0, on=("invalid_json", "length")) == "invalid_json"
    assert found(asking(**JSON), empty, mean=-9.0, on=("length", "low_logprob")) == "length"
    assert found(asking(**JSON), empty, on=()) is None
    assert found(asking()) is None


def test_evidence_counts_where_every_choice_shows_it() -> None:
    empty, good = Said("", finish="stop"), Said("Good.", finish="stop")
    assert found(asking(), empty, empty) == "empty"
    assert found(asking(), empty, good) is None


# ---- reading ----


def document(*choices: dict[str, Any]) -> bytes:
    return json.dumps({"id": "x", "choices": list(choices), "usage": {"total_tokens": 3}}).encode()


def test_a_whole_answer_is_read() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said, other = read_answer(
        document(
            {
                "message": {"content": "Hi", "reasoning_content": "Hm"},
                "finish_reason": "stop",
                "stop_reason": 5,
            },
            {
                "message": {"content": None, "refusal": "no", "tool_calls": [call]},
                "finish_reason": "tool_calls",
            },
        )
    )
    assert said == Said("Hi", thought=True, finish="stop", stop=5)
    assert other == Said("", refusal=True, calls=[Call("function", "look", "{}")], finish="tool_calls")


@pytest.mark.parametrize("text", [b"", b"[]", b'{"choices": [3]}', b'{"choices": [{"message": []}]}'])
def test_what_is_no_answer_is_told(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_answer(text)


@pytest.mark.parametrize("text", [b"{}", b'{"choices": null}', b'{"choices": []}'])
def test_an_answer_without_choices_has_none(text: bytes) -> None:
    assert read_answer(text) == []


@given(
    st.lists(st.text(max_size=6), max_size=8),
    st.lists(st.text(max_size=4), min_size=1, max_size=4),
    st.integers(1, 4),
)
def test_a_stream_is_put_together_however_it_comes(
    texts: list[str], arguments: list[str], at_once: int
) -> None:
    deltas: list[dict[str, Any]] = [
        {"role": "assistant", "content": ""},
        *({"content": text} for text in texts),
    ]
    deltas.append({"tool_calls": [{"index": 0, "type": "function", "function": {"name": "look"}}]})
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in arguments]
    events = [
        b"data: "
        + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}).encode()
        + b"\n\n"
        for delta in deltas
    ]
    events.append(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}\n\n')
    events.append(b'data: {"choices": [], "usage": {"total_tokens": 3}}\n\n')
    heard = Heard()
    for start in range(0, len(events), at_once):
        heard.take(b"".join(events[start : start + at_once]))
    call = Call("function", "look", "".join(arguments))
    assert heard.ended and heard.said() == [Said("".join(texts), calls=[call], finish="tool_calls")]


def test_a_stream_has_ended_when_all_its_choices_have() -> None:
    heard = Heard()
    assert not heard.ended
    heard.take(b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n')
    heard.take(b'data: {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}]}\n\n')
    assert not heard.ended
    heard.take(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n')
    assert heard.ended and [said.text for said in heard.said()] == ["a", "b"]
