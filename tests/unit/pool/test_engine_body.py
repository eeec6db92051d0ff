"""What an engine gets to see of a request."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.errors import InvalidRequest
from weighbridge.pool import engine_body
from weighbridge.pool.engine_body import _NOT_OFFERED, for_engine, for_wire, prepare

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def make(stream: bool = False, **fields: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": "Hello"}], **fields}
    return for_engine(body, model="local-8b", request_id="r-1", stream=stream)


def test_our_names_replace_the_callers() -> None:
    made = make(model="auto", request_id="theirs", stream_options={"include_usage": True})
    assert (made["model"], made["request_id"], made["stream"]) == ("local-8b", "r-1", False)
    assert "stream_options" not in made
    assert make(stream=True, stream_options={"include_usage": True})["stream_options"] == {
        "include_usage": True
    }


@given(st.dictionaries(st.text().filter(lambda name: name not in ("messages", "n")), JSON, max_size=6))
def test_everything_else_is_kept_and_nothing_is_shared(extra: dict[str, Any]) -> None:
    for name in ("chat_template", "chat_template_kwargs", "tools", "stream_options", *_NOT_OFFERED):
        extra.pop(name, None)
    body = {"messages": [{"role": "user", "content": "Hello"}], **extra}
    before = copy.deepcopy(body)
    made = for_engine(body, model="m", request_id="r", stream=True)
    assert made == {**before, "model": "m", "request_id": "r", "stream": True}
    for message in made["messages"]:
        message.clear()
    made["messages"].clear()
    assert body == before


def outcome(make: Callable[[], dict[str, Any]]) -> object:
    try:
        made = make()
    except InvalidRequest as refused:
        return refused.message, refused.param
    made.pop("request_id", None)
    return made


@given(
    st.dictionaries(
        st.sampled_from(
            ["messages", "n", "tools", "stream_options", "request_id", "x", "chat_template", *_NOT_OFFERED]
        ),
        JSON
        | st.just([{"type": "function", "function": {"name": "f"}}])
        | st.just([{"role": "user", "content": "Hi"}]),
    ),
    st.booleans(),
)
def test_an_engine_elsewhere_gets_the_same_but_for_our_id(body: dict[str, Any], stream: bool) -> None:
    before = copy.deepcopy(body)
    there = outcome(lambda: for_wire(body, model="m", stream=stream))
    here = outcome(lambda: for_engine(body, model="m", request_id="r", stream=stream))
    assert there == here
    assert body == before


def test_every_function_becomes_strict_and_the_callers_tools_do_not() -> None:
    tools: list[Any] = [
        {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}},
        {"type": "function", "function": {"name": "b", "strict": False}},
        {"type": "other"},
        "nonsense",
    ]
    before = copy.deepcopy(tools)
    made = make(tools=tools)["tools"]
    assert [tool["function"]["strict"] for tool in made[:2]] == [True, True]
    assert made[2:] == before[2:]
    assert tools == before
    assert make(tools="nonsense")["tools"] == "nonsense"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"use_beam_search": True}, "use_beam_search"),
        ({"kv_transfer_params": {"prompt_token_ids": [1]}}, "kv_transfer_params"),
        ({"ec_transfer_params": {"a": 1}}, "ec_transfer_params"),
        ({"chat_template": "x"}, "chat_template"),
        ({"chat_template_kwargs": {"chat_template": "x"}}, "chat_template"),
        ({"n": 129}, "n"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": {"role": "user"}}, "messages"),
    ],
)
def test_what_is_not_offered_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1/x"}},
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "file:///etc/passwd"}},
        {"image_url": {"url": "http://127.0.0.1/x"}},
        {"type": "prompt_embeds", "data": "x"},
        17,
    ],
)
def test_only_text_reaches_an_engine(part: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make(messages=[{"role": "user", "content": [{"type": "text", "text": "see"}, part]}])
    assert (caught.value.code, caught.value.param) == ("unsupported_content", "messages")


def test_text_in_parts_is_text() -> None:
    parts = [{"type": "text", "text": "a"}, "b", {"type": "refusal", "refusal": "c"}]
    assert make(messages=[{"role": "user", "content": parts}, "odd", {"role": "tool"}])


def test_a_bottomless_body_is_refused() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        make(extra=deep)


@pytest.mark.parametrize(
    ("messages", "beside"),
    [
        ([{"role": "user", "content": "word " * 1_000_000}], False),
        ([{"role": "user", "content": "Hello"}] * 400, False),
        ([{"role": "user", "content": "Hello"}] * 20_000, True),
    ],
    ids=["long text", "some messages", "many messages"],
)
async def test_a_body_of_many_values_is_copied_in_a_thread(
    messages: list[Any], beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def noting(body: dict[str, Any], **more: Any) -> dict[str, Any]:
        seen.append(threading.current_thread() is not threading.main_thread())
        return for_engine(body, **more)

    monkeypatch.setattr(engine_body, "for_engine", noting)
    body = {"messages": messages, "stream_options": {"include_usage": True}}
    made = await prepare(body, model="local-8b", request_id="r-1", stream=True)
    assert seen == [beside]
    assert made == for_engine(body, model="local-8b", request_id="r-1", stream=True)


async def test_what_is_refused_is_refused_in_the_thread_as_well() -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}] * 20_000, "n": 1_000}
    with pytest.raises(InvalidRequest) as caught:
        await prepare(body, model="local-8b", request_id="r-1", stream=True)
    assert caught.value.param == "n"


@pytest.mark.parametrize("kind", [[], {}, [[]], None, 5, True, "picture"])
def test_a_part_of_no_known_type_is_refused_whatever_its_type_is_made_of(kind: object) -> None:
    body = {"messages": [{"role": "user", "content": [{"type": kind, "text": "hello"}]}]}
    with pytest.raises(InvalidRequest) as caught:
        for_engine(body, model="local-8b", request_id="r", stream=False)
    assert caught.value.code == "unsupported_content"
