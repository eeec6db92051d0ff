"""Field by field against OpenAI's schema, on real vLLM: what is asked for is done, or refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.conftest import Served, sse
from tests.e2e.openai_schema import checked, checked_error, checked_stream, said

pytestmark = pytest.mark.engine
HELLO = [{"role": "user", "content": "Say hello to the team."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CALLED = {"type": "function", "function": {"name": "get_weather"}}


def ask(served: Served, **body: Any) -> Any:
    body = {"model": "local-8b", "messages": HELLO, "max_tokens": 8, **body}
    response = served.chat(**body)
    assert response.status_code == 200, response.text
    if body.get("stream"):
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        options = body.get("stream_options") or {}
        return checked_stream(sse(response.text), usage=bool(options.get("include_usage")))
    assert response.headers["content-type"] == "application/json"
    return checked(response.json())


@pytest.mark.parametrize("usage", [None, False, True])
def test_usage_comes_only_for_those_who_asked(served: Served, usage: bool | None) -> None:
    options = None if usage is None else {"include_usage": usage}
    assert said(ask(served, stream=True, stream_options=options))


def test_stream_options_say_nothing_without_a_stream(served: Served) -> None:
    assert ask(served, stream_options={"include_usage": True}).usage


def test_stream_options_reach_the_engine_whole(served: Served) -> None:
    body = {"model": "local-8b", "messages": HELLO, "max_tokens": 6, "stream": True}
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = sse(served.chat(**body, stream_options=options).text)
    counts = [event["usage"]["completion_tokens"] for event in events[:-1] if event["choices"]]
    assert counts == sorted(counts) and counts[-1] == 6


def test_n_gives_that_many_streams_in_one(served: Served) -> None:
    chunks = ask(served, n=3, temperature=1.0, seed=11, stream=True)
    assert {choice.index for chunk in chunks for choice in chunk.choices} == {0, 1, 2}


def test_logprobs_come_with_every_token(served: Served) -> None:
    chunks = ask(served, stream=True, logprobs=True, top_logprobs=3)
    tokens = [
        token
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs and choice.logprobs.content
        for token in choice.logprobs.content
    ]
    assert len(tokens) == 8 and all(len(token.top_logprobs) == 3 for token in tokens)
    assert bytes(byte for token in tokens for byte in token.bytes or ()).decode() == said(chunks)
    bare = ask(served, logprobs=True).choices[0].logprobs
    assert bare and bare.content and all(token.top_logprobs == [] for token in bare.content)
    assert ask(served, logprobs=False).choices[0].logprobs is None


@pytest.mark.parametrize("stream", [False, True])
def test_one_seed_one_text(served: Served, stream: bool) -> None:
    def text(seed: int) -> str:
        answer = ask(served, seed=seed, temperature=1.0, max_tokens=24, stream=stream)
        return said(answer) if stream else answer.choices[0].message.content

    assert text(7) == text(7) != text(8)


@pytest.mark.parametrize("several", [False, True])
def test_stop_cuts_before_its_text(served: Served, several: bool) -> None:
    free = ask(served, max_tokens=24, temperature=0).choices[0].message.content
    word = free.split()[2]
    stop = ["\u241f", word] if several else word
    chunks = ask(served, max_tokens=24, temperature=0, stop=stop, stream=True)
    assert said(chunks) == free[: free.index(word)]
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_max_completion_tokens_goes_before_max_tokens(served: Served) -> None:
    answer = ask(served, max_tokens=20, max_completion_tokens=5, ignore_eos=True)
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (5, "length")


def test_content_arrays_and_text_are_the_same_to_the_model(served: Served) -> None:
    text = "Name one colour.\nShortly."
    plain = ask(served, messages=[{"role": "user", "content": text}], temperature=0)
    parts = [{"type": "text", "text": line} for line in text.splitlines()]
    split = ask(served, messages=[{"role": "user", "content": parts}], temperature=0)
    assert split.usage.prompt_tokens == plain.usage.prompt_tokens
    assert split.choices[0].message.content == plain.choices[0].message.content


def test_every_role_is_taken(served: Served) -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Seoul"}'},
    }
    messages = [
        {"role": "developer", "content": "Answer shortly."},
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": "Weather?", "name": "kim"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "user", "content": "Thanks."},
    ]
    ask(served, messages=messages)


@pytest.mark.parametrize("stream", [False, True])
def test_a_json_object_is_begun_and_nothing_else(served: Served, stream: bool) -> None:
    question = [{"role": "user", "content": "Give me an empty JSON object."}]
    answer = ask(
        served,
        messages=question,
        response_format={"type": "json_object"},
        max_tokens=40,
        temperature=0,
        stream=stream,
    )
    text = said(answer) if stream else answer.choices[0].message.content
    assert text.lstrip().startswith("{")
    reason = answer[-1].choices[0].finish_reason if stream else answer.choices[0].finish_reason
    # A small model may go on inside its object for ever; one that ends has made an object.
    assert reason == "length" or isinstance(json.loads(text), dict)


def test_a_format_of_text_is_no_format(served: Served) -> None:
    assert ask(served, response_format={"type": "text"}).choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", [CALLED, "required"], ids=["named", "required"])
def test_a_tool_is_called_where_it_must_be(served: Served, choice: Any, stream: bool) -> None:
    answer = ask(served, tools=[WEATHER], tool_choice=choice, max_tokens=60, temperature=0, stream=stream)
    if stream:
        calls = [call for chunk in answer for one in chunk.choices for call in one.delta.tool_calls or ()]
        assert calls[0].id and calls[0].type == "function" and calls[0].function.name == "get_weather"
        arguments = "".join(call.function.arguments or "" for call in calls)
    else:
        (call,) = answer.choices[0].message.tool_calls
        assert call.id and call.function.name == "get_weather"
        arguments = call.function.arguments
    assert isinstance(json.loads(arguments)["city"], str)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["none", "auto", None])
def test_where_no_tool_must_be_called_text_comes(served: Served, choice: str | None, stream: bool) -> None:
    given: dict[str, Any] = {"tools": [WEATHER]} if choice else {}
    answer = ask(served, tool_choice=choice, stream=stream, **given)
    assert said(answer) if stream else answer.choices[0].message.content


def test_fields_the_schema_does_not_have_are_kept_for_the_backend(served: Served) -> None:
    answer = ask(
        served, structured_outputs={"choice": ["weigh this word"]}, x_unknown={"deep": [1]}, max_tokens=20
    )
    assert answer.choices[0].message.content == "weigh this word"


def test_what_openai_has_and_no_engine_needs_is_taken(served: Served) -> None:
    ask(
        served,
        user="u-1",
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        parallel_tool_calls=True,
        logit_bias={"5": 1},
        presence_penalty=0.5,
        frequency_penalty=0.5,
        top_p=0.9,
        temperature=0.7,
        stop=None,
        seed=None,
        n=None,
    )


BAD: list[tuple[dict[str, Any], str | None]] = [
    ({"messages": "planted"}, "messages"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages",
    ),
    ({"stream": "yes"}, "stream"),
    ({"temperature": "planted"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": 7}, "top_p"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": "planted"}, "n"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": "planted"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_completion_tokens": "planted"}, "max_completion_tokens"),
    ({"stop": 7}, "stop"),
    ({"stop": [""]}, "stop"),
    ({"seed": "planted"}, "seed"),
    ({"seed": 1 << 70}, "seed"),
    ({"logprobs": "planted"}, "logprobs"),
    ({"logprobs": True, "top_logprobs": 99}, "top_logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"presence_penalty": 9}, "presence_penalty"),
    ({"frequency_penalty": "planted"}, "frequency_penalty"),
    ({"logit_bias": {"planted": 1}}, "logit_bias"),
    ({"logit_bias": 7}, "logit_bias"),
    ({"response_format": {"type": "planted"}}, "response_format"),
    ({"response_format": "json_object"}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format"),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "planted"}},
            }
        },
        "response_format",
    ),
    ({"tools": "planted"}, "tools"),
    ({"tools": [{}]}, "tools"),
    ({"tools": [WEATHER], "tool_choice": "planted"}, "tool_choice"),
    (
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "planted"}}},
        "tool_choice",
    ),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"stream": True, "stream_options": "planted"}, "stream_options"),
    ({"user": 7}, "user"),
    ({"parallel_tool_calls": "planted"}, "parallel_tool_calls"),
]


def test_every_bad_field_is_400_and_named(served: Served) -> None:
    wrong = []
    for change, param in BAD:
        body = {"model": "local-8b", "messages": HELLO, "max_tokens": 4, **change}
        response = served.chat(**body)
        if response.status_code != 400:
            wrong.append((change, response.status_code, response.text[:200]))
            continue
        error = checked_error(response.json())
        assert error["type"] == "invalid_request_error"
        assert "planted" not in error["message"]
        if error["param"] is None or error["param"].partition("[")[0] != param:
            wrong.append((change, error))
    assert not wrong, "\n".join(map(str, wrong))
    ask(served)
