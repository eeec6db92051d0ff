"""Prompts that are too long: refused before queueing, or sent where the window is wide enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.recorder import recording
from tests.support.running import policy_file, running_gateway

LONG = [{"role": "user", "content": "weigh this " * 600}]
"""About 1,650 tokens of the fake engine."""


@pytest.mark.parametrize(("window", "status"), [(None, 200), (100_000, 200), (1000, 400)])
async def test_too_long_for_every_tier(tmp_path: Path, window: int | None, status: int) -> None:
    engines = {road: FakeEngine(road, max_model_len=512) for road in ("local-8b", "local-70b")}
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines=engines,
            upstream=recorder.base_url,
            policy=policy_file(tmp_path),
            commercial={"max_context_tokens": window},
        ) as gateway,
    ):
        answer = await gateway.chat(messages=LONG)
        assert answer.status_code == status, answer.text
        (row,) = gateway.rows()
        if status == 200:
            assert answer.headers["x-weighbridge-road"] == "commercial"
            assert [row["reason"] for row in gateway.egress()] == ["window"]
        else:
            assert answer.json()["error"]["code"] == "context_length_exceeded"
            assert recorder.connections == [] and row["outcome"] == "refused"
        assert row["queue_ms"] == 0 and not any(engine.calls for engine in engines.values())


async def test_a_wider_tier_is_taken_first(tmp_path: Path) -> None:
    engines = {
        "local-8b": FakeEngine("local-8b", max_model_len=512),
        "local-70b": FakeEngine("local-70b", max_model_len=4096),
    }
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path, engines=engines, upstream=recorder.base_url, policy=policy_file(tmp_path)
        ) as gateway,
    ):
        text = "Label the sentiment as positive or negative: " + "fine product " * 200
        answer = await gateway.chat(messages=[{"role": "user", "content": text}])
        assert answer.status_code == 200 and answer.headers["x-weighbridge-road"] == "local-70b"
        assert recorder.connections == []
        explicit = await gateway.chat(model="local-8b", messages=[{"role": "user", "content": text}])
        assert explicit.status_code == 400
        assert explicit.json()["error"]["code"] == "context_length_exceeded"
