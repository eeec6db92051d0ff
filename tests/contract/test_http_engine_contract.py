"""`HttpEngine` against real HTTP servers: what every engine must do.

The servers are a whole gateway with fake engines, and one like `vllm serve`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.contract import test_engine_contract as shared
from tests.support.engine_lab import Answer, Lab, chat, complete, new_call, parse_all, stream, until
from tests.support.fake_engine import FakeEngine, Script
from tests.support.http_pair import FREE_S, WINDOW, pair, ways
from tests.support.running import running_gateway
from weighbridge.config.clock import SystemClock
from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.config.settings import TierSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.pool.engine import (
    Engine,
    EngineOverloaded,
    EngineUnavailable,
)
from weighbridge.pool.http_engine import HttpEngine
from weighbridge.pool.local_engines import make_engine


@pytest.fixture(scope="module")
def gateway_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, FakeEngine]]:
    there = FakeEngine("local-8b", max_model_len=WINDOW, script=Script(token_s=0.002))
    folder = tmp_path_factory.mktemp("gateway")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        running = runner.run(stack.enter_async_context(running_gateway(folder, engines={"local-8b": there})))
        engine = HttpEngine(
            TierSettings(max_model_len=WINDOW, endpoint_model="local-8b"),
            "local-8b",
            f"{running.url}/v1",
            SystemClock(),
        )
        lab = Lab(engine, runner, "local-8b")
        lab.run(lambda engine: engine.start())
        try:
            yield lab, there
        finally:
            lab.run(lambda engine: engine.close(1.0))
            runner.run(stack.aclose())


@pytest.fixture(params=["vllm serve", "gateway"])
def remote(request: pytest.FixtureRequest) -> Iterator[tuple[Lab, FakeEngine]]:
    """An engine and the fake engine that works for it on the other side."""
    if request.param == "gateway":
        yield request.getfixturevalue("gateway_lab")
        return
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        both = runner.run(stack.enter_async_context(pair(script=Script(token_s=0.002))))
        yield Lab(both.engine, runner, "local-8b"), both.there
        runner.run(stack.aclose())


@pytest.fixture
def lab(remote: tuple[Lab, FakeEngine]) -> Iterator[Lab]:
    lab, there = remote
    yield lab

    async def idle(_: object) -> None:
        async with asyncio.timeout(FREE_S):
            while there.load().unfinished:
                await asyncio.sleep(0.002)

    # Whatever a test did, the other side is free soon after.
    lab.run(idle)


@pytest.mark.parametrize(
    "check",
    [
        shared.test_complete_is_one_chat_completion_under_our_names,
        shared.test_a_stream_is_the_same_answer_in_events_without_done,
        shared.test_usage_is_streamed_only_when_asked_for_and_metered_all_the_same,
        shared.test_a_second_use_of_a_prompt_counts_its_cached_tokens,
        shared.test_a_cancelled_reader_of_a_stream_frees_the_engine,
        shared.test_calls_side_by_side_keep_their_own_counts,
        shared.test_an_idle_engine_is_alive_answers_the_probe_and_has_no_load,
    ],
    ids=lambda check: check.__name__,
)
def test_the_contract(lab: Lab, check: Callable[[Lab], None]) -> None:
    check(lab)


@pytest.mark.parametrize(
    "check",
    [
        shared.test_all_choices_are_counted,
        shared.test_a_stop_text_ends_the_answer_and_is_not_part_of_it,
        shared.test_the_callers_body_is_not_changed_and_unknown_fields_are_welcome,
    ],
    ids=lambda check: check.__name__,
)
@ways
def test_the_contract_both_ways(lab: Lab, check: Callable[[Lab, Any], None], way: Any) -> None:
    check(lab, way)


@pytest.mark.parametrize("asked", [False, True], ids=["unasked", "asked"])
def test_how_sure_the_model_is_changes_nothing_that_the_caller_sees(lab: Lab, asked: bool) -> None:
    shared.test_how_sure_the_model_is_changes_nothing_that_the_caller_sees(lab, asked)


@ways
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2, "temperature": 0}, "n"),
        ({"temperature": 3.5}, "temperature"),
        ({"n": 4000}, "n"),
        ({"max_tokens": 99_999}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [shared.PICTURE]}]}, "messages"),
    ],
)
def test_a_wrong_request_is_refused(lab: Lab, way: Any, fields: dict[str, Any], param: str) -> None:
    shared.test_a_wrong_request_is_refused_before_the_first_event(lab, way, fields, param)


@ways
def test_a_prompt_far_too_long_is_told_apart_without_being_counted(lab: Lab, way: Any) -> None:
    shared.test_a_prompt_that_is_too_long_is_told_apart_and_the_next_request_is_served(lab, way, 20_000)


@pytest.mark.parametrize("remote", ["vllm serve"], indirect=True)
@ways
@pytest.mark.parametrize("words", [300, 800])
def test_a_prompt_that_is_too_long_is_told_apart(lab: Lab, way: Any, words: int) -> None:
    shared.test_a_prompt_that_is_too_long_is_told_apart_and_the_next_request_is_served(lab, way, words)


@pytest.mark.parametrize("remote", ["vllm serve"], indirect=True)
def test_a_server_that_counts_is_believed(lab: Lab) -> None:
    shared.test_counting_agrees_with_what_is_served(lab)


@pytest.mark.parametrize("remote", ["vllm serve"], indirect=True)
def test_a_closed_stream_frees_the_engine_and_is_counted(lab: Lab) -> None:
    shared.test_a_closed_stream_frees_the_engine_at_once_and_is_counted(lab)


def test_a_closed_stream_frees_both_machines_and_is_counted_at_least(
    remote: tuple[Lab, FakeEngine],
) -> None:
    lab, there = remote
    call = new_call(chat(max_tokens=400))

    async def main(engine: Any) -> int:
        events = engine.stream(call)
        text = 0
        async for event in events:
            text += sum(bool(one["choices"][0]["delta"].get("content")) for one in parse_all(event))
            if text >= 4:
                break
        assert engine.load().unfinished == 1
        await events.aclose()
        assert engine.load().unfinished == 0
        await until(lambda: there.load().unfinished == 0, FREE_S)
        return there.calls[-1].meter.completion

    made = lab.run(main)
    assert 4 <= call.meter.completion <= made < 400 and not call.meter.exact


def test_an_aborted_stream_never_looks_finished(lab: Lab) -> None:
    shared.test_an_aborted_call_never_looks_finished(lab, stream)


@ways
@pytest.mark.parametrize("end", ["cancel", "abort"])
def test_giving_a_call_up_before_its_first_token_frees_the_other_machine(
    remote: tuple[Lab, FakeEngine], way: Any, end: str
) -> None:
    lab, there = remote
    call = new_call(chat("river " * 50, max_tokens=100))

    async def read(engine: Any) -> None:
        if way is complete:
            await engine.complete(call)
        else:
            async for _ in engine.stream(call):
                pytest.fail("an event came before the gate was opened")

    async def main(engine: Any) -> None:
        there.script.first_gate = asyncio.Event()
        try:
            task = asyncio.create_task(read(engine))
            await until(lambda: there.load().unfinished == 1)
            assert engine.load().unfinished == 1
            if end == "cancel":
                task.cancel()
            else:
                await engine.abort("somebody-else")
                await engine.abort(call.request_id)
            with pytest.raises(asyncio.CancelledError if end == "cancel" else EngineUnavailable):
                await task
            assert engine.load().unfinished == 0 and engine.alive
            await until(lambda: there.load().unfinished == 0, FREE_S)
        finally:
            there.script.first_gate = None

    lab.run(main)
    assert (call.meter.prompt, call.meter.completion, call.meter.exact) == (0, 0, False)


def test_a_whole_answer_given_up_midway_frees_the_other_machine(remote: tuple[Lab, FakeEngine]) -> None:
    lab, there = remote
    call = new_call(chat(max_tokens=400))

    async def main(engine: Any) -> None:
        task = asyncio.create_task(engine.complete(call))
        calls = len(there.calls)
        await until(lambda: len(there.calls) > calls and there.calls[-1].meter.completion >= 4)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: there.load().unfinished == 0, FREE_S)

    lab.run(main)
    assert there.calls[-1].meter.completion < 400
    assert not call.meter.exact


@ways
def test_a_full_engine_there_is_an_overload_here(remote: tuple[Lab, FakeEngine], way: Any) -> None:
    lab, there = remote
    there.script.overloaded = True

    async def main(engine: Any) -> None:
        with pytest.raises(EngineOverloaded):
            await way(engine, chat())

    try:
        lab.run(main)
    finally:
        there.script.overloaded = False


def test_two_gateways_in_a_row(gateway_lab: tuple[Lab, FakeEngine], tmp_path: Path) -> None:
    """What comes in at the first is made behind the second, and a caller who leaves the first stops it there."""
    lab, there = gateway_lab
    body = chat("Over two machines.", model="local-8b", max_tokens=9)

    async def main(engine: Any) -> None:
        tier = {"endpoints": [engine._url], "endpoint_model": "local-8b", "max_model_len": WINDOW}

        def factory(road: Any, settings: TierSettings, worker: str) -> Engine:
            return make_engine(road, settings, worker, SystemClock(), Metrics())

        async with running_gateway(tmp_path, tiers={"local-8b": tier}, factory=factory) as running:
            whole = (await running.chat(**body)).json()
            assert whole["model"] == "local-8b" and whole["usage"]["completion_tokens"] == 9
            lines = (await running.chat(**body, stream=True)).text.split("\n\n")
            assert lines[-2] == "data: [DONE]"
            events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
            text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events)
            assert text == whole["choices"][0]["message"]["content"]
            too_long = await running.chat(**chat("river " * 400, model="local-8b"))
            assert (too_long.status_code, too_long.json()["error"]["code"]) == (
                400,
                "context_length_exceeded",
            )
            rows = running.rows()
            assert [row["completion_tokens"] for row in rows[:2]] == [9, 9]
            path = "/v1/chat/completions"
            async with running.client.stream(
                "POST", path, json={**body, "max_tokens": 400, "stream": True}
            ) as left:
                async for _ in left.aiter_lines():
                    break
                assert there.load().unfinished == 1
            await until(lambda: there.load().unfinished == 0, FREE_S)

    lab.run(main)


def test_the_servers_errors_quote_and_ours_are_seen_not_to(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="weighbridge.pool")
    body = chat("SECRET-prompt", temperature=9)

    async def main(engine: Any) -> Answer | ApiError:
        with pytest.raises(InvalidRequest) as caught:
            await complete(engine, body)
        return caught.value

    error = lab.run(main)
    assert "SECRET" not in repr(error) + str(error) + json.dumps(caplog.messages)
