"""Looking at other thresholds before they are set, over a gateway's own records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.support.running import Running, running_gateway

PATH = "/admin/v1/thresholds/preview"
GREETING = [{"role": "user", "content": "안녕하세요, 반가워요!"}]


async def preview(gateway: Running, **body: Any) -> httpx.Response:
    return await gateway.client.post(PATH, json=body)


async def test_a_preview_tells_what_a_change_then_does(tmp_path: Path) -> None:
    bounds = {"local_8b": 0.05}
    async with running_gateway(tmp_path) as gateway:
        policy = gateway.parts.policies.current
        first = await gateway.chat(messages=GREETING)
        assert first.headers["x-weighbridge-road"] == "local-8b"
        assert (await gateway.chat(model="local-8b")).status_code == 200
        told = (await preview(gateway, bounds={"local_8b": 0.45})).json()
        assert (told["requests"], told["decided"], told["shifts"]) == (2, 1, [])
        told = (await preview(gateway, bounds=bounds)).json()
        (shift,) = told["shifts"]
        assert (shift["from_road"], shift["to_road"]) == ("local-8b", "local-70b")
        assert (shift["requests"], shift["unknown"]) == (1, 0)
        assert 0 < shift["failing_after"] < shift["failing_before"] < 1
        assert {row["road"]: row["requests_after"] for row in told["roads"]}["local-70b"] == 1
        assert gateway.parts.policies.current is policy, "a preview changes nothing"
        changed = await gateway.client.patch("/admin/v1/thresholds", json={"bounds": bounds, "reason": "try"})
        assert changed.status_code == 200
        assert (await gateway.chat(messages=GREETING)).headers["x-weighbridge-road"] == "local-70b"


async def test_what_is_no_change_is_refused(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        before = (await gateway.client.get("/admin/v1/audit")).json()["rows"]
        for body in (
            {},
            {"bounds": {}},
            {"bounds": {"local_8b": 2}},
            {"bounds": {"local_8b": 0.6, "local_70b": 0.5}},
            {"bounds": {"local_8b": "0.5"}},
            {"bounds": {"local_8b": 0.5}, "last": 0},
            {"bounds": {"local_8b": 0.5}, "last": 20_001},
            {"bounds": {"local_8b": 0.5}, "more": 1},
        ):
            answer = await preview(gateway, **body)
            assert answer.status_code == 400, body
        none = (await preview(gateway, bounds={"local_8b": 0.5})).json()
        assert (none["requests"], none["shifts"], none["cost_change_per_day"]) == (0, [], None)
        assert (await gateway.client.get("/admin/v1/audit")).json()["rows"] == before
