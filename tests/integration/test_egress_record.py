"""The record of what left, in a running gateway: chained, proved beside it, and shown to an admin page by page."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from weighbridge.gateway import admin_egress, cli
from weighbridge.masking.secret import SECRET_FILE

ADMIN, KEY = "wb-admin", "wb-key"
PLANTED = "kim.minsu77@corp-example.co.kr"
SENT = 7


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


AUTH = {
    "keys": [{"id": "one", "sha256": digest(KEY)}],
    "admin_keys": [{"id": "root", "sha256": digest(ADMIN)}],
}


async def page(gateway: Running, **params: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {ADMIN}"}
    return await gateway.client.get("/admin/v1/egress", params=params, headers=headers)


async def send(gateway: Running, count: int) -> None:
    for _ in range(count):
        answer = await gateway.client.post(
            "/v1/chat/completions",
            json={
                "model": "commercial",
                "messages": [{"role": "user", "content": f"Write to {PLANTED}, please."}],
            },
            headers={"authorization": f"Bearer {KEY}"},
        )
        assert answer.status_code == 200, answer.text


async def verify(folder: Path, *argv: str) -> int:
    return await asyncio.to_thread(
        cli.main, ["egress", "verify", "--state-dir", str(folder / "state"), *argv]
    )


async def test_the_record_over_a_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = policy_file(tmp_path)
    async with recording() as recorder:
        upstream = recorder.base_url
        async with running_gateway(tmp_path, policy=policy, upstream=upstream, auth=AUTH) as gateway:
            empty = (await page(gateway)).json()
            assert empty == {"rows": [], "head": {"seq": 0, "chain": "0" * 64}, "next_after": None}
            await send(gateway, SENT)
            assert await verify(tmp_path) == 0  # beside the running gateway

            answer = await page(gateway)
            whole = answer.json()
            assert [row["seq"] for row in whole["rows"]] == list(range(1, SENT + 1))
            assert whole["head"] == {"seq": SENT, "chain": whole["rows"][-1]["chain"]}
            assert whole["next_after"] is None
            row = whole["rows"][0]
            assert row["entities"] == {"EMAIL": 1}
            assert (row["reason"], row["endpoint"]) == ("explicit", f"{upstream}/chat/completions")
            assert row["adopted"] is False
            assert len({row["key_id"] for row in whole["rows"]}) == 1
            # Nothing of the request: not the value, not even a piece of it.
            assert not any(piece in answer.text for piece in (PLANTED, "minsu", "corp-example", "Write"))

            seen, after = [], 0
            while after is not None:
                part = (await page(gateway, after=after, limit=3)).json()
                seen += part["rows"]
                assert len(part["rows"]) <= 3
                after = part["next_after"]
            assert seen == whole["rows"]
            assert (await page(gateway, after=SENT)).json() == {**empty, "head": whole["head"]}
            assert (await page(gateway, after=2**63 - 1)).json()["rows"] == []
        secret = (tmp_path / "state" / SECRET_FILE).read_bytes()
        async with running_gateway(tmp_path, policy=policy, upstream=upstream, auth=AUTH) as gateway:
            await send(gateway, 1)
            again = (await page(gateway)).json()
    assert again["rows"][:SENT] == whole["rows"]
    assert again["head"]["seq"] == SENT + 1
    assert (tmp_path / "state" / SECRET_FILE).read_bytes() == secret
    # The same value has the same placeholder after a restart.
    bodies = {request.body.split(b"Write to ")[1][:20] for request in recorder.requests}
    assert len(bodies) == 1
    capsys.readouterr()
    assert await verify(tmp_path, "--head", whole["head"]["chain"]) == 0
    assert f"pinned head: row {SENT}, 1 rows since" in capsys.readouterr().out
    with closing(sqlite3.connect(tmp_path / "state" / "ledger.sqlite3")) as conn:
        conn.execute("UPDATE egress SET entities = '{}' WHERE seq = 4")
        conn.commit()
    assert await verify(tmp_path) == 1


async def test_who_may_look_and_what_may_be_asked(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, policy=policy_file(tmp_path), auth=AUTH) as gateway:
        for headers in ({}, {"authorization": f"Bearer {KEY}"}):
            assert (await gateway.client.get("/admin/v1/egress", headers=headers)).status_code == 401
        for name, bad in (
            ("limit", "0"),
            ("limit", str(admin_egress.MAX_ROWS + 1)),
            ("limit", "many"),
            ("after", "-1"),
            ("after", "1.5"),
            ("after", "٣"),
            ("after", str(2**63)),
            ("after", ["1", "2"]),
        ):
            refused = await page(gateway, **{name: bad})
            assert refused.status_code == 400, bad
            assert refused.json()["error"]["param"] == name
        assert (await page(gateway, limit=admin_egress.MAX_ROWS)).status_code == 200
        listed = (await gateway.client.get("/openapi.json")).json()["paths"]["/admin/v1/egress"]["get"]
        assert [one["name"] for one in listed["parameters"]] == ["after", "limit"]


async def test_a_record_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path, policy=policy_file(tmp_path), upstream=recorder.base_url, auth=AUTH
        ) as gateway,
    ):
        await send(gateway, 1)
        with closing(sqlite3.connect(tmp_path / "state" / "ledger.sqlite3")) as conn:
            conn.execute("UPDATE egress SET entities = 'no json'")
            conn.commit()
        answer = await page(gateway)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "egress_record_unreadable"
