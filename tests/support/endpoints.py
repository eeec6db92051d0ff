"""A gateway with one or two commercial endpoints that misbehave, and quick limits."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from tests.support.recorder import OK, Mode, Recorder, recording
from tests.support.running import Running, policy_file, running_gateway

QUICK: dict[str, float] = {
    "connect_s": 1.0,
    "headers_s": 0.4,
    "first_token_s": 0.8,
    "gap_s": 0.5,
    "document_s": 0.4,
    "total_s": 20.0,
}
HARD = [{"role": "user", "content": "Write a Python function that parses a CSV file and fix this bug."}]
"""A prompt that goes to the commercial road first, with both tiers behind it."""


@dataclass
class Site:
    """The gateway and its endpoints, `main` first."""

    gateway: Running
    endpoints: list[Recorder]

    @property
    def main(self) -> Recorder:
        return self.endpoints[0]

    @property
    def second(self) -> Recorder:
        return self.endpoints[1]

    async def ask(self, **body: Any) -> httpx.Response:
        return await self.gateway.chat(**{"model": "commercial", **body})

    async def healthy(self) -> None:
        """A request right after is served as if nothing had been; by any road, as an endpoint may be resting."""
        for endpoint in self.endpoints:
            endpoint.mode = OK
            endpoint.script()
        answer = await self.gateway.chat(messages=HARD)
        assert answer.status_code == 200, answer.text
        rows = self.gateway.rows()
        assert len({row["request_id"] for row in rows}) == len(rows)


@asynccontextmanager
async def site(
    folder: Path,
    *modes: Mode,
    limits: dict[str, float] | None = None,
    policy: dict[str, Any] | None = None,
    breaker: dict[str, Any] | None = None,
    windows: dict[str, int] | None = None,
    **sections: Any,
) -> AsyncIterator[Site]:
    """One endpoint for each mode: `main`, `second`, `third`.

    Args:
        limits: of an exchange, over the quick ones.
        policy: further values of the policy.
        breaker: further values of the `commercial` section.
        windows: context windows of endpoints, by name.
    """
    names = ("main", "second", "third")[: len(modes)]
    async with AsyncExitStack() as stack:
        made = [await stack.enter_async_context(recording(mode)) for mode in modes]
        windows = windows or {}
        commercial: dict[str, Any] = {"max_context_tokens": windows.get("main"), **(breaker or {})}
        commercial["endpoints"] = {
            name: {
                "base_url": recorder.base_url,
                "model": f"model-of-{name}",
                "max_context_tokens": windows.get(name),
            }
            for name, recorder in zip(names[1:], made[1:], strict=True)
        }
        rules = policy_file(folder, limits={"commercial": {**QUICK, **(limits or {})}}, **(policy or {}))
        gateway = await stack.enter_async_context(
            running_gateway(
                folder, upstream=made[0].base_url, policy=rules, commercial=commercial, **sections
            )
        )
        yield Site(gateway, made)


def events(text: str) -> list[str]:
    """The data of the events in a streamed answer."""
    return [line[6:] for line in text.splitlines() if line.startswith("data: ")]


def told(text: str) -> str:
    """The content that a streamed answer told."""
    parts = []
    for data in events(text):
        if data != "[DONE]" and "error" not in (made := json.loads(data)):
            parts += [choice["delta"].get("content") or "" for choice in made["choices"]]
    return "".join(parts)


def assert_whole(answer: httpx.Response, text: str) -> None:
    """A stream that is whole and says exactly `text`."""
    assert answer.status_code == 200, answer.text
    seen = events(answer.text)
    assert seen[-1] == "[DONE]" and seen.count("[DONE]") == 1, answer.text
    assert told(answer.text) == text
    reasons = [c["finish_reason"] for data in seen[:-1] for c in json.loads(data)["choices"]]
    assert [reason for reason in reasons if reason] == ["stop"]
    assert "�" not in answer.text


def assert_broken_off(answer: httpx.Response, text: str, code: str) -> None:
    """A stream that told `text` and then, once, that it is broken; nothing that looks like an end."""
    assert answer.status_code == 200, answer.text
    seen = events(answer.text)
    assert "[DONE]" not in seen
    assert told(answer.text) == text
    assert json.loads(seen[-1])["error"]["code"] == code
    assert not any("error" in json.loads(data) for data in seen[:-1])
    assert all(c["finish_reason"] is None for data in seen[:-1] for c in json.loads(data)["choices"])


def gaps(recorder: Recorder) -> list[float]:
    """Seconds between the requests a provider saw."""
    return [later.at - earlier.at for earlier, later in pairwise(recorder.requests)]


def assert_not_hammered(recorder: Recorder) -> None:
    """At most two attempts within a second and a half, and six in all."""
    times = [seen.at for seen in recorder.requests]
    assert len(times) <= 6
    assert all(third - first >= 1.5 for first, third in zip(times, times[2:], strict=False))
