"""One request's walk: what waits for the ledger, what each road's failure leaves behind, how it ends."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import ledger_rows
from tests.support import recorder as rec
from tests.support.direct import Paper, admitted
from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from weighbridge.config.deadline import Deadline
from weighbridge.observability.ledger import LedgerUnavailable
from weighbridge.observability.records import Completion, Intent
from weighbridge.pool.engine import EngineCall, EngineUnavailable
from weighbridge.pool.lease import SlotLease
from weighbridge.pool.slot_lock import Ask
from weighbridge.router import dispatch

GREETING = "안녕하세요"
CODE = [{"role": "user", "content": "Write a Python function that parses a CSV file and fix this bug."}]
FOREVER_MS = 600_000
ONE_SLOT = {"local-8b": {"max_num_seqs": 1}}


async def until(true: Callable[[], bool], within_s: float = 5.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.002)


async def turns(count: int = 100) -> None:
    """Let whatever can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


def events(text: str) -> list[str]:
    return [line[6:] for line in text.splitlines() if line.startswith("data: ")]


def slots(gateway: Running, road: str) -> int:
    return next(tier["slots_in_use"] for tier in gateway.parts.pool.status() if tier["road"] == road)


def idle(gateway: Running) -> bool:
    return gateway.slots_in_use() == 0 and not any(
        engine.load().unfinished for engine in gateway.engines.values()
    )


async def taken_slot(gateway: Running, road: str = "local-8b") -> SlotLease:
    tier = gateway.parts.pool.tier(road)
    assert tier is not None
    return await tier.lease(Ask(Deadline.after(gateway.parts.clock, 1)), "chat", {}, 100)


def hold_intents(gateway: Running, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Until the event is set, no intent is durable."""
    written, release = gateway.parts.ledger.intent, asyncio.Event()

    def held(row: Intent) -> asyncio.Future[None]:
        on_disk = written(row)

        async def later() -> None:
            await release.wait()
            await on_disk

        return asyncio.ensure_future(later())

    monkeypatch.setattr(gateway.parts.ledger, "intent", held)
    return release


# ---- what waits for the ledger ----


@pytest.mark.parametrize("stream", [True, False])
async def test_no_byte_is_sent_before_the_intent_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    async with running_gateway(tmp_path) as gateway:
        release = hold_intents(gateway, monkeypatch)
        ended: list[str] = []
        complete = gateway.parts.ledger.completion

        def completion(row: Completion) -> asyncio.Future[None]:
            ended.append(row.request_id)
            return complete(row)

        monkeypatch.setattr(gateway.parts.ledger, "completion", completion)
        engine, paper = gateway.engines["local-8b"], Paper()
        request = admitted(gateway, "local-8b", stream, GREETING)
        task = asyncio.create_task(gateway.parts.dispatch.run(request, paper))
        await until(lambda: bool(engine.calls) and engine.calls[0].meter.completion > 0)
        if not stream:
            await until(lambda: engine.load().unfinished == 0)
        await turns()
        assert (paper.status, paper.body) == (0, b"") and ended == [] and not task.done()
        release.set()
        await task
        assert ended == [request.request_id]
        assert paper.status == 200 and paper.ended and paper.body


@pytest.mark.parametrize("stream", [True, False])
async def test_nothing_is_masked_or_sent_out_before_the_intent_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        masked: list[str] = []
        really = gateway.parts.masker.mask

        async def mask(*args: Any, **named: Any) -> Any:
            masked.append(named["request_id"])
            return await really(*args, **named)

        monkeypatch.setattr(gateway.parts.masker, "mask", mask)
        release = hold_intents(gateway, monkeypatch)
        paper = Paper()
        request = admitted(gateway, "commercial", stream, GREETING)
        task = asyncio.create_task(gateway.parts.dispatch.run(request, paper))
        await until(lambda: gateway.parts.dispatch.under_way == 1 and len(gateway.rows()) == 1)
        await turns()
        assert masked == [] and recorder.connections == [] and gateway.egress() == []
        release.set()
        await task
        assert masked == [request.request_id] and paper.status == 200


async def test_an_intent_that_cannot_be_written_keeps_everything_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The egress row alone is not enough, should the disk come back between the two."""

    def refused(row: Intent) -> asyncio.Future[None]:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        never.set_exception(LedgerUnavailable("down"))
        return never

    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        monkeypatch.setattr(gateway.parts.ledger, "intent", refused)
        answer = await gateway.chat(model="commercial")
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "ledger_unavailable"
        assert recorder.connections == [] and gateway.egress() == []
        assert (await gateway.chat(model="local-8b")).status_code == 200


async def test_a_long_stream_leaves_progress_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "PROGRESS_INTERVAL_S", 3600.0)
    gate = asyncio.Semaphore(198)
    engine = FakeEngine(script=Script(token_gate=gate))
    async with running_gateway(tmp_path, engines={"local-8b": engine}) as gateway:
        paper = Paper()
        request = admitted(gateway, "local-8b", True, GREETING, max_tokens=200)
        task = asyncio.create_task(gateway.parts.dispatch.run(request, paper))
        await until(lambda: bool(engine.calls) and engine.calls[0].meter.completion == 199)
        await until(lambda: (gateway.rows()[0]["completion_tokens"] or 0) >= 192)
        (row,) = gateway.rows()
        assert row["outcome"] is None and row["prompt_tokens"] == engine.calls[0].meter.prompt
        gate.release()
        await task
        (row,) = gateway.rows()
        assert (row["outcome"], row["completion_tokens"]) == ("ok", 200)


