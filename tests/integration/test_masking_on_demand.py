"""A gateway without a commercial API: it has no masking process until a preview asks, and says so."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import httpx

from tests.support.made_up_nursery import with_detector
from tests.support.process import GatewayProcess, all_gone, children
from tests.support.running import running_gateway
from weighbridge.masking.detector_nursery import DetectorNursery
from weighbridge.masking.wire import Setup

KEY = "wb-admin-key-of-this-test"
ADMIN = {"authorization": f"Bearer {KEY}"}
AUTH = {"admin_keys": [{"id": "boss", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]}


async def preview(client: httpx.AsyncClient, text: str) -> httpx.Response:
    return await client.post("/admin/v1/masking/preview", json={"text": text}, headers=ADMIN)


async def health(client: httpx.AsyncClient) -> tuple[str, Any]:
    told = (await client.get("/health/ready")).json()
    return told["status"], told["parts"]["masking"]


async def test_it_has_no_process_before_a_preview_and_one_nursery_after_many(tmp_path: Path) -> None:
    config = tmp_path / "settings.yaml"
    settings = {
        "server": {"port": 0},
        "auth": AUTH,
        "masking": {"layers": [], "without_names": "mask", "workers": 2},
        "state_dir": str(tmp_path / "state"),
    }
    config.write_text(json.dumps(settings))
    gateway = GatewayProcess(["-m", "tests.support.fake_gateway", str(config)], log=tmp_path / "log")
    await asyncio.to_thread(gateway.start)
    try:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
            hello = {"model": "auto", "messages": [{"role": "user", "content": "Hello there"}]}
            assert (await client.post("/v1/chat/completions", json=hello)).status_code == 200
            assert await health(client) == ("ready", {"ready": False, "needed": False})
            assert children(gateway.pid) == set()
            assert gateway.log.count("masking starts when a preview asks for it") == 1

            answers = await asyncio.gather(*(preview(client, f"{n} or 010-2345-6789") for n in range(8)))
            assert [answer.status_code for answer in answers] == [200] * 8
            assert all("[PHONE_" in answer.json()["masked"] for answer in answers)
            assert all("structured" in answer.json()["layers"] for answer in answers)
            assert await health(client) == ("ready", {"ready": True, "needed": False})
            below = children(gateway.pid)
            assert len(below) == 3, "one nursery and two workers"
            assert gateway.log.count("masking: layers") == 1
    finally:
        status = gateway.stop()
    assert status == 0
    assert not all_gone(below, 5), "a process outlived its gateway"


async def test_a_start_that_fails_is_answered_and_tried_again(tmp_path: Path) -> None:
    model, loads = tmp_path / "model", tmp_path / "loads"
    load = f"open({str(loads)!r}, 'a').write('x')\nopen({str(model)!r}).close()"
    nursery = DetectorNursery(Setup(), with_detector(load=load))
    try:
        async with running_gateway(tmp_path, nursery=nursery, auth=AUTH) as gateway:
            assert nursery.pid == -1 and not loads.exists()
            for count in (1, 2):
                answer = await preview(gateway.client, "planted 010-2345-6789")
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                assert answer.json()["error"]["code"] == "masking_unavailable"
                assert "(detector_failed)" in answer.text and "planted" not in answer.text
                assert loads.read_text() == "x" * count and nursery.pid == -1
            assert await health(gateway.client) == ("ready", {"ready": False, "needed": False})
            assert (await gateway.chat()).status_code == 200
            model.touch()
            assert (await preview(gateway.client, "words")).status_code == 200
            assert loads.read_text() == "xxx"
    finally:
        await nursery.close()
