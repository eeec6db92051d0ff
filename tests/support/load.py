"""Callers that keep a gateway busy and note what they were promised before it dies."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field

import httpx


@dataclass
class Promised:
    """What callers saw: ids of answers that began, and the token counts of answers that ended whole."""

    begun: set[str] = field(default_factory=set)
    whole: dict[str, tuple[int, int]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Ids of requests that were told to come again."""
    chunks: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self) -> None:
        self.chunks += 1
        self.changed.set()

    async def until_chunks(self, count: int) -> None:
        while self.chunks < count:
            self.changed.clear()
            await self.changed.wait()


async def caller(
    url: str, promised: Promised, rng: random.Random, models: tuple[str, ...], max_tokens: int
) -> None:
    """Ask until the gateway is gone."""
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        while True:
            stream = rng.random() < 0.7
            body = {
                "model": rng.choice(models),
                "messages": [{"role": "user", "content": f"say something, number {rng.randrange(10**6)}"}],
                "stream": stream,
                "max_tokens": max_tokens,
            }
            if stream:
                body["stream_options"] = {"include_usage": True}
            try:
                await _ask(client, body, stream, promised)
            except httpx.HTTPError:
                return


async def _ask(client: httpx.AsyncClient, body: dict[str, object], stream: bool, promised: Promised) -> None:
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        request_id = response.headers["x-weighbridge-request-id"]
        promised.begun.add(request_id)
        promised.note()
        if response.status_code != 200:
            # More callers than slots: on a slow machine some wait longer than they may. Nothing else is expected.
            assert response.status_code in (429, 503), (await response.aread()).decode()
            promised.refused.add(request_id)
            await asyncio.sleep(float(response.headers["retry-after"]))
            return
        if not stream:
            usage = json.loads(await response.aread())["usage"]
            promised.whole[request_id] = usage["prompt_tokens"], usage["completion_tokens"]
            return
        usage = None
        async for line in response.aiter_lines():
            if line == "data: [DONE]":
                assert usage is not None
                promised.whole[request_id] = usage["prompt_tokens"], usage["completion_tokens"]
            elif line.startswith("data: "):
                promised.note()
                usage = json.loads(line[6:]).get("usage") or usage
