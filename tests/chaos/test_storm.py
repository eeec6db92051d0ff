"""Thousands of requests, many dropped at a random moment: every slot comes back, every request has its row."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx
import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import threaded
from tests.support.running import Running, policy_file, running_gateway

AT_ONCE = 40


async def one(gateway: Running, rng: random.Random) -> str:
    """`whole`, `dropped` or the status of a refusal."""
    body = {
        "model": rng.choice(["auto", "local-8b", "local-70b", "commercial"]),
        "messages": [
            {
                "role": "user",
                "content": f"안녕하세요 {rng.randrange(10**6)}, mail a{rng.randrange(99)}@corp.local",
            }
        ],
        "stream": rng.random() < 0.6,
        "max_tokens": rng.randrange(1, 30),
    }
    patience = rng.choice([None, None, rng.uniform(0, 0.2)])
    try:
        async with asyncio.timeout(patience):
            answer = await gateway.client.post("/v1/chat/completions", json=body)
    except (TimeoutError, httpx.HTTPError):
        return "dropped"
    if answer.status_code == 200 and body["stream"]:
        assert answer.text.endswith("data: [DONE]\n\n"), "a stream that ended was not whole"
    return "whole" if answer.status_code == 200 else str(answer.status_code)


@pytest.mark.parametrize("requests", [400, pytest.param(5000, marks=pytest.mark.soak)])
async def test_a_storm_leaves_nothing_behind(tmp_path: Path, requests: int) -> None:
    rng = random.Random(4)
    engines = {road: FakeEngine(road, script=Script(token_s=0.001)) for road in ("local-8b", "local-70b")}
    with threaded() as recorder:
        async with running_gateway(
            tmp_path,
            engines=engines,
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=100),
            tiers={"local-8b": {"max_num_seqs": 3}, "local-70b": {"max_num_seqs": 2}},
        ) as gateway:
            ends: list[str] = []

            async def caller(seed: int) -> None:
                own = random.Random(seed)
                for _ in range(requests // AT_ONCE):
                    ends.append(await one(gateway, own))

            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(caller(rng.randrange(10**9)))
            async with asyncio.timeout(10):
                while gateway.parts.dispatch.under_way or gateway.slots_in_use():
                    await asyncio.sleep(0.01)
            assert all(tier["waiting"] == 0 for tier in gateway.parts.pool.status())
            assert not any(engine.load().unfinished for engine in engines.values())
        rows = gateway.rows()
    assert ends.count("whole") > len(ends) / 4 and ends.count("dropped") > 10
    assert set(ends) <= {"whole", "dropped", "429", "503"}
    # A caller who left before the request was admitted leaves no row; nobody leaves two.
    assert len(ends) - ends.count("dropped") <= len(rows) <= len(ends)
    assert all(row["outcome"] in ("ok", "client_aborted", "refused", "error") for row in rows)
    assert sum(row["outcome"] == "ok" for row in rows) >= ends.count("whole")
