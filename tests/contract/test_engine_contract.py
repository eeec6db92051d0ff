"""What every `Engine` must do: the fake one always, vLLM where it is installed (one engine for all files)."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.engine_lab import (
    WINDOW,
    Answer,
    Lab,
    both,
    chat,
    complete,
    new_call,
    parse_all,
    play,
    stream,
    until,
    vllm_only,
)
from tests.support.fake_engine import FakeEngine
from weighbridge.config.errors import ApiError, ContextLengthExceeded, InvalidRequest
from weighbridge.pool.engine import Confidence, Engine, EngineOverloaded, EngineUnavailable
from weighbridge.pool.processes import alive

FREE_S = 0.5
"""How soon the engine must be free after a cancellation; on an idle machine it takes two milliseconds."""

PICTURE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/x"}}

ways = pytest.mark.parametrize("way", [complete, stream], ids=["complete", "stream"])


def check_meter(answer: Answer) -> None:
    usage = answer.usage()
    assert usage is not None
    meter = answer.meter
    assert (meter.prompt, meter.completion) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert meter.cached == (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    assert meter.prompt > 0 and meter.exact


@both
def test_complete_is_one_chat_completion_under_our_names(lab: Lab) -> None:
    answer = lab.run(lambda engine: complete(engine, chat(max_tokens=9)))
    (document,) = answer.documents
    assert document["object"] == "chat.completion"
    assert document["model"] == "local-8b"
    assert document["id"] == f"chatcmpl-{answer.call.request_id}"
    assert document["choices"][0]["message"]["role"] == "assistant"
    assert answer.text() and answer.reasons() == {0: "length"}
    assert answer.meter.completion == 9
    check_meter(answer)


@both
def test_a_stream_is_the_same_answer_in_events_without_done(lab: Lab) -> None:
    async def main(engine: Engine) -> tuple[Answer, Answer]:
        return await complete(engine, chat()), await stream(
            engine, chat(stream_options={"include_usage": True})
        )

    whole, pieces = lab.run(main)
    assert pieces.text() == whole.text()
    assert len(pieces.documents) > 5
    assert pieces.reasons() == {0: "length"}
    assert {document["model"] for document in pieces.documents} == {"local-8b"}
    assert {document["id"] for document in pieces.documents} == {f"chatcmpl-{pieces.call.request_id}"}
    check_meter(pieces)
    assert pieces.meter.completion == whole.meter.completion == 12


@both
def test_usage_is_streamed_only_when_asked_for_and_metered_all_the_same(lab: Lab) -> None:
    answer = lab.run(lambda engine: stream(engine, chat()))
    assert answer.usage() is None
    assert answer.meter.completion == 12 and answer.meter.prompt > 0


@both
@ways
def test_all_choices_are_counted(lab: Lab, way: Any) -> None:
    body = chat(n=3, temperature=1.0, max_tokens=7, stream_options={"include_usage": True})
    answer = lab.run(lambda engine: way(engine, body))
    assert answer.reasons() == {0: "length", 1: "length", 2: "length"}
    assert answer.meter.completion == 21
    check_meter(answer)


@both
@ways
def test_a_stop_text_ends_the_answer_and_is_not_part_of_it(lab: Lab, way: Any) -> None:
    async def main(engine: Engine) -> tuple[str, Answer]:
        text = (await complete(engine, chat(max_tokens=20))).text()
        body = chat(max_tokens=20, stop=[text[12:18]], stream_options={"include_usage": True})
        return text, await way(engine, body)

    text, answer = lab.run(main)
    assert answer.text() == text[: text.index(text[12:18])]
    assert answer.reasons() == {0: "stop"}
    assert 0 < answer.meter.completion < 20
    check_meter(answer)


@both
@ways
def test_the_callers_body_is_not_changed_and_unknown_fields_are_welcome(lab: Lab, way: Any) -> None:
    body = chat(
        some_future_field={"a": [1, 2]},
        request_id="mine",
        user="u",
        messages=[
            {"role": "system", "content": "Be short."},
            {"role": "assistant", "content": "Yes.", "reasoning_content": "hm"},
            {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        ],
        tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        tool_choice="none",
        max_tokens=3,
    )
    before = copy.deepcopy(body)
    answer = lab.run(lambda engine: way(engine, body))
    assert body == before
    assert answer.documents[0]["id"] == f"chatcmpl-{answer.call.request_id}"


@both
@ways
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2, "temperature": 0}, "n"),
        ({"temperature": 3.5}, "temperature"),
        ({"n": 4000}, "n"),
        ({"max_tokens": 99_999}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": "Hello"}, "messages"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"messages": [{"role": "user", "content": [PICTURE]}]}, "messages"),
    ],
)
def test_a_wrong_request_is_refused_before_the_first_event(
    lab: Lab, way: Any, fields: dict[str, Any], param: str
) -> None:
    call = new_call(chat(**fields))

    async def main(engine: Engine) -> None:
        with pytest.raises(InvalidRequest) as caught:
            if way is complete:
                await engine.complete(call)
            else:
                async for _ in engine.stream(call):
                    pytest.fail("an event came before the refusal")
        assert caught.value.status == 400
        assert caught.value.param == param
        assert not isinstance(caught.value, ContextLengthExceeded)
        assert engine.load().unfinished == 0

    lab.run(main)
    assert (call.meter.prompt, call.meter.completion) == (0, 0)


@both
@ways
@pytest.mark.parametrize("words", [300, 800, 20_000])
def test_a_prompt_that_is_too_long_is_told_apart_and_the_next_request_is_served(
    lab: Lab, way: Any, words: int
) -> None:
    long = chat("river " * (words if words > 300 else WINDOW), max_tokens=4)

    async def main(engine: Engine) -> Answer:
        with pytest.raises(ContextLengthExceeded) as caught:
            await way(engine, long)
        assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
        assert caught.value.window == WINDOW
        with pytest.raises(ContextLengthExceeded):
            await engine.count_tokens(long)
        return await complete(engine, chat())

    assert lab.run(main).meter.completion == 12


@both
def test_counting_agrees_with_what_is_served(lab: Lab) -> None:
    body = chat("river " * 60)

    async def main(engine: Engine) -> tuple[int, Answer]:
        return await engine.count_tokens(body), await complete(engine, body)

    tokens, answer = lab.run(main)
    assert tokens == answer.meter.prompt > 60


@both
def test_a_second_use_of_a_prompt_counts_its_cached_tokens(lab: Lab) -> None:
    async def main(engine: Engine) -> tuple[Answer, Answer]:
        body = chat("A prompt of its own. " + "river stone " * 60)
        return await complete(engine, body), await stream(
            engine, {**body, "stream_options": {"include_usage": True}}
        )

    first, second = lab.run(main)
    assert first.meter.cached < second.meter.cached < second.meter.prompt
    check_meter(first)
    check_meter(second)


@both
def test_a_cancelled_completion_frees_the_engine_at_once_and_is_counted(lab: Lab) -> None:
    call = new_call(chat(max_tokens=400))

    async def main(engine: Engine) -> Answer:
        task = asyncio.create_task(engine.complete(call))
        await until(lambda: call.meter.completion >= 4)
        task.cancel()
        began = asyncio.get_running_loop().time()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.load().unfinished == 0
        assert asyncio.get_running_loop().time() - began < FREE_S
        return await complete(engine, chat())

    after = lab.run(main)
    assert 4 <= call.meter.completion < 400 and call.meter.prompt > 0
    assert after.meter.completion == 12


@both
def test_a_completion_cancelled_while_it_waits_for_its_first_token(lab: Lab) -> None:
    if isinstance(lab.engine, FakeEngine):
        lab.engine.script.first_gate = asyncio.Event()
    call = new_call(chat("river " * 200, max_tokens=100))

    async def main(engine: Engine) -> None:
        task = asyncio.create_task(engine.complete(call))
        await until(lambda: engine.load().unfinished == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.load().unfinished == 0

    lab.run(main)


@both
def test_a_closed_stream_frees_the_engine_at_once_and_is_counted(lab: Lab) -> None:
    call = new_call(chat(max_tokens=400))

    async def main(engine: Engine) -> None:
        events = engine.stream(call)
        seen = 0
        async for _ in events:
            seen += 1
            if seen == 6:
                break
        assert engine.load().unfinished == 1
        began = asyncio.get_running_loop().time()
        await events.aclose()  # type: ignore[attr-defined]
        assert engine.load().unfinished == 0
        assert asyncio.get_running_loop().time() - began < FREE_S

    lab.run(main)
    assert 4 <= call.meter.completion < 400


@both
def test_a_cancelled_reader_of_a_stream_frees_the_engine(lab: Lab) -> None:
    call = new_call(chat(max_tokens=400))

    async def main(engine: Engine) -> None:
        async def read() -> None:
            async for event in engine.stream(call):
                parse_all(event)

        task = asyncio.create_task(read())
        await until(lambda: call.meter.completion >= 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.load().unfinished == 0

    lab.run(main)
    assert 3 <= call.meter.completion < 400


@both
@ways
def test_an_aborted_call_never_looks_finished(lab: Lab, way: Any) -> None:
    call = new_call(chat(max_tokens=400))
    seen: list[dict[str, Any]] = []

    async def main(engine: Engine) -> None:
        async def read() -> None:
            if way is complete:
                await engine.complete(call)
            async for event in engine.stream(call):
                seen.extend(parse_all(event))

        task = asyncio.create_task(read())
        await until(lambda: call.meter.completion >= 3)
        await engine.abort("somebody-else")
        await engine.abort(call.request_id)
        with pytest.raises(EngineUnavailable):
            await task
        assert engine.load().unfinished == 0
        assert engine.alive

    lab.run(main)
    assert all(choice["finish_reason"] is None for document in seen for choice in document["choices"])
    assert 3 <= call.meter.completion < 400


@both
def test_calls_side_by_side_keep_their_own_counts(lab: Lab) -> None:
    async def main(engine: Engine) -> list[Answer]:
        usage = {"stream_options": {"include_usage": True}}
        return await asyncio.gather(
            *(
                (complete if n % 2 else stream)(engine, chat(f"Number {n}", max_tokens=5 + n, **usage))
                for n in range(8)
            )
        )

    for n, answer in enumerate(lab.run(main)):
        assert answer.meter.completion == 5 + n
        check_meter(answer)


@both
def test_an_idle_engine_is_alive_answers_the_probe_and_has_no_load(lab: Lab) -> None:
    async def main(engine: Engine) -> None:
        assert await engine.probe(10.0)
        assert engine.alive
        assert (engine.load().unfinished, engine.load().queued_tokens) == (0, 0)
        assert engine.max_model_len == WINDOW

    lab.run(main)


# -- what only vLLM can show


@vllm_only
def test_a_json_schema_binds_the_answer(lab: Lab) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "big": {"type": "boolean"}},
        "required": ["city", "big"],
        "additionalProperties": False,
    }
    body = chat(
        "Name a city.",
        max_tokens=60,
        ignore_eos=False,
        response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": schema}},
    )
    answer = json.loads(lab.run(lambda engine: complete(engine, body)).text())
    assert set(answer) == {"city", "big"} and isinstance(answer["big"], bool)


@vllm_only
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_tool_arguments_fit_the_tools_schema_though_the_caller_did_not_say_strict(
    lab: Lab, choice: Any
) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    body = chat("Weather in Paris?", max_tokens=80, ignore_eos=False, tools=[tool], tool_choice=choice)
    (document,) = lab.run(lambda engine: complete(engine, body)).documents
    (tool_call,) = document["choices"][0]["message"]["tool_calls"][:1]
    assert tool_call["function"]["name"] == "weather"
    assert isinstance(json.loads(tool_call["function"]["arguments"])["city"], str)


@vllm_only
def test_korean_text_comes_through_whole(lab: Lab) -> None:
    body = chat(
        "Repeat.", max_tokens=40, ignore_eos=False, structured_outputs={"choice": ["안녕하세요, 가람입니다"]}
    )

    async def main(engine: Engine) -> tuple[Answer, Answer]:
        return await complete(engine, body), await stream(engine, body)

    for answer in lab.run(main):
        assert answer.text() == "안녕하세요, 가람입니다"


@vllm_only
def test_logprobs_come_with_every_token(lab: Lab) -> None:
    body = chat(logprobs=True, top_logprobs=2, max_tokens=20)

    async def main(engine: Engine) -> tuple[Answer, Answer]:
        return await complete(engine, body), await stream(engine, body)

    whole, pieces = lab.run(main)
    content = whole.documents[0]["choices"][0]["logprobs"]["content"]
    assert len(content) == 20 and all(len(token["top_logprobs"]) == 2 for token in content)
    streamed = [
        token["token"]
        for document in pieces.documents
        for choice in document["choices"]
        for token in (choice.get("logprobs") or {}).get("content") or ()
    ]
    assert streamed == [token["token"] for token in content]


@both
@pytest.mark.parametrize("asked", [False, True], ids=["unasked", "asked"])
def test_how_sure_the_model_is_changes_nothing_that_the_caller_sees(lab: Lab, asked: bool) -> None:
    body = chat(logprobs=True) if asked else chat()

    async def main(engine: Engine) -> list[tuple[Answer, Answer]]:
        pairs = []
        for streamed in (False, True):
            plain, weighed = new_call(body), dataclasses.replace(new_call(body), confidence=Confidence())
            if streamed:
                pairs.append((await play(engine, plain), await play(engine, weighed)))
            else:
                first, second = await engine.complete(plain), await engine.complete(weighed)
                pairs.append((Answer(plain, [json.loads(first)]), Answer(weighed, [json.loads(second)])))
        return pairs

    def shown(answer: Answer) -> list[float]:
        choices = [choice for document in answer.documents for choice in document["choices"]]
        contents = [(choice.get("logprobs") or {}).get("content") or [] for choice in choices]
        return [token["logprob"] for content in contents for token in content]

    for plain, weighed in lab.run(main):
        sure = weighed.call.confidence
        assert sure is not None and sure.tokens == weighed.meter.completion == 12
        assert sure.mean is not None and -20 < sure.mean < 0
        assert weighed.text() == plain.text() and weighed.reasons() == plain.reasons()
        assert len(shown(plain)) == len(shown(weighed)) == (12 if asked else 0)
        if asked:
            assert sum(shown(weighed)) == pytest.approx(sure.total, rel=1e-3)
        keys = [set(choice) for document in plain.documents for choice in document["choices"]]
        assert keys == [set(choice) for document in weighed.documents for choice in document["choices"]]


@vllm_only
def test_what_a_slow_reader_never_took_is_counted_too(lab: Lab) -> None:
    call = new_call(chat(max_tokens=60))

    async def main(engine: Engine) -> int:
        events = engine.stream(call)
        await anext(aiter(events))
        taken = call.meter.completion
        await until(lambda: engine.load().unfinished == 0)
        await events.aclose()  # type: ignore[attr-defined]
        return taken

    taken = lab.run(main)
    assert taken < 10
    assert call.meter.completion == 60


@vllm_only
@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": "SECRET-temperature"},
        {"tool_choice": "SECRET-choice", "tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tools": [{"type": "SECRET-type"}]},
        {"response_format": {"type": "SECRET-format"}},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "SECRET-schema"}}}},
        {"structured_outputs": {"regex": "SECRET-(regex"}},
        {"logit_bias": {"SECRET-key": 1}},
        {"stop": [""], "user": "SECRET"},
        {"bad_words": ["", "SECRET-word"]},
        {"messages": [{"role": "SECRET-role"}]},
        {"messages": [{"content": "SECRET-content"}]},
        {"messages": [{"role": "user", "content": {"SECRET-key": "SECRET-value"}}]},
        {"messages": [{"role": "user", "content": [{"type": "SECRET-part"}]}]},
        {"stream_options": "SECRET-options"},
        {"top_logprobs": "SECRET-top", "logprobs": True},
        {"priority": "SECRET-priority"},
        {"documents": ["SECRET-document"]},
        {"vllm_xargs": {"SECRET-xarg": {"SECRET": 1}}},
        {"cache_salt": {"SECRET-salt": 1}},
    ],
)  # fmt: skip
@ways
def test_no_error_and_no_log_line_quotes_the_request(
    lab: Lab,
    way: Any,
    fields: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.INFO)
    body = chat("SECRET-prompt", **fields)

    async def main(engine: Engine) -> ApiError | None:
        try:
            await way(engine, body)
        except ApiError as exc:
            return exc
        return None

    error = lab.run(main)
    if error is not None:
        assert isinstance(error, InvalidRequest), repr(error)
        for text in (str(error), repr(error), error.message, str(error.param), repr(error.__cause__)):
            assert "SECRET" not in text
    printed = capfd.readouterr()
    assert "SECRET" not in caplog.text + printed.out + printed.err


@vllm_only
def test_the_engines_own_second_wall_is_an_overload(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = lab.engine
    monkeypatch.setattr(engine._loaded.engine.scheduler_config, "max_num_queued_reqs", 0)

    async def main(engine: Engine) -> None:
        for way in (complete, stream):
            with pytest.raises(EngineOverloaded):
                await way(engine, chat())

    lab.run(main)


@vllm_only
def test_the_engines_gauges_are_fed_where_somebody_has_them(lab: Lab, gauges: SimpleNamespace) -> None:
    lab.run(lambda engine: stream(engine, chat()))
    assert max(gauges.engine_running.values) >= 1
    assert 0 < max(gauges.engine_kv_cache_usage_ratio.values) < 1
    assert gauges.engine_waiting.values
    assert sum(gauges.engine_preemptions_total.values) == 0
    assert sum(gauges.engine_prompt_tokens_total.values) > 0
    assert sum(gauges.engine_generation_tokens_total.values) > 0
    assert sum(gauges.engine_prefix_cache_queries_total.values) > 0
    assert min(gauges.engine_time_to_first_token_seconds.values) > 0
    assert min(gauges.engine_time_per_output_token_seconds.values) > 0


@vllm_only
def test_vllm_puts_no_metrics_of_its_own_into_the_process(lab: Lab) -> None:
    from prometheus_client import REGISTRY

    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("vllm")]


# -- the end; must stay last, it closes the engine


@both
def test_closing_ends_calls_in_flight_and_every_process(lab: Lab) -> None:
    processes = getattr(lab.engine, "processes", ())
    if not isinstance(lab.engine, FakeEngine):
        assert len(processes) >= 2 and all(alive(process) for process in processes)

    async def main(engine: Engine) -> list[Any]:
        calls = [new_call(chat(max_tokens=400)) for _ in range(4)]

        async def read(call: Any) -> None:
            async for _ in engine.stream(call):
                pass

        tasks = [asyncio.create_task(read(call)) for call in calls[:2]]
        tasks += [asyncio.create_task(engine.complete(call)) for call in calls[2:]]  # type: ignore[arg-type]
        await until(lambda: all(call.meter.completion for call in calls))
        await asyncio.gather(engine.close(5.0), engine.close(5.0))
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert not engine.alive and not await engine.probe(0.1)
        for way in (complete, stream):
            with pytest.raises(EngineUnavailable):
                await way(engine, chat())
        with pytest.raises(EngineUnavailable):
            await engine.count_tokens(chat())
        await engine.close(5.0)
        return outcomes

    outcomes = lab.run(main)
    assert [type(outcome) for outcome in outcomes] == [EngineUnavailable] * 4
    assert not [process for process in processes if alive(process)]
