"""`HttpEngine` from its start to its end: servers that boot, die, hang or are closed upon."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.support.engine_lab import chat, complete, new_call, stream, until
from tests.support.fake_engine import Script
from tests.support.http_pair import FREE_S, engine_at, pair, ways
from tests.support.model_server import MODEL, model_server
from weighbridge.pool.engine import (
    EngineCall,
    EngineStartFailed,
    EngineUnavailable,
)
from weighbridge.pool.http_questions import Questions

# -- a server that is gone


@ways
async def test_nobody_listening_is_the_end_of_the_engine(way: Any) -> None:
    async with pair() as both:
        dead = asyncio.create_task(both.engine.died())
        await complete(both.engine, chat())
        assert not dead.done()
        await both.server.stop()
        with pytest.raises(EngineUnavailable):
            await way(both.engine, chat())
        await asyncio.wait_for(dead, 1.0)
        assert not both.engine.alive and not await both.engine.probe(1.0)
        # It stays dead: whoever builds another one waits for the server.
        await both.server.start()
        call = new_call(chat())
        with pytest.raises(EngineUnavailable):
            await both.engine.complete(call)
        assert call.meter.exact


async def test_a_server_that_stops_in_good_order_may_finish_its_streams() -> None:
    async with pair(script=Script(token_s=0.01)) as both:
        dead = asyncio.create_task(both.engine.died())
        events = both.engine.stream(new_call(chat(max_tokens=40)))
        seen = [await anext(events)]
        both.server.stop_listening()
        assert not await both.engine.probe(1.0)
        with pytest.raises(EngineUnavailable):
            await complete(both.engine, chat())
        assert both.engine.alive and not dead.done()
        seen += [event async for event in events]
        assert sum(piece.count(b"data: ") for piece in seen) > 40, "the stream was cut"
        await asyncio.wait_for(dead, 1.0)
        assert not both.engine.alive


async def test_a_meter_of_a_call_that_never_left_is_exact() -> None:
    async with pair() as both:
        await both.server.stop()
        call = new_call(chat())
        with pytest.raises(EngineUnavailable):
            await both.engine.complete(call)
        assert (call.meter.prompt, call.meter.completion, call.meter.exact) == (0, 0, True)


async def test_closing_is_no_death() -> None:
    async with pair() as both:
        dead = asyncio.create_task(both.engine.died())
        await both.engine.close(0.0)
        await asyncio.sleep(0)
        assert not dead.done() and not both.engine.alive
        dead.cancel()


@pytest.mark.parametrize("health", [200, 503, 404])
async def test_the_probe_asks_the_servers_health(health: int) -> None:
    async with pair() as both:
        both.server.health = health
        # Where there is no such address, the models will do.
        assert await both.engine.probe(5.0) is (health != 503)
        assert len(both.server.asked("/health")) == 1


async def test_a_probe_gives_up_in_time_and_finds_a_dead_server() -> None:
    async with pair() as both:
        silent = asyncio.Event()

        async def hang(*_: object) -> Any:
            await silent.wait()

        both.server._health = hang  # type: ignore[method-assign]
        await both.server.stop()
        await both.server.start()
        assert not await both.engine.probe(0.1)
        assert both.engine.alive
        await both.server.stop()
        assert not await both.engine.probe(1.0)
        assert not both.engine.alive


# -- starting


async def test_it_waits_for_a_server_that_is_booting_and_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    looks = 0
    look = Questions.why_not_ready

    async def counted(self: Questions) -> str | None:
        nonlocal looks
        looks += 1
        return await look(self)

    monkeypatch.setattr(Questions, "why_not_ready", counted)
    async with model_server() as server:
        await server.stop()
        engine = engine_at(server.url)
        starting = asyncio.create_task(engine.start())
        await until(lambda: looks == 3)
        with pytest.raises(EngineUnavailable):
            await engine.complete(new_call(chat()))
        server.models = [{"id": MODEL, "weighbridge": {"ready": False}}]
        await server.start()
        await until(lambda: "is not ready yet" in caplog.text)
        server.models = [{"id": "other"}, {"id": MODEL, "max_model_len": 100}]
        await asyncio.wait_for(starting, 10.0)
        assert engine.alive and await engine.probe(1.0)
        assert len([line for line in caplog.messages if "waiting for" in line]) == 2
        assert "fewer than tiers.local-8b.max_model_len" in caplog.text
        await engine.warm()
        assert server.asked("/v1/chat/completions") == []
        await engine.close(0.0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"models": [{"id": "other"}]}, "endpoint_model"),
        ({"key": "right"}, "endpoint_api_key_file"),
    ],
)
async def test_what_waiting_will_not_mend_ends_the_start_at_once(fields: dict[str, Any], words: str) -> None:
    async with model_server(**fields) as server:
        engine = engine_at(server.url)
        with pytest.raises(EngineStartFailed, match=f"tiers.local-8b.{words}") as caught:
            await asyncio.wait_for(engine.start(), 5.0)
        assert "\n" not in str(caught.value)
        assert not engine.alive
        with pytest.raises(EngineStartFailed):
            await engine.start()


async def test_a_server_that_lists_no_names_is_believed() -> None:
    async with model_server(models=[]) as server:
        engine = engine_at(server.url)
        await engine.start()
        await engine.close(0.0)


@pytest.mark.parametrize("end", ["cancel", "close"])
async def test_a_start_that_is_given_up_ends_and_leaves_nothing(end: str) -> None:
    async with model_server() as server:
        await server.stop()
        engine = engine_at(server.url)
        starting = asyncio.create_task(engine.start())
        await asyncio.sleep(0.05)
        if end == "cancel":
            starting.cancel()
        else:
            await engine.close(1.0)
        with pytest.raises(asyncio.CancelledError if end == "cancel" else EngineStartFailed):
            await asyncio.wait_for(starting, 1.0)
        assert not engine.alive and engine._session is None


# -- counting


async def test_counting_asks_for_the_prompt_alone_and_stops_where_nobody_counts() -> None:
    async with pair() as both:
        body = chat("river " * 40, tools=[], chat_template_kwargs={"enable_thinking": False})
        assert await both.engine.count_tokens(body) > 60
        (asked,) = both.server.asked("/tokenize")
        assert set(asked.body) == {"model", "messages", "tools", "chat_template_kwargs"}
        both.server.tokenizes = False
        for _ in range(3):
            assert await both.engine.count_tokens(body) < 60
        assert len(both.server.asked("/tokenize")) == 2
        # The server may count again after a restart, which makes a new engine.
        assert await both.engine.count_tokens(chat(truncate_prompt_tokens=8, messages=body["messages"])) == 1


# -- the end


async def test_closing_ends_calls_in_flight_read_or_not() -> None:
    async with pair() as both:
        calls = [new_call(chat(max_tokens=400)) for _ in range(5)]

        async def read(call: EngineCall) -> None:
            async for _ in both.engine.stream(call):
                pass

        tasks = [asyncio.create_task(read(call)) for call in calls[:2]]
        tasks += [asyncio.create_task(both.engine.complete(call)) for call in calls[2:4]]  # type: ignore[arg-type]
        unread = both.engine.stream(calls[4])
        await anext(unread)
        await until(lambda: both.there.load().unfinished == 5 and all(c.meter.completion for c in calls[:2]))
        await asyncio.gather(both.engine.close(5.0), both.engine.close(5.0))
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [EngineUnavailable] * 4
        with pytest.raises(EngineUnavailable):
            async for _ in unread:
                pass
        assert not both.engine.alive and not await both.engine.probe(0.1)
        for way in (complete, stream):
            with pytest.raises(EngineUnavailable):
                await way(both.engine, chat())
        with pytest.raises(EngineUnavailable):
            await both.engine.count_tokens(chat())
        await both.until_free()


async def test_aborting_a_stream_that_nobody_reads_at_the_moment_frees_the_other_machine() -> None:
    async with pair() as both:
        call = new_call(chat(max_tokens=400))
        events = both.engine.stream(call)
        await anext(events)
        await both.engine.abort(call.request_id)
        await until(lambda: both.there.load().unfinished == 0, FREE_S)
        with pytest.raises(EngineUnavailable):
            async for _ in events:
                pass


async def test_aborting_twice_and_closing_at_the_same_moment_is_no_fault() -> None:
    async with pair(script=Script(first_gate=asyncio.Event())) as both:
        call = new_call(chat())
        task = asyncio.create_task(both.engine.complete(call))
        await until(lambda: both.there.load().unfinished == 1)
        await both.engine.abort(call.request_id)
        await asyncio.sleep(0)
        await both.engine.abort(call.request_id)
        await both.engine.close(0.0)
        with pytest.raises(EngineUnavailable):
            await task


async def test_a_request_that_is_running_is_not_taken_twice() -> None:
    async with pair() as both:
        call = new_call(chat(max_tokens=400))
        events = both.engine.stream(call)
        await anext(events)
        with pytest.raises(RuntimeError):
            await both.engine.complete(call)
        assert both.engine.load().unfinished == 1
        await events.aclose()