async def test_an_answer_that_is_not_streamed_gets_its_progress_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "PROGRESS_INTERVAL_S", 0.02)
    gate = asyncio.Semaphore(9)
    engine = FakeEngine(script=Script(token_gate=gate))
    async with running_gateway(tmp_path, engines={"local-8b": engine}) as gateway:
        task = asyncio.create_task(gateway.chat(model="local-8b", max_tokens=11))
        await until(lambda: bool(gateway.rows()) and gateway.rows()[0]["completion_tokens"] == 10)
        (row,) = gateway.rows()
        assert row["outcome"] is None and row["prompt_tokens"] == engine.calls[0].meter.prompt
        gate.release()
        assert (await task).status_code == 200


async def test_with_a_broken_ledger_disk_local_models_serve_and_nothing_leaves(tmp_path: Path) -> None:
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        with ledger_rows.broken_disk():
            local = await gateway.chat(model="local-8b")
            streamed = await gateway.chat(model="local-8b", stream=True)
            refused = await gateway.chat(model="commercial")
            fallen_back = await gateway.chat(messages=CODE)
        assert local.status_code == 200 and events(streamed.text)[-1] == "[DONE]"
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "ledger_unavailable"
        assert int(refused.headers["retry-after"]) >= 5
        assert fallen_back.status_code == 200
        assert fallen_back.headers["x-weighbridge-road"] == "local-70b"
        assert recorder.connections == []
        # The rows waited for the disk.
        await until(lambda: len(gateway.rows()) == 4 and all(row["outcome"] for row in gateway.rows()))
        assert gateway.egress() == []


# ---- deadlines and faults ----


@pytest.mark.parametrize("stream", [True, False])
async def test_the_deadline_of_a_request_that_has_no_answer_yet(tmp_path: Path, stream: bool) -> None:
    engine = FakeEngine(script=Script(first_gate=asyncio.Event()))
    async with running_gateway(
        tmp_path, engines={"local-8b": engine}, server={"request_timeout_s": 0.3}
    ) as gateway:
        answer = await gateway.chat(model="local-8b", stream=stream)
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "timeout"
        assert len(engine.calls) == 1 and idle(gateway)
        (row,) = gateway.rows()
        assert (row["outcome"], row["status"], row["error_code"]) == ("error", 504, "timeout")


async def test_the_deadline_of_an_answer_under_way(tmp_path: Path) -> None:
    engine = FakeEngine(script=Script(token_gate=asyncio.Semaphore(3)))
    async with running_gateway(
        tmp_path, engines={"local-8b": engine}, server={"request_timeout_s": 0.5}
    ) as gateway:
        answer = await gateway.chat(model="local-8b", stream=True)
        assert answer.status_code == 200
        seen = events(answer.text)
        assert "[DONE]" not in seen
        assert json.loads(seen[-1])["error"]["code"] == "timeout"
        assert idle(gateway)
        (row,) = gateway.rows()
        assert (row["outcome"], row["status"], row["error_code"]) == ("truncated", 200, "timeout")
        assert row["completion_tokens"] == 4


