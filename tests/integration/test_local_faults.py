"""Local models that are late or fall silent, under the policy's limits for them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.endpoints import assert_broken_off, events, told
from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from weighbridge.policies.loader import check_policy

LIMITS = {"first_token_s": 0.4, "gap_s": 0.4, "total_s": 5.0}
HELLO = [{"role": "user", "content": "안녕하세요"}]


def limited(folder: Path, **limits: float) -> Path:
    return policy_file(folder, limits={"local": {**LIMITS, **limits}})


async def healthy(gateway: Running, engine: FakeEngine) -> None:
    engine.script = Script()
    answer = await gateway.chat(model="local-8b", stream=True)
    assert events(answer.text)[-1] == "[DONE]"
    assert answer.headers["x-weighbridge-road"] == "local-8b"
    assert gateway.slots_in_use() == 0
    rows = gateway.rows()
    assert len({row["request_id"] for row in rows}) == len(rows)


async def test_a_late_first_token_moves_on(tmp_path: Path) -> None:
    late = FakeEngine(script=Script(first_token_s=30))
    async with running_gateway(
        tmp_path, engines={"local-8b": late, "local-70b": FakeEngine("local-70b")}, policy=limited(tmp_path)
    ) as gateway:
        began = time.monotonic()
        answer = await gateway.chat(messages=HELLO, stream=True)
        assert 0.35 < time.monotonic() - began < 3
        assert answer.headers["x-weighbridge-road"] == "local-70b"
        assert events(answer.text)[-1] == "[DONE]"
        (row,) = gateway.rows()
        assert [a["outcome"] for a in gateway.attempts(row["request_id"])] == ["first_token_late", "ok"]
        assert gateway.slots_in_use() == 0, "the slot came back with the call"
        await healthy(gateway, late)


async def test_without_another_road_a_late_first_token_is_one_error(tmp_path: Path) -> None:
    late = FakeEngine(script=Script(first_token_s=30))
    async with running_gateway(tmp_path, engines={"local-8b": late}, policy=limited(tmp_path)) as gateway:
        answer = await gateway.chat(model="local-8b", stream=True)
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "local_first_token_late"
        assert gateway.rows()[0]["outcome"] == "error"
        await healthy(gateway, late)


async def test_a_stream_that_falls_silent_ends_with_an_error(tmp_path: Path) -> None:
    gate = asyncio.Semaphore(5)
    silent = FakeEngine(script=Script(token_gate=gate))
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path, engines={"local-8b": silent}, upstream=recorder.base_url, policy=limited(tmp_path)
        ) as gateway,
    ):
        answer = await gateway.chat(messages=HELLO, stream=True)
        assert_broken_off(answer, told(answer.text), "local_stalled")
        assert told(answer.text) and recorder.requests == []
        (row,) = gateway.rows()
        assert row["outcome"] == "truncated" and row["completion_tokens"] >= 6
        await healthy(gateway, silent)


async def test_tokens_that_keep_coming_are_no_silence(tmp_path: Path) -> None:
    slow = FakeEngine(script=Script(first_token_s=0.2, token_s=0.15))
    async with running_gateway(tmp_path, engines={"local-8b": slow}, policy=limited(tmp_path)) as gateway:
        answer = await gateway.chat(model="local-8b", stream=True, max_tokens=12)
        assert events(answer.text)[-1] == "[DONE]"
        await healthy(gateway, slow)


async def test_a_caller_who_reads_slowly_is_not_taken_for_a_silent_engine(tmp_path: Path) -> None:
    engine = FakeEngine(max_model_len=100_000)
    body = {"model": "local-8b", "messages": HELLO, "stream": True, "max_tokens": 6_000}
    payload = json.dumps(body).encode()
    async with running_gateway(
        tmp_path, engines={"local-8b": engine}, policy=limited(tmp_path, total_s=60)
    ) as gateway:
        port = int(gateway.url.rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n" % len(payload) + payload
        )
        await reader.readuntil(b"\r\n\r\n")
        # Longer than the limits; by then every buffer on the way is full.
        await asyncio.sleep(1.5)
        made = engine.calls[0].meter.completion
        assert made < 6_000, "the engine waits for its reader"
        rest = b""
        while piece := await reader.read(1 << 20):
            rest += piece
        writer.close()
        assert b"local_stalled" not in rest and b"data: [DONE]" in rest[-100:]
        assert gateway.rows()[0]["outcome"] == "ok"


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_limit_on_the_whole(tmp_path: Path, streamed: bool) -> None:
    slow = FakeEngine(script=Script(token_s=0.05))
    async with running_gateway(
        tmp_path, engines={"local-8b": slow}, policy=limited(tmp_path, total_s=0.6)
    ) as gateway:
        answer = await gateway.chat(model="local-8b", stream=streamed, max_tokens=500)
        if streamed:
            assert_broken_off(answer, told(answer.text), "local_too_long")
        else:
            assert (answer.status_code, answer.json()["error"]["code"]) == (504, "local_too_long")
        await healthy(gateway, slow)


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        ({"commercial": {"connect_s": 0}}, "limits.commercial.connect_s"),
        ({"local": {"gap_s": "60"}}, "limits.local.gap_s"),
        ({"local": {"headers_s": 3}}, "limits.local.headers_s"),
    ],
)
async def test_a_wrong_limit_is_named(tmp_path: Path, limits: dict[str, Any], line: str) -> None:
    (problem,) = check_policy(policy_file(tmp_path, limits=limits))
    assert problem.field == line
