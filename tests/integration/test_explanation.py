"""Whoever asks is told how the decision came about, in a header, whatever becomes of the request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.test_may_leave import ask
from tests.support.running import policy_file, running_gateway
from weighbridge.router.difficulty.score import CALIBRATION_VERSION, assess

LABEL = "Label the sentiment as positive or negative: planted 4711."


def told(answer: httpx.Response) -> dict[str, Any]:
    value = answer.headers["x-weighbridge-explanation"]
    assert "planted" not in value and "4711" not in value
    found: dict[str, Any] = json.loads(value)
    return found


async def test_it_says_what_moved_the_decision(tmp_path: Path) -> None:
    policy = policy_file(
        tmp_path,
        risk={"local_8b": 0.2, "local_70b": 0.1},
        tasks={"classification": {"road": "local-8b", "band": {"at_most": 0.1}}},
    )
    weight = assess({"messages": [{"role": "user", "content": LABEL}]})
    async with running_gateway(tmp_path, policy=policy) as gateway:
        answer = await ask(gateway, LABEL, explain="true")
        version = gateway.parts.policies.current.version
    found = told(answer)
    assert found["task"] == "classification" and found["language"] == "en"
    assert found["p_8b_fails"] == pytest.approx(weight.p_8b_fails, abs=1e-4)
    assert found["p_70b_fails"] == pytest.approx(weight.p_70b_fails, abs=1e-4)
    assert found["risk"] == {"local-8b": 0.2, "local-70b": 0.1}
    assert found["score"] == pytest.approx(0.45 * weight.p_8b_fails / 0.2, abs=1e-4)
    assert found["score"] > 0.1 == found["clamped_score"]
    assert found["above_bound"]["local-8b"] == pytest.approx(found["score"] - 0.45, abs=1e-3)
    assert found["above_bound"]["local-70b"] == pytest.approx(found["score"] - 0.55, abs=1e-3)
    assert found["moved_by"] == list(weight.features) != []
    assert found["decided_road"] == answer.headers["x-weighbridge-road"] == "local-8b"
    assert found["reasons"][-1] == answer.headers["x-weighbridge-reason"]
    assert (found["policy"], found["calibration"]) == (version, CALIBRATION_VERSION)


async def test_only_whoever_asks_is_told(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        for headers in ({}, {"explain": "false"}):
            assert "x-weighbridge-explanation" not in (await ask(gateway, LABEL, **headers)).headers


async def test_a_named_tier_is_weighed_for_whoever_asks_and_not_for_the_next(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        for _ in range(2):
            asked = await ask(gateway, LABEL, model="local-70b", explain="true")
            plain = await ask(gateway, LABEL, model="local-70b")
            assert told(asked)["task"] == "classification" and told(asked)["decided_road"] == "local-70b"
            assert 0 < told(asked)["score"] < 0.45 and "clamped_score" not in told(asked)
            assert "x-weighbridge-score" not in asked.headers, "what is told of a decision does not change it"
            assert asked.headers["x-weighbridge-road"] == plain.headers["x-weighbridge-road"] == "local-70b"
            assert "x-weighbridge-score" not in plain.headers


async def test_asking_changes_nothing_that_is_recorded(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        for model in ("auto", "local-8b"):
            asked = await ask(gateway, LABEL, model=model, explain="true")
            plain = await ask(gateway, LABEL, model=model)
            rows = {row["request_id"]: row for row in gateway.rows()}
            first, second = (rows[answer.headers["x-weighbridge-request-id"]] for answer in (asked, plain))
            for name in ("road", "score", "task", "reasons", "policy_version", "calibration_version"):
                assert first[name] == second[name], name


async def test_streams_and_refusals_say_it_too(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        headers = {"x-weighbridge-explain": "true"}
        body = {"model": "auto", "stream": True, "messages": [{"role": "user", "content": LABEL}]}
        stream = await gateway.client.post("/v1/chat/completions", json=body, headers=headers)
        assert stream.text.endswith("data: [DONE]\n\n") and told(stream)["decided_road"] == "local-8b"
        refused = await ask(gateway, LABEL, model="commercial", explain="true")
        assert refused.status_code == 403
        assert told(refused)["decided_road"] is None and "clamped_score" not in told(refused)
        assert told(refused)["reasons"][-1] == "refused commercial_not_configured"