@pytest.mark.parametrize("stream", [True, False])
async def test_what_an_unexpected_exception_says_is_told_to_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    engine = FakeEngine(script=Script(fail_with=RuntimeError("planted-persimmon")))
    async with running_gateway(tmp_path, engines={"local-8b": engine}) as gateway:
        answer = await gateway.chat(model="local-8b", stream=stream)
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "internal_error"
        (row,) = gateway.rows()
        assert (row["outcome"], row["error_code"]) == ("error", "internal_error")
        tried = gateway.attempts(row["request_id"])
        assert idle(gateway)
    assert "RuntimeError" in caplog.text
    for told in (answer.text, str(answer.headers), caplog.text, repr(row), repr(tried)):
        assert "persimmon" not in told


# ---- from one road to the next ----


class Halfway(FakeEngine):
    """Counts some tokens, makes no content, and is gone."""

    async def complete(self, call: EngineCall) -> bytes:
        call.meter.prompt, call.meter.cached, call.meter.completion = 1234, 56, 7
        raise EngineUnavailable

    async def stream(self, call: EngineCall) -> AsyncGenerator[bytes, None]:
        await self.complete(call)
        yield b""


@pytest.mark.parametrize("stream", [True, False])
async def test_tokens_of_a_failed_attempt_stay_with_it(tmp_path: Path, stream: bool) -> None:
    gate = asyncio.Event()
    second = FakeEngine("local-70b", script=Script(first_gate=gate))
    async with running_gateway(
        tmp_path, engines={"local-8b": Halfway(), "local-70b": second}, policy=policy_file(tmp_path)
    ) as gateway:
        task = asyncio.create_task(
            gateway.chat(messages=[{"role": "user", "content": GREETING}], stream=stream)
        )
        await until(lambda: bool(second.calls))
        assert slots(gateway, "local-8b") == 0, "the first road's slot is free while the next one serves"
        assert slots(gateway, "local-70b") == 1
        gate.set()
        assert (await task).headers["x-weighbridge-road"] == "local-70b"
        (row,) = gateway.rows()
        first, last = gateway.attempts(row["request_id"])
        meter = second.calls[0].meter
        assert (first["road"], first["outcome"]) == ("local-8b", "engine_unavailable")
        assert (first["prompt_tokens"], first["cached_tokens"], first["completion_tokens"]) == (1234, 56, 7)
        for counted in (last, row):
            assert counted["prompt_tokens"] == meter.prompt < 1234
            assert counted["cached_tokens"] == 0
            assert counted["completion_tokens"] == meter.completion == 16


async def test_an_overloaded_engine_adds_no_tokens_to_the_overflow(tmp_path: Path) -> None:
    engine = FakeEngine(script=Script(overloaded=True))
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines={"local-8b": engine},
            upstream=recorder.base_url,
            policy=policy_file(tmp_path),
        ) as gateway,
    ):
        answer = await gateway.chat()
        assert answer.headers["x-weighbridge-road"] == "commercial"
        (row,) = gateway.rows()
        first, last = gateway.attempts(row["request_id"])
        assert (first["outcome"], first["prompt_tokens"], first["completion_tokens"]) == (
            "engine_overloaded",
            0,
            0,
        )
        for counted in (last, row):
            assert counted["prompt_tokens"] == rec.PROMPT_TOKENS
            assert counted["cached_tokens"] == rec.CACHED_TOKENS
        assert last["egress_id"] and not first["egress_id"]
        assert [out["reason"] for out in gateway.egress()] == ["queue_lock_timeout"]


@pytest.mark.parametrize("explicit_local", ["overflow", "stay"])
async def test_an_explicit_local_model_overflows_where_the_policy_says_so(
    tmp_path: Path, explicit_local: str
) -> None:
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines={"local-8b": FakeEngine(), "local-70b": FakeEngine("local-70b")},
            upstream=recorder.base_url,
            policy=policy_file(
                tmp_path,
                queue_lock_timeout_ms=30,
                explicit_local=explicit_local,
                overflow_order=["commercial"],
            ),
            tiers=ONE_SLOT,
        ) as gateway,
    ):
        held = await taken_slot(gateway)
        answer = await gateway.chat(model="local-8b")
        held.release()
        (row,) = gateway.rows()
        tried = [(a["road"], a["outcome"]) for a in gateway.attempts(row["request_id"])]
        if explicit_local == "overflow":
            assert answer.status_code == 200
            assert answer.headers["x-weighbridge-road"] == "commercial"
            assert tried == [("local-8b", "queue_timeout"), ("commercial", "ok")]
        else:
            assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["code"] == "queue_lock_timeout"
            assert tried == [("local-8b", "queue_timeout")] and recorder.connections == []


