"""Which fields go out, and that no text goes out unseen."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.unit.masking.fakes import Children
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import InvalidRequest
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking import masker as masker_module
from weighbridge.masking.body import INSTRUCTION
from weighbridge.masking.entities import PLACEHOLDER, Span
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.masker import Masker
from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.seal import verify

CLOCK = SystemClock()
SECRET = "XXsecretXX"
SAY = {"role": "user", "content": "hello"}


@pytest.fixture
async def masker() -> AsyncIterator[Masker]:
    made = Masker(
        MaskingSettings(layers=[], without_names="mask", max_chars=5000), CLOCK, start_child=Children().start
    )
    await made.start()
    yield made
    await made.close()


async def mask(masker: Masker, body: dict[str, Any], conversation: str = "t/c") -> MaskedRequest:
    return await masker.mask(
        body,
        request_id="r1",
        upstream_model="upstream",
        conversation=conversation,
        deadline=Deadline.after(CLOCK, 10),
    )


async def outward(masker: Masker, body: dict[str, Any]) -> dict[str, Any]:
    masked = await mask(masker, body)
    assert verify(masked)
    made: dict[str, Any] = json.loads(masked.body)
    return made


async def reason(masker: Masker, body: dict[str, Any]) -> str:
    with pytest.raises(MaskingRefused) as raised:
        await mask(masker, body)
    return raised.value.reason


def tool(name: str = "f", **function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **function}}


def call(arguments: str, name: str = "f", id: str = "c1") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}],
    }


SITES: dict[str, dict[str, Any]] = {
    "user": {"messages": [{"role": "user", "content": SECRET}]},
    "system": {"messages": [{"role": "system", "content": f"a {SECRET} b"}, SAY]},
    "developer": {"messages": [{"role": "developer", "content": SECRET}, SAY]},
    "assistant": {"messages": [{"role": "assistant", "content": SECRET}, SAY]},
    "refusal": {"messages": [{"role": "assistant", "content": None, "refusal": SECRET}, SAY]},
    "tool result": {"messages": [{"role": "tool", "tool_call_id": "c", "content": SECRET}]},
    "content part": {"messages": [{"role": "user", "content": [{"type": "text", "text": SECRET}]}]},
    "refusal part": {
        "messages": [{"role": "assistant", "content": [{"type": "refusal", "refusal": SECRET}]}, SAY]
    },
    "name": {"messages": [{"role": "user", "name": SECRET, "content": "hello"}]},
    "tool call id": {
        "messages": [SAY, call("{}", id=SECRET), {"role": "tool", "tool_call_id": SECRET, "content": ""}]
    },
    "arguments": {"messages": [SAY, call(json.dumps({"a": [{"b": SECRET}]}))]},
    "arguments, escaped": {"messages": [SAY, call('{"a": "\\u0058XsecretXX"}')]},
    "JSON in arguments": {"messages": [SAY, call(json.dumps({"a": json.dumps({"b": 'x\\"' + SECRET})}))]},
    "JSON in a tool result": {
        "messages": [{"role": "tool", "tool_call_id": "c", "content": '{"a": "\\u0058XsecretXX"}'}]
    },
    "old function call": {
        "messages": [
            SAY,
            {"role": "assistant", "function_call": {"name": "f", "arguments": json.dumps([SECRET])}},
        ]
    },
    "tool description": {"messages": [SAY], "tools": [tool(description=SECRET)]},
    "parameter description": {
        "messages": [SAY],
        "tools": [tool(parameters={"properties": {"p": {"type": "string", "description": SECRET}}})],
    },
    "enum, default, example": {
        "messages": [SAY],
        "tools": [tool(parameters={"enum": [SECRET], "default": SECRET, "examples": [[SECRET]]})],
    },
    "old function": {"messages": [SAY], "functions": [{"name": "f", "description": SECRET}]},
    "response schema": {
        "messages": [SAY],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"const": SECRET}}},
    },
    "stop": {"messages": [SAY], "stop": SECRET},
    "stops": {"messages": [SAY], "stop": ["a", SECRET]},
}


@pytest.mark.parametrize("site", SITES)
async def test_text_is_masked_at_every_site(masker: Masker, site: str) -> None:
    masked = await mask(masker, SITES[site])
    assert b"secret" not in masked.body
    if site != "tool call id":
        assert PLACEHOLDER.search(masked.body.decode()) is not None
        assert masked.entities.values()
        assert len(masked.vault) >= 1


DROPPED = (
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "store",
    "service_tier",
    "logit_bias",
    "prediction",
    "web_search_options",
    "chat_template_kwargs",
    "top_k",
    "something_new",
)


async def test_only_known_fields_go_out(masker: Masker) -> None:
    known = {
        "messages": [SAY],
        "tools": [tool()],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "temperature": 0.1 + 0.2,
        "top_p": 1,
        "n": 2,
        "max_tokens": 100,
        "stop": ["\n"],
        "seed": 7,
        "logprobs": True,
        "top_logprobs": 3,
        "reasoning_effort": "low",
        "response_format": {"type": "json_object"},
        "stream": True,
    }
    made = await outward(masker, {**known, "model": "auto", **dict.fromkeys(DROPPED, SECRET)})
    assert made == {
        **known,
        "model": "upstream",
        "temperature": 0.3,
        "stream_options": {"include_usage": True},
    }


async def test_unknown_fields_of_messages_and_parts_stay_here(masker: Masker) -> None:
    part = {"type": "text", "text": "hi", "cache_control": SECRET}
    made = await outward(
        masker, {"messages": [{"role": "user", "content": [part], "extra": SECRET, "weight": 1}]}
    )
    assert made["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]


async def test_usage_is_always_asked_for_in_a_stream_and_only_there(masker: Masker) -> None:
    asked = {"messages": [SAY], "stream": True, "stream_options": {"include_usage": False, "x": SECRET}}
    assert (await outward(masker, asked))["stream_options"] == {"include_usage": True}
    assert "stream_options" not in await outward(masker, {"messages": [SAY], "stream": False})


@pytest.mark.parametrize(
    ("why", "body"),
    [
        (
            "not_text",
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        ),
        (
            "not_text",
            {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
        ),
        (
            "not_text",
            {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "x"}}]}]},
        ),
        ("not_text", {"messages": [{"role": "user", "content": [{"text": "no type"}]}]}),
        ("not_text", {"messages": [{"role": "assistant", "audio": {"id": "x"}}]}),
        ("not_text", {"messages": [SAY], "modalities": ["text", "audio"]}),
        ("not_text", {"messages": [SAY], "audio": {"voice": "x"}}),
        ("too_large", {"messages": [{"role": "user", "content": "x" * 5001}]}),
        ("unknown_field_type", {"messages": [{"role": "oracle", "content": "x"}]}),
        ("unknown_field_type", {"messages": [{"role": "user", "content": "\ud83d"}]}),
        ("unknown_field_type", {"messages": [SAY], "reasoning_effort": SECRET}),
        ("unknown_field_type", {"messages": [SAY], "tool_choice": SECRET}),
        ("unknown_field_type", {"messages": [SAY], "tools": [{"type": "web_search"}]}),
        ("bad_arguments", {"messages": [SAY, call('{"a": XXsecretXX')]}),
        ("number", {"messages": [SAY], "max_tokens": 12345678}),
        ("number", {"messages": [SAY], "temperature": 1e9}),
        ("number", {"messages": [SAY], "tools": [tool(parameters={"maximum": 12345678})]}),
        ("key_hit", {"messages": [SAY, call(json.dumps({SECRET: 1}))]}),
        ("key_hit", {"messages": [SAY, call("{}", name=SECRET)]}),
        ("key_hit", {"messages": [SAY, call("{}", name="call_01012345678")]}),
        ("key_hit", {"messages": [SAY], "tools": [tool(name=SECRET)]}),
        ("key_hit", {"messages": [SAY], "tools": [tool(parameters={"properties": {SECRET: {}}})]}),
        ("key_hit", {"messages": [{"role": "tool", "name": SECRET, "tool_call_id": "c", "content": ""}]}),
        ("key_hit", {"messages": [SAY], "tool_choice": {"type": "function", "function": {"name": SECRET}}}),
    ],
)
async def test_what_cannot_be_made_safe_is_refused(masker: Masker, why: str, body: dict[str, Any]) -> None:
    assert await reason(masker, body) == why


@pytest.mark.parametrize(
    ("param", "body"),
    [
        ("messages", {"messages": []}),
        ("messages", {}),
        ("messages", {"messages": SECRET}),
        ("messages[0]", {"messages": [SECRET]}),
        ("messages[1].content", {"messages": [SAY, {"role": "user", "content": 5}]}),
        ("messages[0].content", {"messages": [{"role": "user", "content": [{"type": "text", "text": 7}]}]}),
        ("temperature", {"messages": [SAY], "temperature": SECRET}),
        ("n", {"messages": [SAY], "n": "2"}),
        ("n", {"messages": [SAY], "n": 1.5}),
        ("n", {"messages": [SAY], "n": 0}),
        ("n", {"messages": [SAY], "n": 129}),
        ("max_tokens", {"messages": [SAY], "max_tokens": 1e9}),
        ("max_tokens", {"messages": [SAY], "max_tokens": 0}),
        ("logprobs", {"messages": [SAY], "logprobs": 1}),
        ("modalities", {"messages": [SAY], "modalities": "text"}),
        ("tools", {"messages": [SAY], "tools": SECRET}),
        ("seed", {"messages": [SAY], "seed": 1.5}),
        ("response_format", {"messages": [SAY], "response_format": 5}),
    ],
)
async def test_a_wrong_type_is_told_with_the_field_and_without_the_value(
    masker: Masker, param: str, body: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await mask(masker, body)
    assert raised.value.param == param
    assert "secret" not in raised.value.message


async def test_more_values_or_texts_than_one_request_may_hold_are_refused_early(masker: Masker) -> None:
    for parameters in (
        {"enum": [1] * 1_000_000},
        {"enum": [{}] * 1_000_000},
        {"properties": dict.fromkeys(map(str, range(4001)), 1)},
    ):
        before = time.process_time()
        assert (
            await reason(masker, {"messages": [SAY], "tools": [tool(parameters=parameters)]}) == "too_large"
        )
        assert time.process_time() - before < 0.5
    assert await reason(masker, {"messages": [SAY] * 20_001}) == "too_large"


async def test_a_value_split_over_two_parts_is_masked_in_both(masker: Masker) -> None:
    for halves in (
        ("call XXsec", "retXX now"),
        ("call 010-12", "34-5678 now"),
        ("mail kim@", "example.com now"),
    ):
        parts = [{"type": "text", "text": half} for half in halves]
        made = await outward(masker, {"messages": [{"role": "user", "content": parts}]})
        texts = [part["text"] for part in made["messages"][-1]["content"]]
        assert [PLACEHOLDER.sub("", text) for text in texts] == [halves[0].split()[0] + " ", " now"]


@pytest.mark.parametrize("between", [[], [{"role": "assistant", "content": "Go on."}]])
async def test_a_number_dealt_out_over_messages_is_masked_in_both(
    masker: Masker, between: list[dict[str, Any]]
) -> None:
    first, second = "It begins with 9001", "015678 and that was it"
    messages = [{"role": "user", "content": first}, *between, {"role": "user", "content": second}]
    made = await outward(masker, {"messages": messages})
    told = [message["content"] for message in made["messages"][1:]]
    assert "9001" not in told[0] and told[0].startswith("It begins with [NUM_")
    assert "015678" not in told[-1] and told[-1].endswith("] and that was it")


async def test_numbers_of_messages_far_apart_are_left_alone(masker: Masker) -> None:
    messages = [
        {"role": "user", "content": "In 2023 we sold 1,200 pieces and then nothing."},
        {"role": "assistant", "content": "I see: nothing after 1,200."},
        {"role": "user", "content": "Right, 12 boxes of them."},
    ]
    assert (await outward(masker, {"messages": messages}))["messages"] == messages


async def test_parts_that_only_adjoin_are_left_alone(masker: Masker) -> None:
    parts = [{"type": "text", "text": text} for text in ("in 2023", " we sold", " 1,234,567")]
    made = await outward(masker, {"messages": [{"role": "user", "content": parts}]})
    assert made["messages"] == [{"role": "user", "content": parts}]


async def test_nesting_without_end_is_refused(masker: Masker) -> None:
    deep = '{"a":' * 80 + "1" + "}" * 80
    assert await reason(masker, {"messages": [SAY, call(deep)]}) == "unknown_field_type"


async def test_long_numbers_in_arguments_become_text_and_short_ones_stay(masker: Masker) -> None:
    arguments = {"phone": 1012345678, "place": 37.5665358, "n": 12, "t": 0.25, "ok": True, "limit": 2**31 - 1}
    made = await outward(masker, {"messages": [SAY, call(json.dumps(arguments))]})
    sent = json.loads(made["messages"][-1]["tool_calls"][0]["function"]["arguments"])
    assert PLACEHOLDER.fullmatch(sent.pop("phone"))
    assert PLACEHOLDER.fullmatch(sent.pop("place"))
    assert sent == {"n": 12, "t": 0.25, "ok": True, "limit": 2**31 - 1}


async def test_bounds_that_schemas_are_full_of_pass(masker: Masker) -> None:
    schema = {"type": "integer", "minimum": -(2**53) + 1, "maximum": 2**63 - 1, "multipleOf": 10**9}
    made = await outward(masker, {"messages": [SAY], "tools": [tool(parameters=schema)]})
    assert made["tools"][0]["function"]["parameters"] == schema


async def test_a_long_seed_is_replaced_by_a_short_one_and_always_the_same(masker: Masker) -> None:
    seeds = {(await outward(masker, {"messages": [SAY], "seed": 9_876_543_210}))["seed"] for _ in range(2)}
    assert len(seeds) == 1
    assert 0 <= seeds.pop() < 10**6


async def test_empty_arguments_stay_empty(masker: Masker) -> None:
    made = await outward(masker, {"messages": [SAY, call("")]})
    assert made["messages"][-1]["tool_calls"][0]["function"]["arguments"] == ""


async def test_tool_call_ids_are_replaced_alike_in_call_and_result(masker: Masker) -> None:
    messages = [
        SAY,
        call("{}", id="01012345678"),
        {"role": "tool", "tool_call_id": "01012345678", "content": "ok"},
    ]
    made = await outward(masker, {"messages": messages})
    asked, answered = made["messages"][1]["tool_calls"][0]["id"], made["messages"][2]["tool_call_id"]
    assert asked == answered
    assert "010" not in asked


async def test_the_second_look_masks_what_the_detector_missed(masker: Masker) -> None:
    made = await mask(masker, {"messages": [{"role": "user", "content": "계좌 110 123 456789, a@b 로"}]})
    assert made.entities == {"EMAIL": 1, "NUM": 1}
    assert b"456789" not in made.body
    assert b"a@b" not in made.body


async def test_a_placeholder_in_the_request_is_refused() -> None:
    def shaped(text: str) -> list[tuple[int, int, str]]:
        return [(0, 5, "SHAPE")] if "[NUM_" in text else []

    masker = Masker(
        MaskingSettings(layers=[], without_names="mask"), CLOCK, start_child=Children(shaped).start
    )
    await masker.start()
    body = {"messages": [{"role": "user", "content": "[NUM_ABCDEFGH]"}]}
    assert await reason(masker, body) == "placeholder_shaped_input"
    await masker.close()


async def test_the_instruction_comes_only_with_a_masked_value(masker: Masker) -> None:
    plain = await outward(masker, {"messages": [SAY]})
    assert plain["messages"] == [SAY]
    user = {"role": "user", "content": SECRET}
    alone = (await outward(masker, {"messages": [user]}))["messages"]
    assert alone[0] == {"role": "system", "content": INSTRUCTION}
    led = (await outward(masker, {"messages": [{"role": "system", "content": "Be kind."}, user]}))["messages"]
    assert led[0]["content"] == f"Be kind.\n\n{INSTRUCTION}"
    parts = {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]}
    led = (await outward(masker, {"messages": [parts, user]}))["messages"]
    assert [part["text"] for part in led[0]["content"]] == ["Be kind.", INSTRUCTION]
    assert len(led) == 2


async def test_the_same_history_masks_to_the_same_bytes_in_one_conversation(masker: Masker) -> None:
    body = {"messages": [{"role": "user", "content": SECRET}]}
    first, again, other = [await mask(masker, body, conversation) for conversation in ("t/1", "t/1", "t/2")]
    assert first.body == again.body
    assert first.body != other.body
    assert first.body_hash == again.body_hash


async def test_a_long_request_is_put_together_in_a_thread_and_comes_out_the_same(
    masker: Masker, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[bool] = []

    def noting(work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **more: Any) -> Any:
            beside.append(threading.current_thread() is not threading.main_thread())
            return work(*args, **more)

        return noted

    for name in ("plan_body", "fill_in", "seal_request"):
        monkeypatch.setattr(masker_module, name, noting(getattr(masker_module, name)))
    words = [chr(97 + n % 26) * (n // 26 + 1) for n in range(200)]
    long = {"messages": [{"role": "user", "content": f"{word} {SECRET}"} for word in words]}
    bodies = [long, SITES["user"]]
    inline = [await mask(masker, body) for body in bodies]
    assert beside == [True] * 3 + [False] * 3
    for limit in ("_INLINE_NODES", "_INLINE_CHARS"):
        with monkeypatch.context() as patch:
            patch.setattr(masker_module, limit, 0)
            again = [await mask(masker, body) for body in bodies]
        assert beside[6:] == [True] * 6
        del beside[6:]
        assert [masked.body for masked in again] == [masked.body for masked in inline]
        assert all(map(verify, again))


async def test_the_request_is_not_changed(masker: Masker) -> None:
    body = SITES["enum, default, example"]
    before = json.dumps(body)
    await mask(masker, body)
    assert json.dumps(body) == before


async def test_a_fault_of_our_own_is_a_refusal_without_text(
    masker: Masker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(text: str) -> list[Any]:
        raise ValueError(text)

    monkeypatch.setattr("weighbridge.masking.masked_text.remains", broken)
    with pytest.raises(MaskingRefused) as raised:
        await mask(masker, {"messages": [{"role": "user", "content": SECRET}]})
    assert raised.value.reason == "internal"
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert "secret" not in caplog.text


def beside_a_label(text: str) -> list[Span]:
    """A detector that knows a name only by what stands before it."""
    return [(*hit.span(1), "PERSON") for hit in re.finditer(r'"(?:name|성명)": "([^"]*)"', text)]


async def masker_of(find: Callable[[str], list[Span]]) -> Masker:
    made = Masker(MaskingSettings(layers=[], without_names="mask"), CLOCK, start_child=Children(find).start)
    await made.start()
    return made


@pytest.mark.parametrize("key", ["name", "성명"])
async def test_a_value_in_arguments_is_looked_at_beside_its_key(key: str) -> None:
    masker = await masker_of(beside_a_label)
    try:
        arguments = json.dumps({key: "min su", "note": "min su", "n": [{key: "you"}]})
        made = await outward(masker, {"messages": [SAY, call(arguments)]})
        said = json.loads(made["messages"][-1]["tool_calls"][0]["function"]["arguments"])
        assert PLACEHOLDER.fullmatch(said[key]) and PLACEHOLDER.fullmatch(said["n"][0][key])
        # One text, one masked form, wherever it stands.
        assert said["note"] == said[key]
    finally:
        await masker.close()


async def test_an_identifier_that_looks_like_a_place_stays_and_a_name_does_not() -> None:
    def find(text: str) -> list[Span]:
        return [(*hit.span(), kind) for word, kind in KNOWN.items() for hit in re.finditer(word, text)]

    KNOWN = {"Paris": "PLACE", "홍길동": "NAME", "secret_value": "KNOWN"}
    masker = await masker_of(find)
    try:
        for key, refused in (("Paris", False), ("Paris 12", True), ("홍길동", True), ("secret_value", True)):
            body = {"messages": [SAY, call(json.dumps({key: 1}))]}
            if refused:
                assert await reason(masker, body) == "key_hit"
            else:
                await outward(masker, body)
    finally:
        await masker.close()


@pytest.mark.parametrize("name", ["What is Kim's number", "이름", "a" * 129, ""])
async def test_a_sentence_is_no_function_name(masker: Masker, name: str) -> None:
    for body in (
        {"messages": [SAY], "tools": [{"type": "function", "function": {"name": name}}]},
        {"messages": [SAY], "tool_choice": {"type": "function", "function": {"name": name}}},
        {"messages": [SAY], "response_format": {"type": "json_schema", "json_schema": {"name": name}}},
        {"messages": [SAY, {"role": "function", "name": name, "content": "1"}]},
    ):
        assert await reason(masker, body) == "key_hit"


async def test_a_response_format_has_no_other_fields(masker: Masker) -> None:
    asked = {"type": "json_schema", "note": "kim", "json_schema": {"name": "n", "schema": {}, "x": "kim"}}
    made = await outward(masker, {"messages": [SAY], "response_format": asked})
    assert made["response_format"] == {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}
    assert (
        await reason(masker, {"messages": [SAY], "response_format": {"type": "kim"}}) == "unknown_field_type"
    )
