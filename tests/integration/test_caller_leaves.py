"""A caller who leaves a commercial answer: closed at once or read to its end for its usage, by policy."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import recorder as rec
from tests.support.recorder import PROMPT_TOKENS, recording
from tests.support.running import Running, policy_file, running_gateway
from tests.support.waiting import until


async def leave(gateway: Running, *, stream: bool, after_s: float = 0.0) -> None:
    """Ask the commercial API and go away: after the first event of a stream, or `after_s` seconds into a document."""
    body = {
        "model": "commercial",
        "stream": stream,
        "messages": [{"role": "user", "content": "one two three four five six seven eight nine ten"}],
    }
    if stream:
        async with gateway.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if "content" in line:
                    return
    try:
        async with asyncio.timeout(after_s):
            await gateway.client.post("/v1/chat/completions", json=body)
    except TimeoutError:
        return


async def the_row(gateway: Running) -> dict[str, Any]:
    await until(lambda: bool(gateway.rows()) and gateway.rows()[0]["outcome"] is not None)
    (row,) = gateway.rows()
    return row


@pytest.mark.parametrize("stream", [True, False])
async def test_close_ends_the_connection_at_once(tmp_path: Path, stream: bool) -> None:
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        recorder.mode = rec.slow(100) if stream else rec.STALL
        await leave(gateway, stream=stream, after_s=0.3)
        began = time.perf_counter()
        async with asyncio.timeout(5):
            await recorder.connections[0].closed.wait()
        assert time.perf_counter() - began < 1
        assert (await the_row(gateway))["outcome"] == "client_aborted"


@pytest.mark.parametrize("stream", [True, False])
async def test_drain_reads_on_until_the_usage_is_known(tmp_path: Path, stream: bool) -> None:
    policy = policy_file(tmp_path, on_disconnect={"commercial": "drain", "drain_s": 10})
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway,
    ):
        recorder.mode = rec.slow(30) if stream else rec.delay(600)
        await leave(gateway, stream=stream, after_s=0.2)
        row = await the_row(gateway)
        assert row["outcome"] == "client_aborted"
        assert row["prompt_tokens"] == PROMPT_TOKENS and row["completion_tokens"] > 0
        assert row["tokens_exact"]


async def test_drain_is_bounded(tmp_path: Path) -> None:
    policy = policy_file(tmp_path, on_disconnect={"commercial": "drain", "drain_s": 0.5})
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway,
    ):
        recorder.mode = rec.slow(200)
        await leave(gateway, stream=True)
        began = time.perf_counter()
        async with asyncio.timeout(5):
            await recorder.connections[0].closed.wait()
        assert 0.3 < time.perf_counter() - began < 2
        assert (await the_row(gateway))["outcome"] == "client_aborted"


async def test_nothing_leaves_for_a_caller_who_has_left_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_file(tmp_path, on_disconnect={"commercial": "drain", "drain_s": 5})
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway,
    ):
        held, reached = asyncio.Event(), asyncio.Event()
        really = gateway.parts.ledger.record_egress

        async def slow_disk(row: Any) -> None:
            reached.set()
            await held.wait()
            await really(row)

        monkeypatch.setattr(gateway.parts.ledger, "record_egress", slow_disk)
        asking = asyncio.create_task(gateway.chat(model="commercial", stream=True))
        await reached.wait()
        asking.cancel()
        assert (await the_row(gateway))["outcome"] == "client_aborted"
        held.set()
        await asyncio.sleep(0.2)
        assert recorder.requests == []


async def test_an_answer_that_is_read_whole_is_not_touched_by_draining(tmp_path: Path) -> None:
    policy = policy_file(tmp_path, on_disconnect={"commercial": "drain", "drain_s": 5})
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway,
    ):
        for stream in (True, False):
            answer = await gateway.chat(model="commercial", stream=stream)
            assert answer.status_code == 200
        recorder.mode = rec.STATUS_500
        assert (await gateway.chat(model="commercial")).status_code == 502
        assert [row["outcome"] for row in gateway.rows()] == ["ok", "ok", "error"]


async def test_the_requests_own_deadline_is_not_stretched_by_draining(tmp_path: Path) -> None:
    policy = policy_file(tmp_path, on_disconnect={"commercial": "drain", "drain_s": 30})
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            upstream=recorder.base_url,
            policy=policy,
            server={"request_timeout_s": 1.0, "port": 0, "drain_timeout_s": 5},
        ) as gateway,
    ):
        recorder.mode = rec.slow(300)
        began = time.perf_counter()
        answer = await gateway.chat(model="commercial", stream=True)
        assert time.perf_counter() - began < 3
        assert '"code":"timeout"' in answer.text and "[DONE]" not in answer.text
