"""Usage records of a whole gateway at a collector that comes, goes and misbehaves."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import ledger_rows
from tests.support.otlp_receiver import Mode, Receiver, attributes, receiving
from tests.support.ports import free_port
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from tests.support.waiting import until
from tests.support.watching import watched
from weighbridge.config.clock import SystemClock
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.shipping_verify import verify

QUICK = {"interval_s": 0.1, "timeout_s": 2.0, "metrics_interval_s": 1}


def ours(port: int, **more: Any) -> dict[str, Any]:
    return {"endpoint": f"http://127.0.0.1:{port}", **QUICK, **more}


async def health(gateway: Running) -> dict[str, Any]:
    return (await gateway.client.get("/health/ready")).json()  # type: ignore[no-any-return]


async def arrived(receiver: Receiver, ids: set[str]) -> None:
    await asyncio.to_thread(receiver.wait, lambda: set(receiver.latest()) >= ids, 30)


async def test_200_requests_while_the_collector_is_down_arrive_once_each_when_it_is_up(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with running_gateway(tmp_path, collector=ours(port, degraded_after_s=0.2)) as gateway:
        few = asyncio.Semaphore(10)

        async def ask(n: int) -> httpx.Response:
            async with few:
                return await gateway.chat(stream=n % 2 == 0, max_tokens=4)

        answers = await asyncio.gather(*(ask(n) for n in range(200)))
        assert {answer.status_code for answer in answers} == {200}
        ids = {answer.headers["x-weighbridge-request-id"] for answer in answers}
        assert len(ids) == 200

        async def late() -> dict[str, Any]:
            while (told := await health(gateway))["status"] != "degraded":
                await asyncio.sleep(0.05)
            return told

        told = (await asyncio.wait_for(late(), 20))["parts"]["collector"]
        assert (told["ready"], told["trouble"]) == (False, "connect")
        assert (await gateway.client.get("/health/ready")).status_code == 200, "degraded, not unready"
        with receiving(port) as collector:
            await arrived(collector, ids)
            assert set(collector.latest()) == ids
            assert set(collector.uids().values()) == {1}
            stored = {row["request_id"]: row for row in gateway.rows()}
            for key, said in collector.latest().items():
                assert said["gen_ai.usage.output_tokens"] == stored[key]["completion_tokens"]
                assert said["weighbridge.outcome"] == stored[key]["outcome"] == "ok"
                assert said["weighbridge.record.revision"] == stored[key]["seq"]
                assert len(said["weighbridge.attempts"]) == stored[key]["attempts"]

            async def ready() -> None:
                while (await health(gateway))["status"] != "ready":
                    await asyncio.sleep(0.05)

            await asyncio.wait_for(ready(), 20)
            await asyncio.to_thread(collector.wait, lambda: bool(collector.metrics))
            page = (await gateway.client.get("/metrics")).text
            assert 'weighbridge_shipped_total{stream="requests"} 200.0' in page
            assert "weighbridge_records_dropped_total 0.0" in page
            export = tmp_path / "sink.jsonl"
            collector.write(export)
    found = verify(gateway.state_dir / "ledger.sqlite3", [export])
    assert found.agrees
    assert found.agreeing == 200


async def test_what_left_arrives_with_its_chain_and_no_word_of_it(tmp_path: Path) -> None:
    with receiving() as collector:
        async with (
            recording() as recorder,
            running_gateway(
                tmp_path,
                upstream=recorder.base_url,
                policy=policy_file(tmp_path),
                collector=ours(collector.port),
            ) as gateway,
        ):
            answer = await gateway.chat(
                model="commercial", messages=[{"role": "user", "content": "qzmark kim@corp-example.co.kr"}]
            )
            assert answer.status_code == 200
            await asyncio.to_thread(
                collector.wait,
                lambda: bool(collector.latest("weighbridge.egress")) and bool(collector.latest()),
            )
            (row,) = gateway.egress()
    (said,) = collector.latest("weighbridge.egress").values()
    assert said["weighbridge.chain.link"] == row["chain"]
    assert said["weighbridge.egress.body_hash"] == row["body_hash"]
    (request,) = collector.latest().values()
    assert request["weighbridge.attempts"][-1]["weighbridge.egress.id"] == row["egress_id"]
    everything = repr([attributes(record) for record in collector.records])
    assert "qzmark" not in everything and "corp-example" not in everything


async def test_a_collector_that_hangs_does_not_hold_an_answer_up(tmp_path: Path) -> None:
    with receiving() as collector:
        collector.mode = Mode(hang=True)
        async with running_gateway(tmp_path, collector=ours(collector.port, timeout_s=60)) as gateway:
            await gateway.chat(max_tokens=4)
            await asyncio.to_thread(collector.wait, lambda: bool(collector.requests))
            answers = await asyncio.wait_for(
                asyncio.gather(*(gateway.chat(max_tokens=4) for _ in range(50))), 20
            )
            assert {answer.status_code for answer in answers} == {200}
            collector.mode = Mode()
        # Stopping tried once more.
    assert set(collector.latest()) >= {a.headers["x-weighbridge-request-id"] for a in answers}


async def test_shipping_connects_to_the_collector_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:9")
    with receiving() as collector, watched() as events:
        collector.metrics_mode = Mode(status=307, headers={"location": "http://127.0.0.1:9/"})
        async with running_gateway(tmp_path, collector=ours(collector.port)) as gateway:
            own = gateway.client.base_url.port
            # Past the proxies that the environment names, the test itself too.
            async with httpx.AsyncClient(base_url=gateway.url, trust_env=False) as client:
                answer = await client.post(
                    "/v1/chat/completions",
                    json={"model": "local-8b", "messages": [{"role": "user", "content": "hi"}]},
                )
                assert answer.status_code == 200
            await asyncio.to_thread(collector.wait, lambda: bool(collector.metrics and collector.records))
    reached = {args[1] for event, args in events if event.startswith(("socket.connect", "socket.sendto"))}
    assert reached == {("127.0.0.1", own), ("127.0.0.1", collector.port)}
    looked_up = {args[0] for event, args in events if event.startswith(("socket.get", "http", "urllib"))}
    assert looked_up <= {"127.0.0.1"}


async def test_without_a_collector_nothing_is_shipped_and_nothing_is_missing(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        await gateway.chat(max_tokens=4)
        assert gateway.parts.shipper is None
        told = await health(gateway)
        assert told["status"] == "ready"
        assert told["parts"]["collector"] == {"configured": False, "ready": True}
    # Once there is one, it gets what was kept.
    with receiving() as collector:
        async with running_gateway(tmp_path, collector=ours(collector.port)):
            await asyncio.to_thread(collector.wait, lambda: len(collector.latest()) == 1)


async def test_a_gateway_starts_over_a_damaged_spool_and_says_so_until_it_is_taken_away(
    tmp_path: Path,
) -> None:
    spool = tmp_path / "state" / "ledger.sqlite3"
    spool.parent.mkdir(mode=0o700)
    spool.write_bytes(b"SQLite format 3\0" + b"\xa5" * 8000)
    async with running_gateway(tmp_path) as gateway:
        assert (await gateway.chat(max_tokens=4)).status_code == 200
        told = await health(gateway)
        (name,) = told["parts"]["ledger"]["damaged"]
        assert (told["status"], told["parts"]["ledger"]["ready"]) == ("degraded", True)
        assert (spool.parent / name).read_bytes().endswith(b"\xa5" * 8000)
        (spool.parent / name).rename(tmp_path / "kept")
        assert (await health(gateway))["status"] == "ready"
        assert [row["outcome"] for row in gateway.rows()] == ["ok"]


async def test_old_records_stay_until_they_have_arrived(tmp_path: Path) -> None:
    spool = tmp_path / "state" / "ledger.sqlite3"
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=ledger_rows.CHAIN_KEY)
    await ledger.completion(ledger_rows.completion("old", ended_ns=1))
    await ledger.close()
    settings = {"collector": ours(free_port()), "ledger": {"retention_days": 30}}
    async with running_gateway(tmp_path, **settings) as gateway:
        await gateway.chat(max_tokens=4)
        retention = gateway.parts.ledger._writer._retention
        assert retention is not None
        await until(lambda: retention.due_in_s(time.monotonic()) > 0, 10)
        assert "old" in {row["request_id"] for row in gateway.rows()}
