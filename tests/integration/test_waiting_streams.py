"""A stream that waits for its slot gets signs of life, which commit to nothing."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from tests.support.waiting import comments, content, events, until

EVERY_S = 0.1
SERVER = {"keep_alive_comment_s": EVERY_S, "port": 0, "drain_timeout_s": 5}
ONE_SLOT = {"local-8b": {"max_num_seqs": 1}}


async def hold_the_slot(gateway: Running, engine: FakeEngine) -> asyncio.Task[Any]:
    holding = asyncio.create_task(gateway.chat(model="local-8b"))
    await until(lambda: engine.load().unfinished == 1)
    return holding


def blocked() -> FakeEngine:
    return FakeEngine(script=Script(first_gate=asyncio.Event()))


def unblock(engine: FakeEngine) -> None:
    assert engine.script.first_gate is not None
    engine.script.first_gate.set()


async def test_comments_come_while_it_waits_and_the_road_is_told_at_the_end(tmp_path: Path) -> None:
    engine = blocked()
    async with running_gateway(
        tmp_path, engines={"local-8b": engine}, tiers=ONE_SLOT, server=SERVER
    ) as gateway:
        holding = await hold_the_slot(gateway, engine)
        lines: list[str] = []
        body = {"model": "local-8b", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        async with gateway.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["x-weighbridge-request-id"] and answer.headers["x-weighbridge-policy"]
            for name in ("road", "attempts", "queue-ms"):
                assert f"x-weighbridge-{name}" not in answer.headers, "not known yet"
            async for line in answer.aiter_lines():
                lines.append(line)
                if lines.count(": keep-alive") == 3:
                    unblock(engine)
        text = "\n".join(lines)
        *alive, last = comments(text)
        assert set(alive) == {"keep-alive"} and len(alive) >= 3
        name, summary = last.split(" ", 1)
        told = json.loads(summary)
        assert name == "weighbridge" and told["road"] == "local-8b" and told["attempts"] == 1
        assert told["queue_ms"] >= 2 * EVERY_S * 1000
        assert content(text) and events(text)[-1] == "[DONE]"
        assert (await holding).status_code == 200
        assert [row["outcome"] for row in gateway.rows()] == ["ok", "ok"]


async def test_silence_in_the_middle_of_an_answer_is_never_longer_than_the_setting(tmp_path: Path) -> None:
    engine = FakeEngine(script=Script(token_gate=asyncio.Semaphore(0)))
    every_s = 0.4
    async with running_gateway(
        tmp_path, engines={"local-8b": engine}, server={**SERVER, "keep_alive_comment_s": every_s}
    ) as gateway:
        gate = engine.script.token_gate
        assert gate is not None
        body = {
            "model": "local-8b",
            "stream": True,
            "messages": [{"role": "user", "content": "x"}],
            "max_tokens": 3,
        }
        clock = asyncio.get_running_loop().time
        async with gateway.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            # The next token comes shortly after the moment at which a comment would have been due.
            await asyncio.sleep(every_s * 0.6)
            gate.release()
            last, gaps = clock(), []
            async for line in lines:
                if line.startswith(("data:", ":")):
                    gaps.append(clock() - last)
                    last = clock()
                if line == ": keep-alive":
                    gate.release(), gate.release()
        assert max(gaps) < every_s * 1.5


async def test_a_refusal_after_the_first_comment_is_an_error_event(tmp_path: Path) -> None:
    engine = blocked()
    policy = policy_file(tmp_path, queue_lock_timeout_ms=350)
    async with running_gateway(
        tmp_path, engines={"local-8b": engine}, tiers=ONE_SLOT, server=SERVER, policy=policy
    ) as gateway:
        holding = await hold_the_slot(gateway, engine)
        answer = await gateway.chat(model="local-8b", stream=True)
        assert answer.status_code == 200
        (error,) = events(answer.text)
        assert error["error"]["code"] == "queue_lock_timeout" and "[DONE]" not in answer.text
        assert comments(answer.text)[-1].startswith("weighbridge {")
        refused = next(row for row in gateway.rows() if row["outcome"] is not None)
        assert (refused["outcome"], refused["status"]) == ("refused", 200)
        assert refused["ttft_ms"] is None, "a comment is not a token"
        # A document can wait for its status, so it still gets it.
        document = await gateway.chat(model="local-8b")
        assert document.status_code == 429 and document.headers["retry-after"] == "1"
        unblock(engine)
        await holding


async def test_a_refusal_and_the_first_comment_at_one_moment_are_one_answer(tmp_path: Path) -> None:
    """Whichever comes first: a status and a document, or a head and an error event; never half of each."""
    engine = blocked()
    async with running_gateway(
        tmp_path,
        engines={"local-8b": engine},
        tiers=ONE_SLOT,
        server=SERVER,
        policy=policy_file(tmp_path, queue_lock_timeout_ms=round(EVERY_S * 1000)),
    ) as gateway:
        holding = await hold_the_slot(gateway, engine)
        for _ in range(40):
            answer = await gateway.chat(model="local-8b", stream=True)
            if answer.status_code == 200:
                assert events(answer.text)[-1]["error"]["code"] == "queue_lock_timeout"
            else:
                assert answer.status_code == 429 and answer.json()["error"]["code"] == "queue_lock_timeout"
        unblock(engine)
        await holding


async def test_a_comment_does_not_keep_it_from_overflowing(tmp_path: Path) -> None:
    engine = blocked()
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines={"local-8b": engine},
            tiers=ONE_SLOT,
            server=SERVER,
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=350),
        ) as gateway,
    ):
        holding = await hold_the_slot(gateway, engine)
        text = "다음을 [배송, 환불] 중 하나로 분류해줘: kim@corp-example.co.kr 에게 환불"
        answer = await gateway.chat(stream=True, messages=[{"role": "user", "content": text}])
        assert "keep-alive" in comments(answer.text)
        assert json.loads(comments(answer.text)[-1].split(" ", 1)[1])["road"] == "commercial"
        assert "kim@corp-example.co.kr" in content(answer.text)
        assert b"kim@corp-example" not in recorder.everything
        unblock(engine)
        await holding


async def test_the_openai_client_does_not_notice_the_comments(tmp_path: Path) -> None:
    engine = blocked()
    async with running_gateway(
        tmp_path, engines={"local-8b": engine}, tiers=ONE_SLOT, server=SERVER
    ) as gateway:
        holding = await hold_the_slot(gateway, engine)
        client = AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)
        stream = await client.chat.completions.create(
            model="local-8b", messages=[{"role": "user", "content": "hello"}], stream=True
        )
        unblock(engine)
        said = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
        assert said
        await client.close()
        await holding


@pytest.mark.parametrize("moment", ["before", "after"], ids=lambda m: f"{m} the first comment")
async def test_a_caller_who_leaves_while_waiting_leaves_the_queue(tmp_path: Path, moment: str) -> None:
    engine = blocked()
    async with running_gateway(
        tmp_path, engines={"local-8b": engine}, tiers=ONE_SLOT, server=SERVER
    ) as gateway:
        holding = await hold_the_slot(gateway, engine)
        asking = asyncio.create_task(gateway.chat(model="local-8b", stream=True))
        await until(lambda: gateway.parts.pool.status()[0]["waiting"] == 1)
        if moment == "after":
            await asyncio.sleep(2 * EVERY_S)
        asking.cancel()
        await until(lambda: gateway.parts.pool.status()[0]["waiting"] == 0)
        unblock(engine)
        await holding
        await until(lambda: all(row["outcome"] for row in gateway.rows()))
        assert sorted(row["outcome"] for row in gateway.rows()) == ["client_aborted", "ok"]


async def test_an_answer_that_flows_gets_no_comments(tmp_path: Path) -> None:
    engine = FakeEngine(script=Script(token_s=0.01))
    async with running_gateway(tmp_path, engines={"local-8b": engine}, server=SERVER) as gateway:
        answer = await gateway.chat(model="local-8b", stream=True, max_tokens=60)
        assert events(answer.text)[-1] == "[DONE]" and comments(answer.text) == []
        assert answer.headers["x-weighbridge-road"] == "local-8b"
