"""A gateway with a tier that it shares by Redis: wired where it should be, degraded in words, serving all along."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.counting_server import CountingServer, counting_server
from tests.support.fake_engine import Script
from tests.support.model_server import MODEL
from tests.support.redis_server import RedisServer, redis_server
from tests.support.running import Running, policy_file, running_gateway
from tests.support.waiting import until
from weighbridge.config.clock import SystemClock
from weighbridge.gateway.health import readiness
from weighbridge.pool.http_engine import HttpEngine
from weighbridge.pool.queue_lock import QueueLock
from weighbridge.pool.shared_lock import SharedQueueLock

CLOCK = SystemClock()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with redis_server(folder) as made:
        yield made


def http_engine(road: str, settings: Any, worker: str) -> HttpEngine:
    return HttpEngine(settings, road, settings.endpoints[0], CLOCK)


def gateway(folder: Path, server: CountingServer, url: str | None, name: str = "one", **redis: Any) -> Any:
    home = folder / name
    home.mkdir()
    tier = {"endpoints": [server.url], "endpoint_model": MODEL, "max_num_seqs": 2, "slots": 2}
    return running_gateway(
        home,
        policy=policy_file(home, egress="never", queue_lock_timeout_ms=10_000),
        tiers={"local-8b": tier},
        factory=http_engine,
        redis={"url": url, "operation_timeout_ms": 150, "lease_s": 2, **redis},
    )


def shared(one: Running) -> dict[str, Any]:
    (tier,) = one.parts.pool.status()
    return dict(tier["shared"])


async def ask(one: Running) -> int:
    answer = await one.chat(model="local-8b", max_tokens=4)
    return int(answer.status_code)


async def ready(one: Running) -> dict[str, Any]:
    answer = await one.client.get("/health/ready")
    assert answer.status_code == 200
    return dict(answer.json())


async def test_two_gateways_share_a_tier(tmp_path: Path, redis: RedisServer) -> None:
    async with (
        counting_server(Script(token_s=0.01)) as server,
        gateway(tmp_path, server, redis.url) as one,
        gateway(tmp_path, server, redis.url, "two") as two,
    ):
        await until(lambda: shared(one)["gateways"] == shared(two)["gateways"] == 2)
        assert set(await asyncio.gather(*(ask((one, two)[n % 2]) for n in range(40)))) == {200}
        assert server.peak == 2
        await until(lambda: redis.leases() == 0)
        assert (await ready(one))["parts"]["redis"]["ready"] is True
        assert (await ready(one))["status"] == "ready"
        assert (one.slots_in_use(), two.slots_in_use()) == (0, 0)
        assert len(one.rows()) == len(two.rows()) == 20


async def test_without_redis_it_serves_is_degraded_and_comes_back(tmp_path: Path, redis: RedisServer) -> None:
    async with (
        counting_server(Script(token_s=0.001)) as server,
        gateway(tmp_path, server, redis.url) as one,
    ):
        assert await ask(one) == 200
        redis.stop()
        assert await asyncio.gather(*(ask(one) for _ in range(10))) == [200] * 10
        await until(lambda: not one.parts.redis.available)  # type: ignore[union-attr]
        report = await ready(one)
        assert report["status"] == "degraded"
        assert report["parts"]["redis"]["ready"] is False
        assert report["parts"]["redis"]["reason"] in ("closed", "connect")
        assert shared(one)["on_own_share"] is True
        page = (await one.client.get("/metrics")).text
        assert "weighbridge_redis_away 1.0" in page
        assert 'weighbridge_slots_on_own_share{tier="local-8b"} 1.0' in page
        await asyncio.to_thread(redis.start)
        await until(lambda: not shared(one)["on_own_share"])
        assert await ask(one) == 200
        assert (await ready(one))["status"] == "ready"
        assert server.peak <= 2


async def test_away_from_the_start_it_comes_up_all_the_same(tmp_path: Path, redis: RedisServer) -> None:
    redis.stop()
    async with (
        counting_server(Script(token_s=0.001)) as server,
        gateway(tmp_path, server, redis.url) as one,
    ):
        assert await ask(one) == 200
        assert (await ready(one))["status"] == "degraded"


async def test_a_gateway_that_stops_says_good_bye(tmp_path: Path, redis: RedisServer) -> None:
    async with counting_server(Script(token_s=0.001)) as server:
        async with gateway(tmp_path, server, redis.url, lease_s=60) as one:
            assert await ask(one) == 200
        with redis.client() as client:
            assert [key for key in client.scan_iter() if not key.endswith(":meta")] == []


async def test_only_a_tier_on_other_machines_is_shared(tmp_path: Path, redis: RedisServer) -> None:
    async with running_gateway(tmp_path, redis={"url": redis.url}) as one:
        for road in ("local-8b", "local-70b"):
            tier = one.parts.pool.tier(road)
            assert tier is not None and type(tier.lock) is QueueLock
        await until(lambda: one.parts.redis.available is True)  # type: ignore[union-attr]
        assert readiness(one.parts)[1]["parts"]["redis"]["ready"]
        assert all("shared" not in row for row in one.parts.pool.status())


async def test_without_redis_configured_nothing_changes(tmp_path: Path) -> None:
    async with (
        counting_server(Script(token_s=0.001)) as server,
        gateway(tmp_path, server, None) as one,
    ):
        tier = one.parts.pool.tier("local-8b")
        assert tier is not None and type(tier.lock) is QueueLock
        assert one.parts.redis is None and "redis" not in (await ready(one))["parts"]


async def test_tiers_of_other_deployments_are_others(tmp_path: Path, redis: RedisServer) -> None:
    async with (
        counting_server(Script(token_s=0.01)) as server,
        gateway(tmp_path, server, redis.url, key_prefix="a") as one,
        gateway(tmp_path, server, redis.url, "two", key_prefix="b") as two,
    ):
        await asyncio.gather(*(ask((one, two)[n % 2]) for n in range(8)))
        assert isinstance(one.parts.pool.tier("local-8b").lock, SharedQueueLock)  # type: ignore[union-attr]
        assert (shared(one)["gateways"], shared(two)["gateways"]) == (1, 1)
        with redis.client() as client:
            assert {key.split(":")[0] for key in client.scan_iter()} == {"{a", "{b"}
