"""Thousands of requests on workers that are killed, hang and fail: no slot lost, nobody served twice, one row each."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import threaded
from tests.support.running import Running, policy_file, running_gateway
from weighbridge.config.errors import InvalidRequest

AT_ONCE = 50
LOCK_MS = 400
SEED = 11
ROADS = ("local-8b", "local-70b")


def script() -> Script:
    return Script(first_token_s=0.004, token_s=0.001)


async def one(gateway: Running, rng: random.Random) -> str:
    """`whole`, `dropped`, `broken` (an error event) or the status of a refusal."""
    stream = rng.random() < 0.6
    body: dict[str, Any] = {
        "model": rng.choice(["auto", "auto", "local-8b", "local-70b"]),
        "messages": [
            {"role": "user", "content": f"분류해줘 {rng.randrange(10**6)} a{rng.randrange(99)}@corp.local"}
        ],
        "stream": stream,
        "max_tokens": rng.randrange(1, 40),
    }
    if rng.random() < 0.03:
        body["temperature"] = 9
    if rng.random() < 0.1:
        body["n"] = 2
    headers = {}
    if rng.random() < 0.2:
        headers["x-weighbridge-max-queue-ms"] = str(rng.randrange(0, 300))
    if rng.random() < 0.2:
        headers["x-weighbridge-priority"] = "batch"
    patience = rng.choice([None, None, None, rng.uniform(0, 0.3)])
    try:
        async with asyncio.timeout(patience):
            if stream and rng.random() < 0.15:
                return await cut_short(gateway, body, headers, rng.randrange(1, 6))
            answer = await gateway.client.post("/v1/chat/completions", json=body, headers=headers)
    except (TimeoutError, httpx.HTTPError):
        return "dropped"
    if answer.status_code != 200:
        return str(answer.status_code)
    if not stream:
        return "whole"
    last = [line for line in answer.text.splitlines() if line.startswith("data: ")][-1]
    if last == "data: [DONE]":
        return "whole"
    assert "error" in json.loads(last[6:]), "a stream ended with neither an end nor an error"
    return "broken"


async def cut_short(gateway: Running, body: dict[str, Any], headers: dict[str, str], lines: int) -> str:
    """Disconnect in the middle of a stream."""
    async with gateway.client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as answer:
        async for _ in answer.aiter_lines():
            lines -= 1
            if lines <= 0:
                return "dropped"
    return str(answer.status_code) if answer.status_code != 200 else "dropped"


async def trouble(gateway: Running, rng: random.Random, counts: Counter[str]) -> None:
    """Kill, hang and break workers until cancelled; never more than one at a time in a tier."""
    while True:
        await asyncio.sleep(rng.uniform(0.05, 0.25))
        road = rng.choice(ROADS)
        tier = gateway.parts.pool.tier(road)
        assert tier is not None
        serving = [worker for worker in tier.workers if worker.serving]
        if len(serving) < 2:
            continue
        engine = rng.choice(serving).engine
        assert isinstance(engine, FakeEngine)
        what = rng.choice(["kill", "kill", "hang", "fail", "overload"])
        counts[what] += 1
        if what == "kill":
            engine.kill()
        elif what == "hang":
            engine.script.hang = True
        elif what == "fail":
            engine.script.fail_with = InvalidRequest("not today")
            await asyncio.sleep(0.05)
            engine.script.fail_with = None
        else:
            engine.script.overloaded = True
            await asyncio.sleep(0.05)
            engine.script.overloaded = False


@pytest.mark.parametrize("requests", [2000, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_a_storm_over_dying_workers(tmp_path: Path, requests: int) -> None:
    rng = random.Random(SEED)
    with threaded() as recorder:
        async with running_gateway(
            tmp_path,
            engines={road: [FakeEngine(road, script=script()) for _ in range(2)] for road in ROADS},
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=LOCK_MS),
            tiers={road: {"max_num_seqs": 3, "replicas": 2, "max_waiting": 30} for road in ROADS},
            pool={
                "probe_interval_s": 0.1,
                "probe_timeout_s": 0.2,
                "restart_backoff_s": 0.05,
                "restart_backoff_max_s": 0.1,
                "max_restarts": 10_000,
                "continue_wait_s": 5,
            },
        ) as gateway:
            gateway.fleet.script_for = lambda road, n: script()
            ends: Counter[str] = Counter()
            troubles: Counter[str] = Counter()

            async def caller(seed: int) -> None:
                own = random.Random(seed)
                for _ in range(requests // AT_ONCE):
                    ends[await one(gateway, own)] += 1

            making_trouble = asyncio.create_task(trouble(gateway, rng, troubles))
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(caller(rng.randrange(10**9)))
            making_trouble.cancel()
            await asyncio.gather(making_trouble, return_exceptions=True)
            async with asyncio.timeout(15):
                while gateway.parts.dispatch.under_way or gateway.slots_in_use():
                    await asyncio.sleep(0.01)
            for tier in gateway.parts.pool.status():
                assert (tier["waiting"], tier["slots_in_use"], tier["kv_reserved_tokens"]) == (0, 0, 0)
            made = [engine for road in ROADS for engine in gateway.fleet.made[road]]
            assert not any(engine.load().unfinished for engine in made)
            rows = gateway.rows()
            attempts = {row["request_id"]: gateway.attempts(row["request_id"]) for row in rows}
    print(f"ends {dict(ends)}, troubles {dict(troubles)}, engines built {len(made)}")
    assert ends["whole"] > requests / 3 and ends["dropped"] > requests / 50
    assert set(ends) <= {"whole", "dropped", "broken", "400", "429", "503"}
    assert troubles["kill"] >= 3 and len(made) > 4, "workers were killed and built anew"

    # One record each: whoever left before admission has none, nobody has two, none is open.
    assert requests - ends["dropped"] <= len(rows) <= requests
    assert len({row["request_id"] for row in rows}) == len(rows)
    assert all(row["outcome"] in ("ok", "client_aborted", "refused", "error", "truncated") for row in rows)
    assert sum(row["outcome"] == "ok" for row in rows) >= ends["whole"]
    for row in rows:
        tried = attempts[row["request_id"]]
        assert [attempt["n"] for attempt in tried] == list(range(1, row["attempts"] + 1))
        assert sum(attempt["outcome"] == "ok" for attempt in tried) <= 1, "served twice"
        assert all(a["ended_ns"] <= b["started_ns"] for a, b in pairwise(tried)), (
            "two backends worked on one request at a time"
        )

    # What the lock made anybody wait, by its own clock; a stream that lost its worker waits on purpose.
    over = sorted(
        row["queue_ms"] - LOCK_MS
        for row in rows
        if not any(attempt["outcome"] == "engine_unavailable" for attempt in attempts[row["request_id"]])
    )
    print(f"wait beyond the deadline: p99 {over[len(over) * 99 // 100]:.1f} ms, most {over[-1]:.1f} ms")
    assert over[len(over) * 99 // 100] <= 50
    assert over[-1] <= 500
