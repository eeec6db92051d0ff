"""A KV cache far too small for the load, on real vLLM: nothing dies of it, with the gate or without."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.real_engines import real_gateway
from tests.support.running import Running, policy_file
from weighbridge.pool.embedded_model import KV_BYTES_PER_TOKEN
from weighbridge.pool.expectation import MIN_SAMPLES

pytestmark = pytest.mark.engine

BLOCK, BLOCKS = 32, 66
REQUESTS, ANSWER = 50, 96


def tiers() -> dict[str, dict[str, Any]]:
    """The same engine twice, once behind the gate and once not."""
    own = {
        "max_num_seqs": REQUESTS,
        "max_model_len": 2048,
        "block_size": BLOCK,
        "kv_cache_memory_bytes": BLOCKS * BLOCK * KV_BYTES_PER_TOKEN,
        "enforce_eager": True,
        "enable_prefix_caching": False,
    }
    return {"local-8b": {**own, "kv_gate": False}, "local-70b": {**own, "kv_gate": True}}


async def crowd(gateway: Running, road: str) -> list[Any]:
    async def one(n: int) -> Any:
        words = " ".join(f"word{n}x{k}" for k in range(10))
        return await gateway.chat(
            model=road,
            messages=[{"role": "user", "content": f"Go on: {words}"}],
            max_tokens=ANSWER,
            ignore_eos=True,
        )

    return await asyncio.gather(*(one(n) for n in range(REQUESTS)))


async def test_fifty_long_requests_on_sixty_six_blocks(tmp_path: Path) -> None:
    policy = policy_file(tmp_path, queue_lock_timeout_ms=600_000)
    async with real_gateway(tmp_path, tiers(), policy=policy) as (gateway, fleet):
        preempted: dict[str, float] = {}
        for road in ("local-8b", "local-70b"):
            tier = gateway.parts.pool.tier(road)
            assert tier is not None
            assert tier.workers[0].engine.kv_tokens == BLOCKS * BLOCK
            # Answers as they will come, so that the gate knows what to expect.
            for _ in range(MIN_SAMPLES):
                tier.expectation.learn("chat", 300, 100, ANSWER, 1)
            answers = await crowd(gateway, road)
            assert [answer.status_code for answer in answers] == [200] * REQUESTS
            for answer in answers:
                assert answer.json()["usage"]["completion_tokens"] == ANSWER
            preempted[road] = fleet.metrics.engine_preemptions_total.labels(road, "0").value
            assert all(worker.restarts == 0 for worker in tier.workers), "the engine died"
            assert (tier.lock.in_use, tier.lock.reserved_tokens) == (0, 0)
        print(
            f"preemptions without the gate {preempted['local-8b']:.0f}, with it {preempted['local-70b']:.0f}"
        )
        assert preempted["local-8b"] > 0, "preemptions are counted"
        assert preempted["local-70b"] < preempted["local-8b"]
        rows = gateway.rows()
        assert [row["outcome"] for row in rows] == ["ok"] * (2 * REQUESTS)
