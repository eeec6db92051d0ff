"""From the caller's socket to the provider's and back: values come back whole however the answer is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorder import Mode, recording, stream_events
from tests.support.running import Running, policy_file, running_gateway

MAIL, PHONE = "min.su@corp.internal", "010-1234-5678"
SAID = f"메일 {MAIL}😀, call {PHONE}"


async def asked(gateway: Running, **more: Any) -> dict[tuple[int, str], str]:
    """What a streaming client adds up, by choice and channel."""
    messages = [{"role": "user", "content": SAID}]
    response = await gateway.chat(model="commercial", stream=True, messages=messages, **more)
    assert response.status_code == 200, response.text
    told: dict[tuple[int, str], str] = {}
    events = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    for event in events[:-1]:
        for choice in json.loads(event)["choices"]:
            delta = choice["delta"]
            calls = "".join(call["function"]["arguments"] for call in delta.get("tool_calls", []))
            for channel, text in (("content", delta.get("content")), ("tool", calls)):
                told[choice["index"], channel] = told.get((choice["index"], channel), "") + (text or "")
    return told


def wanted(choices: int, tool: bool) -> dict[tuple[int, str], str]:
    said = f"You said: {SAID} – 네, 알겠습니다. 😀"
    channels = ("", json.dumps({"to": said})) if tool else (said, "")
    return {
        (index, name): channels[at] for index in range(choices) for at, name in enumerate(("content", "tool"))
    }


@pytest.mark.parametrize("tool", [False, True], ids=["content", "arguments"])
async def test_values_come_back_whole(tmp_path: Path, tool: bool) -> None:
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        for piece in (1, 2, 3, 5, 8, 16, 1000):
            recorder.mode = Mode(piece=piece, tool=tool)
            told = await asked(gateway, n=2)
            assert plain(told) == plain(wanted(2, tool))
        mode = Mode(piece=1000, tool=tool)
        sent = recorder.requests[-1]
        assert MAIL not in sent.body.decode() and PHONE not in sent.body.decode()
        body = b"".join(stream_events({**sent.json, "n": 1}, mode))
        first = body.index(b"EMAIL_") - 12
        last = body.rindex(b"PHONE_") + 20
        for cuts in (*((at,) for at in range(first, last)), tuple(range(len(body)))):
            recorder.mode = Mode(piece=1000, tool=tool, cuts=cuts)
            assert plain(await asked(gateway)) == plain(wanted(1, tool))


def plain(told: dict[tuple[int, str], str]) -> dict[tuple[int, str], Any]:
    """Arguments as the JSON they are: whether their letters are escaped is the provider's choice."""
    return {key: json.loads(text) if key[1] == "tool" and text else text for key, text in told.items()}


async def test_a_hole_in_masking_is_refused_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def blind(pool: object, texts: list[str], *_: Any, **__: Any) -> list[list[Any]]:
        return [[] for _ in texts]

    monkeypatch.setattr("weighbridge.masking.detector_pool.DetectorPool.find", blind)
    for module in ("masked_text", "filling"):
        monkeypatch.setattr(f"weighbridge.masking.{module}.remains", lambda text: [])
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        for stream in (False, True):
            refused = await gateway.chat(
                model="commercial", stream=stream, messages=[{"role": "user", "content": SAID}]
            )
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "egress_refused")
            assert MAIL not in refused.text and PHONE not in refused.text
        assert recorder.connections == [] and gateway.egress() == []
        metrics = (await gateway.client.get("/metrics")).text.splitlines()
        counted = [line for line in metrics if line.startswith("weighbridge_masking_refusals_total{")]
        assert sum(float(line.split()[-1]) for line in counted) == 2
