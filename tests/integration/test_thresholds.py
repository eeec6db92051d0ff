"""Thresholds by the admin API: the very next request moves, a bad change moves nothing, a restart keeps both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.running import Running, policy_file, running_gateway

GREETING = [{"role": "user", "content": "안녕하세요, 반가워요!"}]


async def road(gateway: Running) -> tuple[str, str]:
    answer = await gateway.chat(messages=GREETING)
    assert answer.status_code == 200
    return answer.headers["x-weighbridge-road"], answer.headers["x-weighbridge-policy"]


async def patch(gateway: Running, **body: Any) -> httpx.Response:
    return await gateway.client.patch("/admin/v1/thresholds", json=body)


async def test_the_next_request_moves_and_a_restart_keeps_it(tmp_path: Path) -> None:
    policy = policy_file(tmp_path)
    async with running_gateway(tmp_path, policy=policy) as gateway:
        before, first_version = await road(gateway)
        assert before == "local-8b"
        changed = await patch(gateway, bounds={"local_8b": 0.05}, reason="the 8B is being retrained")
        assert changed.status_code == 200
        after, version = await road(gateway)
        assert after == "local-70b" and version != first_version
        # The record says under which version each was decided.
        assert [row["policy_version"] for row in gateway.rows()] == [first_version, version]
    async with running_gateway(tmp_path, policy=policy) as gateway:
        assert await road(gateway) == ("local-70b", version)
        told = (await gateway.client.get("/admin/v1/thresholds")).json()
        assert told["bounds"] == {"local_8b": 0.05, "local_70b": 0.55}
        assert told["base"]["bounds"] == {"local_8b": 0.45, "local_70b": 0.55}
        entry = told["overlay"]
        assert entry["why"] == "the 8B is being retrained" and entry["who"] and entry["at_ns"]
        assert (await patch(gateway, bounds={"local_8b": None}, reason="back")).status_code == 200
        assert (await road(gateway))[0] == "local-8b"


@pytest.mark.parametrize(
    "bad",
    [
        {"bounds": {"local_8b": 0.9}},
        {"bounds": {"local_8b": "0.3"}},
        {"bounds": {"local_9b": 0.3}},
        {"bounds": {"local_8b": True}},
        {"queue_lock_timeout_ms": -1},
        {"bounds": 3},
        {"surprise": 1},
        {},
    ],
)
async def test_an_invalid_change_changes_nothing_and_a_restart_neither(
    tmp_path: Path, bad: dict[str, Any]
) -> None:
    policy = policy_file(tmp_path)
    async with running_gateway(tmp_path, policy=policy) as gateway:
        before = await road(gateway)
        refused = await patch(gateway, **bad, reason="try")
        assert refused.status_code == 400
        assert refused.json()["error"]["type"] == "invalid_request_error"
        assert await road(gateway) == before
    async with running_gateway(tmp_path, policy=policy) as gateway:
        assert await road(gateway) == before
        assert (await gateway.client.get("/admin/v1/thresholds")).json()["overlay"] is None


async def test_a_request_keeps_the_version_it_was_admitted_under(tmp_path: Path) -> None:
    import asyncio

    from tests.support.fake_engine import FakeEngine, Script

    gate = asyncio.Event()
    engines = {
        "local-8b": FakeEngine("local-8b", script=Script(first_gate=gate)),
        "local-70b": FakeEngine("local-70b"),
    }
    async with running_gateway(tmp_path, engines=engines, policy=policy_file(tmp_path)) as gateway:
        early = asyncio.create_task(road(gateway))
        while not engines["local-8b"].load().unfinished:
            await asyncio.sleep(0.01)
        await patch(gateway, bounds={"local_8b": 0.05}, reason="now")
        late = await road(gateway)
        gate.set()
        assert (await early)[0] == "local-8b" and late[0] == "local-70b"
        assert (await early)[1] != late[1]
