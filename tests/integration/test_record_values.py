"""What the records say of who served, for how long, and at what cost: of real requests through a whole gateway."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support import ledger_rows
from tests.support import recorder as rec
from tests.support.endpoints import site
from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import OK
from tests.support.running import Running, running_gateway
from tests.support.waiting import until
from weighbridge.config.clock import SystemClock
from weighbridge.observability import ledger_read, usage_read
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.records import Capacity
from weighbridge.router.difficulty.score import assess

EVER = ("2000-01-01", "2999-12-31")


def capacity(gateway: Running) -> list[Capacity]:
    with closing(ledger_read.open_readonly(gateway.state_dir / "ledger.sqlite3")) as conn:
        return usage_read.capacity(conn, 0, 1 << 62)


def attempt_usage(gateway: Running, *by: str) -> list[dict[str, Any]]:
    with closing(ledger_read.open_readonly(gateway.state_dir / "ledger.sqlite3")) as conn:
        return usage_read.attempt_usage(conn, *EVER, by)


async def test_a_local_attempt_names_its_worker_and_what_it_had_of_it(tmp_path: Path) -> None:
    tiers = {"local-8b": {"slots": 2, "served_model_name": "our-8b"}}
    engine = FakeEngine(script=Script(token_s=0.02))
    async with running_gateway(tmp_path, engines={"local-8b": engine}, tiers=tiers) as gateway:
        answer = await gateway.chat(model="local-8b", stream=True, max_tokens=11)
        assert answer.status_code == 200
        (row,) = gateway.rows()
        (attempt,) = gateway.attempts(row["request_id"])
        assert (attempt["backend"], attempt["model"]) == ("0", "our-8b")
        took_us = (attempt["ended_ns"] - attempt["started_ns"]) / 1000
        # Two slots: half of the time it was held.
        assert 0.3 * took_us < attempt["worker_us"] <= 0.5 * took_us + 1
        assert row["worker_us"] == attempt["worker_us"]
        assert row["completion_tokens"] == 11
        assert 15 < row["tpot_ms"] < row["total_ms"] / 10
        (held,) = {(part.road, part.worker, part.slots) for part in capacity(gateway)}
        assert held == ("local-8b", "0", 2)
    (period,) = capacity(gateway)
    assert period.to_ns - period.from_ns > 2_000 * attempt["worker_us"]
    assert period.from_ns < attempt["started_ns"] and attempt["ended_ns"] < period.to_ns


async def test_the_risks_stand_beside_the_score(tmp_path: Path) -> None:
    asked = {"messages": [{"role": "user", "content": "Prove that there are infinitely many primes."}]}
    weight = assess(asked)
    async with running_gateway(tmp_path) as gateway:
        for model in ("auto", "local-8b"):
            assert (await gateway.chat(model=model, **asked)).status_code == 200
        weighed, named = gateway.rows()
    assert (weighed["p_8b_fails"], weighed["p_70b_fails"]) == (weight.p_8b_fails, weight.p_70b_fails)
    assert (named["score"], named["p_8b_fails"], named["p_70b_fails"]) == (None, None, None)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_failed_over_request_is_one_record_with_the_answering_model_named(
    tmp_path: Path, stream: bool
) -> None:
    async with site(tmp_path, rec.STATUS_500, OK) as here:
        answer = await here.ask(stream=stream)
        assert answer.status_code == 200, answer.text
        (row,) = here.gateway.rows()
        first, second = here.gateway.attempts(row["request_id"])
        assert (first["backend"], first["model"]) == ("main", "upstream-model")
        assert (second["backend"], second["model"]) == ("second", "model-of-second")
        assert (first["prompt_tokens"], first["completion_tokens"]) == (0, 0)
        assert second["completion_tokens"] == row["completion_tokens"] > 0
        assert (first["worker_us"], second["worker_us"], row["worker_us"]) == (0, 0, 0)
        assert (row["tpot_ms"] is not None) is stream
        sums = {one["backend"]: one["completion_tokens"] for one in attempt_usage(here.gateway, "backend")}
        assert sums == {"main": 0, "second": row["completion_tokens"]}


async def test_who_was_not_asked_is_not_named(tmp_path: Path) -> None:
    script = Script(token_gate=asyncio.Semaphore(0))
    engine = FakeEngine(script=script)
    tiers = {"local-8b": {"slots": 1, "max_waiting": 1}}
    async with running_gateway(tmp_path, engines={"local-8b": engine}, tiers=tiers) as gateway:
        busy = asyncio.create_task(gateway.chat(model="local-8b", max_tokens=2))
        await until(lambda: bool(engine.calls))
        waiting = asyncio.create_task(gateway.chat(model="local-8b", max_tokens=2))
        await until(lambda: gateway.parts.pool.status()[0]["waiting"] == 1)
        refused = await gateway.chat(model="local-8b")
        assert refused.status_code == 429
        row = next(row for row in gateway.rows() if row["outcome"] == "refused")
        (attempt,) = gateway.attempts(row["request_id"])
        assert (attempt["backend"], attempt["model"], attempt["worker_us"]) == ("", "", 0)
        assert script.token_gate is not None
        for _ in range(4):
            script.token_gate.release()
        await asyncio.gather(busy, waiting)
        assert row["tpot_ms"] is None
        # What waiting cost is no worker's time.
        assert sum(one["worker_us"] for one in gateway.rows()) > 0


async def test_a_worker_that_dies_leaves_its_share_and_its_period(tmp_path: Path) -> None:
    engines = [FakeEngine(script=Script(token_gate=asyncio.Semaphore(3))) for _ in range(2)]
    async with running_gateway(
        tmp_path,
        engines={"local-8b": engines},
        tiers={"local-8b": {"replicas": 2}},
        pool={"restart_backoff_s": 60},
    ) as gateway:
        asking = asyncio.create_task(gateway.chat(model="local-8b", stream=True, max_tokens=20))
        await until(lambda: any(e.calls and e.calls[0].meter.completion >= 3 for e in engines))
        dying = next(e for e in engines if e.calls)
        dying.kill()
        other = next(e for e in engines if e is not dying)
        await until(lambda: bool(other.calls))
        assert other.script.token_gate is not None
        for _ in range(40):
            other.script.token_gate.release()
        assert (await asking).status_code == 200
        (row,) = gateway.rows()
        first, second = gateway.attempts(row["request_id"])
        assert {first["backend"], second["backend"]} == {"0", "1"}
        assert first["worker_us"] > 0 and second["worker_us"] > 0
        assert row["worker_us"] == first["worker_us"] + second["worker_us"]
    ended = {period.worker: period.to_ns for period in capacity(gateway)}
    assert len(ended) == 2 and ended[first["backend"]] < ended[second["backend"]]


async def test_the_gateway_lets_old_records_go_when_it_is_told_to(tmp_path: Path) -> None:
    spool = tmp_path / "state" / "ledger.sqlite3"
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=ledger_rows.CHAIN_KEY)
    await ledger.completion(ledger_rows.completion("old", ended_ns=1))
    await ledger.close()
    async with running_gateway(tmp_path, ledger={"retention_days": 30}) as gateway:
        assert (await gateway.chat(model="local-8b", max_tokens=2)).status_code == 200
        await until(lambda: len(gateway.rows()) == 1)
        assert gateway.rows()[0]["outcome"] == "ok"
