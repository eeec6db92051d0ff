"""The commercial API misbehaves: what the caller sees, what the record says, and that the gateway serves on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import recorder as rec
from tests.support.endpoints import QUICK
from tests.support.fake_engine import FakeEngine
from tests.support.recorder import Mode, recording
from tests.support.running import Running, policy_file, running_gateway

BEFORE = {"500": rec.STATUS_500, "reset": rec.RESET, "stall": rec.STALL, "cut": Mode("cut", after=0)}
BEFORE |= {"malformed": Mode("malformed", after=0), "stall after the head": rec.STALL_BODY}
BEFORE |= {"not json": rec.NOT_JSON}
"""All of them before the first content of a stream; of a document, `cut`, `malformed` and `not json` are a body that
ends halfway: one without the bytes its length promised, two with."""
KINDS = {"500": "status", "not json": "malformed", "stall after the head": "stall"}
"""The word for a fault, where it is not its own name."""
CODE = [{"role": "user", "content": "Write a Python function that parses a CSV file and fix this bug."}]
"""A prompt that goes to the commercial road first, with both tiers behind it."""
AFTER = {"cut": rec.CUT, "malformed": rec.MALFORMED, "error event": rec.ERROR_EVENT}


def quick(folder: Path) -> Path:
    return policy_file(folder, limits={"commercial": QUICK})


def events(text: str) -> list[str]:
    return [line[6:] for line in text.splitlines() if line.startswith("data: ")]


async def healthy(gateway: Running, mode_reset: rec.Recorder) -> None:
    mode_reset.mode = rec.OK
    answer = await gateway.chat(model="commercial")
    assert answer.status_code == 200 and answer.headers["x-weighbridge-road"] == "commercial"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", list(BEFORE))
async def test_before_the_first_content_the_next_road_serves(
    tmp_path: Path, fault: str, stream: bool
) -> None:
    async with (
        recording(BEFORE[fault]) as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=quick(tmp_path)) as gateway,
    ):
        answer = await gateway.chat(messages=CODE, stream=stream)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-weighbridge-road"] == "local-70b"
        # A route that gave no sign of life is not asked twice, any other one once more.
        asked = 1 if "stall" in fault else 2
        assert answer.headers["x-weighbridge-attempts"] == str(asked + 1)
        if stream:
            assert events(answer.text)[-1] == "[DONE]"
        (row,) = gateway.rows()
        assert (row["outcome"], row["road"], row["attempts"]) == ("ok", "local-70b", asked + 1)
        tried = gateway.attempts(row["request_id"])
        assert [(a["road"], a["outcome"]) for a in tried] == [
            *[("commercial", f"upstream_{KINDS.get(fault, fault)}")] * asked,
            ("local-70b", "ok"),
        ]
        assert len(recorder.requests) == asked
        await healthy(gateway, recorder)
        assert len(gateway.rows()) == 2


@pytest.mark.parametrize("fault", list(AFTER))
async def test_after_the_first_content_an_error_event_and_no_done(tmp_path: Path, fault: str) -> None:
    async with (
        recording(AFTER[fault]) as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=quick(tmp_path)) as gateway,
    ):
        answer = await gateway.chat(model="commercial", stream=True)
        assert answer.status_code == 200
        seen = events(answer.text)
        assert "[DONE]" not in seen
        assert json.loads(seen[-1])["error"]["code"].startswith("upstream_")
        assert any(json.loads(event)["choices"][0]["delta"].get("content") for event in seen[:-1])
        assert all(json.loads(event)["choices"][0]["finish_reason"] is None for event in seen[:-1])
        (row,) = gateway.rows()
        assert (row["outcome"], row["road"], row["attempts"]) == ("truncated", "commercial", 1)
        assert row["completion_tokens"] > 0 and not row["tokens_exact"]
        await healthy(gateway, recorder)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("code", "status"), [(400, 400), (413, 413), (422, 422), (401, 502), (403, 502), (404, 502)]
)
async def test_the_providers_refusal_is_final_and_named(
    tmp_path: Path, code: int, status: int, stream: bool
) -> None:
    async with (
        recording(rec.status(code)) as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=quick(tmp_path)) as gateway,
    ):
        # Both tiers are free and would serve, were the provider's word not final.
        answer = await gateway.chat(messages=CODE, stream=stream)
        assert answer.status_code == status
        assert answer.headers["x-weighbridge-road"] == "commercial"
        error = answer.json()["error"]
        # What lies in the request keeps the provider's word; what lies between us and the provider does not.
        assert error["code"] == ("invalid_value" if status == code else "upstream_refused")
        assert str(code) in error["message"] and "provider text" not in answer.text
        assert len(recorder.requests) == 1
        assert not any(engine.calls for engine in gateway.engines.values())
        (row,) = gateway.rows()
        assert (row["attempts"], row["status"]) == (1, status)
        assert row["outcome"] == ("refused" if status < 500 else "error")
        assert [a["outcome"] for a in gateway.attempts(row["request_id"])] == ["refused"]


async def test_a_dead_tier_is_left_for_the_next_road(tmp_path: Path) -> None:
    broken = FakeEngine()
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines={"local-8b": broken, "local-70b": FakeEngine("local-70b")},
            upstream=recorder.base_url,
            policy=policy_file(tmp_path),
        ) as gateway,
    ):
        broken.kill()
        answer = await gateway.chat(messages=[{"role": "user", "content": "안녕하세요"}])
        assert answer.status_code == 200
        assert answer.headers["x-weighbridge-road"] == "local-70b"
        assert recorder.connections == [], "a local tier was free: nothing had to leave"