@pytest.mark.parametrize("egress", ["masked", "never"])
@pytest.mark.parametrize("max_waiting", [0, 1])
async def test_a_full_queue_is_left_at_once(tmp_path: Path, max_waiting: int, egress: str) -> None:
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines={"local-8b": FakeEngine()},
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, egress=egress, queue_lock_timeout_ms=FOREVER_MS),
            tiers={"local-8b": {"max_num_seqs": 1, "max_waiting": max_waiting}},
        ) as gateway,
    ):
        held = await taken_slot(gateway)
        waiting = [asyncio.create_task(gateway.chat()) for _ in range(max_waiting)]
        await until(lambda: gateway.parts.pool.status()[0]["waiting"] == max_waiting)
        async with asyncio.timeout(10):
            answer = await gateway.chat()
        assert not any(task.done() for task in waiting)
        if egress == "masked":
            assert answer.headers["x-weighbridge-road"] == "commercial"
        else:
            assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["code"] == "queue_full"
            assert recorder.connections == []
        held.release()
        for task in waiting:
            assert (await task).headers["x-weighbridge-road"] == "local-8b"
        first = [gateway.attempts(row["request_id"])[0]["outcome"] for row in gateway.rows()]
        assert sorted(first) == sorted(["queue_full", *["ok"] * max_waiting])


# ---- the caller leaves ----


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("where", ["queued", "prefill", "decoding"])
async def test_a_disconnect_frees_everything_within_a_second(
    tmp_path: Path, where: str, stream: bool
) -> None:
    engine = FakeEngine(script=Script(token_gate=asyncio.Semaphore(3)))
    if where == "prefill":
        engine.script.first_gate = asyncio.Event()
    async with running_gateway(
        tmp_path,
        engines={"local-8b": engine},
        policy=policy_file(tmp_path, queue_lock_timeout_ms=FOREVER_MS),
        tiers=ONE_SLOT,
    ) as gateway:

        def tier(name: str) -> int:
            return int(gateway.parts.pool.status()[0][name])

        held = await taken_slot(gateway) if where == "queued" else None
        call = asyncio.create_task(gateway.chat(model="local-8b", stream=stream))
        if where == "queued":
            await until(lambda: tier("waiting") == 1)
        elif where == "prefill":
            await until(lambda: engine.load().unfinished == 1)
        else:
            await until(lambda: bool(engine.calls) and engine.calls[0].meter.completion == 4)
        assert tier("slots_in_use") == 1 and gateway.parts.dispatch.under_way == 1
        call.cancel()
        await asyncio.wait({call})
        await until(
            lambda: (
                tier("waiting") == 0
                and tier("slots_in_use") == (1 if held else 0)
                and engine.load().unfinished == 0
                and gateway.parts.dispatch.under_way == 0
            ),
            within_s=1.0,
        )
        if held is not None:
            held.release()
            assert engine.calls == []
        await until(lambda: bool(gateway.rows()) and gateway.rows()[0]["outcome"] is not None)
        (row,) = gateway.rows()
        assert (row["outcome"], row["attempts"]) == ("client_aborted", 1)
        assert row["status"] == (200 if stream and where == "decoding" else 0)
        assert row["completion_tokens"] == (4 if where == "decoding" else 0)
        engine.script.first_gate, engine.script.token_gate = None, None
        assert (await gateway.chat(model="local-8b")).status_code == 200


# ---- what the answer says about its road ----


@pytest.mark.parametrize("stream", [True, False])
async def test_without_a_commercial_endpoint_hard_requests_stay_and_the_answer_says_why(
    tmp_path: Path, stream: bool
) -> None:
    async with running_gateway(tmp_path, policy=policy_file(tmp_path)) as gateway:
        answer = await gateway.chat(messages=CODE, stream=stream)
        assert answer.status_code == 200
        assert answer.headers["x-weighbridge-road"] == "local-70b"
        assert answer.headers["x-weighbridge-attempts"] == "1"
        assert "no commercial endpoint configured" in answer.headers["x-weighbridge-reason"]
