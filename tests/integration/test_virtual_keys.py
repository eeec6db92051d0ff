"""Virtual keys in front of a whole gateway: roads, parallel limit, rotation and revocation while requests are under
way, a kill and a restart."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.endpoints import HARD
from tests.support.fake_engine import FakeEngine, Script
from tests.support.process import GatewayProcess
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from tests.support.waiting import until

ADMIN = "wb-admin-9kX2"
AUTH = {"admin_keys": [{"id": "root", "sha256": hashlib.sha256(ADMIN.encode()).hexdigest()}]}
KEYS = "/admin/v1/keys"
CHAT = "/v1/chat/completions"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def admin(client: httpx.AsyncClient, method: str, path: str, **body: Any) -> dict[str, Any]:
    answer = await client.request(method, path, headers=bearer(ADMIN), json=body or None)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def chat(here: Running, key: str, model: str = "auto", **body: Any) -> httpx.Response:
    body.setdefault("messages", [{"role": "user", "content": "Hello there"}])
    return await here.client.post(CHAT, json={"model": model, **body}, headers=bearer(key))


async def test_a_key_uses_the_roads_it_is_allowed_and_no_other(tmp_path: Path) -> None:
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path), auth=AUTH
        ) as here,
    ):
        local = await admin(here.client, "POST", KEYS, name="local", roads=["local-8b", "local-70b"])
        free = await admin(here.client, "POST", KEYS, name="free", tenant="acme")
        kept_in, left = [await chat(here, one["key"], messages=HARD) for one in (local, free)]
        assert left.headers["x-weighbridge-road"] == "commercial"
        assert kept_in.headers["x-weighbridge-road"] == "local-70b"
        assert kept_in.headers["x-weighbridge-reason"] == "commercial not allowed for this key: local-70b"
        refused = await chat(here, local["key"], "commercial")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "egress_refused")
        assert "not allowed for this key" in refused.json()["error"]["message"]
        assert len(recorder.requests) == 1
        # Live at once, for the next request.
        await admin(here.client, "PATCH", f"{KEYS}/{local['id']}", roads=["local-8b"])
        assert (await chat(here, local["key"], messages=HARD)).headers["x-weighbridge-road"] == "local-8b"
        named = await chat(here, local["key"], "local-70b")
        assert (named.status_code, named.json()["error"]["code"]) == (403, "road_forbidden")
        await admin(here.client, "PATCH", f"{KEYS}/{local['id']}", roads=["local-70b"])
        assert (await chat(here, local["key"], "local-70b")).status_code == 200
        # What was decided for the key as it was is not kept for the key as it is.
        await admin(here.client, "PATCH", f"{KEYS}/{local['id']}", roads=["local-8b"])
        assert (await chat(here, local["key"], "local-70b")).status_code == 403
        rows = here.rows()
        assert {(row["key_id"], row["tenant"]) for row in rows} == {
            (local["id"], "default"),
            (free["id"], "acme"),
        }
        assert [row["outcome"] for row in rows if row["status"] == 403] == ["refused"] * 3
        assert "commercial not allowed for this key: local-70b" in rows[0]["reasons"]


async def test_a_key_whose_roads_are_not_to_be_had_is_told_so(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, auth=AUTH) as here:
        out = await admin(here.client, "POST", KEYS, name="out", roads=["commercial"])
        answer = await chat(here, out["key"])
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "no_road_allowed")
        assert "its API key may use commercial alone" in answer.json()["error"]["message"]


async def test_a_full_tier_sends_no_request_where_its_key_may_not_go(tmp_path: Path) -> None:
    """Overflow asks the key as well."""
    gate = asyncio.Event()
    engine = FakeEngine("local-8b", script=Script(first_gate=gate))
    policy = policy_file(tmp_path, queue_lock_timeout_ms=100, overflow_order=["commercial"])
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines={"local-8b": engine},
            upstream=recorder.base_url,
            policy=policy,
            tiers={"local-8b": {"max_num_seqs": 1}},
            auth=AUTH,
        ) as here,
    ):
        local = await admin(here.client, "POST", KEYS, name="local", roads=["local-8b"])
        free = await admin(here.client, "POST", KEYS, name="free")
        first = asyncio.create_task(chat(here, free["key"]))
        await until(lambda: len(engine.calls) == 1)
        busy, left = await asyncio.gather(chat(here, local["key"]), chat(here, free["key"]))
        assert (busy.status_code, left.status_code) == (429, 200)
        assert left.headers["x-weighbridge-road"] == "commercial"
        assert len(recorder.requests) == 1
        gate.set()
        assert (await first).status_code == 200


async def test_a_key_has_as_many_requests_under_way_as_it_may_and_no_more(tmp_path: Path) -> None:
    gate = asyncio.Event()
    engine = FakeEngine("local-8b", script=Script(first_gate=gate))
    async with running_gateway(tmp_path, engines={"local-8b": engine}, auth=AUTH) as here:
        two = await admin(here.client, "POST", KEYS, name="two", parallel=2)
        other = await admin(here.client, "POST", KEYS, name="other")
        under_way = [asyncio.create_task(chat(here, two["key"])) for _ in range(2)]
        await until(lambda: len(engine.calls) == 2)
        refused = await chat(here, two["key"])
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_requests")
        under_way.append(asyncio.create_task(chat(here, other["key"])))
        await until(lambda: len(engine.calls) == 3)
        # A new key of the same id has no places of its own.
        fresh = await admin(here.client, "POST", f"{KEYS}/{two['id']}/rotate", overlap_s=60)
        assert (await chat(here, fresh["key"])).status_code == 429
        await admin(here.client, "PATCH", f"{KEYS}/{two['id']}", parallel=3)
        under_way.append(asyncio.create_task(chat(here, two["key"])))
        await until(lambda: len(engine.calls) == 4)
        gate.set()
        assert [answer.status_code for answer in await asyncio.gather(*under_way)] == [200] * 4
        assert (await chat(here, fresh["key"])).status_code == 200


async def test_what_is_under_way_finishes_when_its_key_is_revoked(tmp_path: Path) -> None:
    gate = asyncio.Semaphore(0)
    engine = FakeEngine("local-8b", script=Script(token_gate=gate))
    async with running_gateway(tmp_path, engines={"local-8b": engine}, auth=AUTH) as here:
        one = await admin(here.client, "POST", KEYS, name="one")
        body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": "Hello there"}]}
        async with here.client.stream("POST", CHAT, json=body, headers=bearer(one["key"])) as answer:
            lines = answer.aiter_lines()
            assert "data: {" in await anext(lines)
            await admin(here.client, "POST", f"{KEYS}/{one['id']}/revoke", reason="leak")
            assert (await chat(here, one["key"])).status_code == 401
            for _ in range(100):
                gate.release()
            rest = [line async for line in lines]
        assert "data: [DONE]" in rest
        (row,) = here.rows()
        assert (row["outcome"], row["key_id"]) == ("ok", one["id"])


async def test_no_request_reads_the_state_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gateway(tmp_path, auth=AUTH) as here:
        one = await admin(here.client, "POST", KEYS, name="one")

        def asked(*_: object) -> Any:
            raise AssertionError("the state file was read")

        monkeypatch.setattr(type(here.parts.state), "rows", asked)
        monkeypatch.setattr(type(here.parts.state), "writing", asked)
        assert (await chat(here, one["key"])).status_code == 200
        assert (await chat(here, "wb-none")).status_code == 401


@pytest.mark.slow
def test_a_killed_gateway_knows_its_keys_again(tmp_path: Path) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(
        json.dumps({"auth": AUTH, "state_dir": str(tmp_path / "state"), "server": {"port": 0}})
    )
    keys: dict[str, int] = {ADMIN: 401, "wb-none": 401}
    for turn in range(2):
        process = GatewayProcess(["-m", "tests.support.fake_gateway", str(settings)], log=tmp_path / "log")
        process.start()
        with httpx.Client(base_url=process.url, timeout=30) as client:

            def make(path: str, url: str = process.url, **body: Any) -> dict[str, Any]:
                told: dict[str, Any] = httpx.post(url + path, json=body, headers=bearer(ADMIN)).json()
                return told

            if turn == 0:
                keys[make(KEYS, name="good")["key"]] = 200
                gone = make(KEYS, name="gone")
                keys[gone["key"]] = 401
                make(f"{KEYS}/{gone['id']}/revoke")
            for key, status in keys.items():
                assert client.get("/v1/models", headers=bearer(key)).status_code == status, turn
            assert client.get("/v1/models").status_code == 401
        process.kill9()
