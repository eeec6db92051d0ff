"""A stream outlives its worker: killed engines under it, and one whole answer all the same."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from tests.support.waiting import comments, content, events, until
from weighbridge.pool.engine import EngineUnavailable

TOKENS = 24
FAST = {"pool": {"restart_backoff_s": 0.05, "probe_interval_s": 0.05}}


def gated() -> Script:
    return Script(token_gate=asyncio.Semaphore(0))


def let(engine: FakeEngine, tokens: int) -> None:
    gate = engine.script.token_gate
    assert gate is not None
    for _ in range(tokens):
        gate.release()


async def undisturbed(folder: Path, **body: Any) -> str:
    async with running_gateway(folder, engines={"local-8b": FakeEngine()}) as gateway:
        answer = await gateway.chat(model="local-8b", stream=True, max_tokens=TOKENS, **body)
        return content(answer.text)


def busy(gateway: Running) -> FakeEngine:
    """The engine that is at work."""
    (engine,) = [
        engine for engine in gateway.fleet.made["local-8b"] if engine.alive and engine.load().unfinished
    ]
    return engine


def attempts(gateway: Running, request_id: str) -> list[tuple[str, str]]:
    return [(row["road"], row["outcome"]) for row in gateway.attempts(request_id)]


@pytest.mark.parametrize("cuts", [[1], [9], [5, 6]], ids=str)
async def test_another_worker_goes_on_where_the_first_one_died(tmp_path: Path, cuts: list[int]) -> None:
    expected = await undisturbed(tmp_path / "alone", stream_options={"include_usage": True})
    engines = [FakeEngine(script=gated()) for _ in range(3)]
    async with running_gateway(
        tmp_path / "killed",
        engines={"local-8b": engines},
        tiers={"local-8b": {"replicas": 3}},
        pool={"restart_backoff_s": 60},
    ) as gateway:
        asking = asyncio.create_task(
            gateway.chat(
                model="local-8b", stream=True, max_tokens=TOKENS, stream_options={"include_usage": True}
            )
        )
        for cut in cuts:
            await until(lambda: any(e.alive and e.load().unfinished for e in engines))
            engine = busy(gateway)
            call = engine.calls[-1]
            let(engine, cut)
            await until(lambda call=call, cut=cut: call.meter.completion == cut + 1)  # type: ignore[misc]
            engine.kill()
        await until(lambda: any(e.alive and e.load().unfinished for e in engines))
        let(busy(gateway), TOKENS)
        answer = await asking
        told = events(answer.text)
        assert answer.status_code == 200 and told[-1] == "[DONE]"
        assert content(answer.text) == expected
        assert len({(event["id"], event["created"], event["model"]) for event in told[:-1]}) == 1
        roles = [e for e in told[:-1] if e["choices"] and e["choices"][0]["delta"].get("role")]
        assert len(roles) == 1, "the answer began twice"
        usage = told[-2]["usage"]
        assert usage["completion_tokens"] == TOKENS
        assert gateway.slots_in_use() == 0
        request_id = answer.headers["x-weighbridge-request-id"]
        (row,) = gateway.rows()
        assert (row["outcome"], row["completion_tokens"]) == ("ok", TOKENS)
        assert row["prompt_tokens"] == usage["prompt_tokens"]
        assert attempts(gateway, request_id) == [
            *[("local-8b", "engine_unavailable")] * len(cuts),
            ("local-8b", "ok"),
        ]
        ok = gateway.parts.metrics.continuations_total.labels("local-8b", "ok")
        assert ok.value == 1


async def test_the_only_worker_is_built_anew_and_goes_on(tmp_path: Path) -> None:
    expected = await undisturbed(tmp_path / "alone")
    engine = FakeEngine(script=gated())
    async with running_gateway(tmp_path / "killed", engines={"local-8b": engine}, **FAST) as gateway:
        gateway.fleet.script_for = lambda road, n: Script(start_s=0.3)
        asking = asyncio.create_task(gateway.chat(model="local-8b", stream=True, max_tokens=TOKENS))
        await until(lambda: bool(engine.calls))
        let(engine, 7)
        await until(lambda: engine.calls[0].meter.completion == 8)
        engine.kill()
        await until(lambda: gateway.parts.pool.status()[0]["waiting"] == 1)
        # Nobody else waits for a tier that is down.
        late = await gateway.chat(model="local-8b")
        assert (late.status_code, late.json()["error"]["code"]) == (503, "no_capacity")
        answer = await asking
        assert content(answer.text) == expected and answer.text.endswith("data: [DONE]\n\n")
        assert gateway.parts.pool.status()[0]["workers"][0]["restarts"] == 1


async def test_no_worker_in_time_is_an_error_event_and_no_done(tmp_path: Path) -> None:
    engine = FakeEngine(script=gated())
    settings = {"pool": {"restart_backoff_s": 30, "continue_wait_s": 0.3}}
    async with running_gateway(tmp_path, engines={"local-8b": engine}, **settings) as gateway:
        asking = asyncio.create_task(gateway.chat(model="local-8b", stream=True, max_tokens=TOKENS))
        await until(lambda: bool(engine.calls))
        let(engine, 3)
        await until(lambda: engine.calls[0].meter.completion == 4)
        engine.kill()
        answer = await asking
        told = events(answer.text)
        assert "[DONE]" not in told and told[-1]["error"]["code"] == "worker_lost"
        assert not any(e["choices"][0]["finish_reason"] for e in told[:-1])
        (row,) = gateway.rows()
        assert (row["outcome"], row["error_code"], row["completion_tokens"]) == (
            "truncated",
            "worker_lost",
            4,
        )
        assert gateway.parts.metrics.continuations_total.labels("local-8b", "no_worker").value == 1


async def test_a_tier_that_is_given_up_under_a_stream_counts_its_tokens_once(tmp_path: Path) -> None:
    engine = FakeEngine(script=gated())
    async with running_gateway(tmp_path, engines={"local-8b": engine}, pool={"max_restarts": 0}) as gateway:
        asking = asyncio.create_task(gateway.chat(model="local-8b", stream=True, max_tokens=TOKENS))
        await until(lambda: bool(engine.calls))
        let(engine, 3)
        await until(lambda: engine.calls[0].meter.completion == 4)
        engine.kill()
        told = events((await asking).text)
        assert "[DONE]" not in told and "error" in told[-1]
        (row,) = gateway.rows()
        assert (row["outcome"], row["completion_tokens"]) == ("truncated", 4)
        (attempt,) = gateway.attempts(row["request_id"])
        assert attempt["completion_tokens"] == 4


@pytest.mark.parametrize("stream", [True, False])
async def test_a_worker_that_lives_and_fails_is_passed_over_for_its_neighbour(
    tmp_path: Path, stream: bool
) -> None:
    """Least in flight is what fails fastest: without memory it would draw every request onto itself."""
    broken = FakeEngine(script=Script(fail_with=EngineUnavailable()))
    async with running_gateway(
        tmp_path,
        engines={"local-8b": [broken, FakeEngine()]},
        tiers={"local-8b": {"replicas": 2}},
    ) as gateway:
        for n in range(10):
            answer = await gateway.chat(
                model="local-8b", stream=stream, messages=[{"role": "user", "content": f"number {n}"}]
            )
            assert answer.status_code == 200, answer.text
        assert broken.alive
        ways = {tuple(attempts(gateway, row["request_id"])) for row in gateway.rows()}
        assert ways <= {
            (("local-8b", "ok"),),
            (("local-8b", "engine_unavailable"), ("local-8b", "ok")),
        }


async def test_several_choices_cannot_be_continued(tmp_path: Path) -> None:
    engines = [FakeEngine(script=gated()), FakeEngine(script=gated())]
    async with running_gateway(
        tmp_path, engines={"local-8b": engines}, tiers={"local-8b": {"replicas": 2}}
    ) as gateway:
        asking = asyncio.create_task(gateway.chat(model="local-8b", stream=True, max_tokens=TOKENS, n=2))
        await until(lambda: any(engine.load().unfinished for engine in engines))
        engine = busy(gateway)
        let(engine, 3)
        await until(lambda: engine.calls[0].meter.completion == 4)
        engine.kill()
        told = events((await asking).text)
        assert "[DONE]" not in told and told[-1]["error"]["code"] == "engine_unavailable"
        (row,) = gateway.rows()
        assert (row["outcome"], row["attempts"]) == ("truncated", 1)


@pytest.mark.parametrize("stream", [True, False])
async def test_before_the_first_token_the_request_moves_whole_and_stays_at_home(
    tmp_path: Path, stream: bool
) -> None:
    engines = [FakeEngine(script=Script(first_gate=asyncio.Event())) for _ in range(2)]
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines={"local-8b": engines},
            tiers={"local-8b": {"replicas": 2}},
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, explicit_local="overflow"),
        ) as gateway,
    ):
        asking = asyncio.create_task(gateway.chat(model="local-8b", stream=stream))
        await until(lambda: any(engine.load().unfinished for engine in engines))
        first = busy(gateway)
        first.kill()
        other = engines[1 - engines.index(first)]
        await until(lambda: other.load().unfinished == 1)
        assert other.script.first_gate is not None
        other.script.first_gate.set()
        answer = await asking
        assert answer.status_code == 200
        assert answer.headers["x-weighbridge-road"] == "local-8b"
        assert answer.headers["x-weighbridge-attempts"] == "2"
        assert recorder.connections == []


async def test_a_request_that_kills_its_workers_does_not_go_through_all_of_them(tmp_path: Path) -> None:
    engines = [FakeEngine(script=Script(die_after=2)) for _ in range(5)]
    async with running_gateway(
        tmp_path,
        engines={"local-8b": engines},
        tiers={"local-8b": {"replicas": 5}},
        pool={"restart_backoff_s": 60},
    ) as gateway:
        answer = await gateway.chat(model="local-8b", stream=True, max_tokens=TOKENS)
        told = events(answer.text)
        assert "[DONE]" not in told and "error" in told[-1]
        assert sum(not engine.alive for engine in engines) == 3
        (row,) = gateway.rows()
        assert (row["outcome"], row["attempts"]) == ("truncated", 3)


async def test_a_stream_that_waits_for_a_new_worker_shows_signs_of_life(tmp_path: Path) -> None:
    engine = FakeEngine(script=gated())
    async with running_gateway(
        tmp_path,
        engines={"local-8b": engine},
        server={"keep_alive_comment_s": 0.1, "port": 0, "drain_timeout_s": 5},
        pool={"restart_backoff_s": 0.5},
    ) as gateway:
        asking = asyncio.create_task(gateway.chat(model="local-8b", stream=True, max_tokens=4))
        await until(lambda: bool(engine.calls))
        let(engine, 1)
        await until(lambda: engine.calls[0].meter.completion == 2)
        engine.kill()
        answer = await asking
        assert answer.text.endswith("data: [DONE]\n\n")
        assert comments(answer.text).count("keep-alive") >= 2
