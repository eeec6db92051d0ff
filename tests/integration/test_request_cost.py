"""What a whole request costs this process, HTTP server and engine left out: the sum that nobody sees line by line."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from starlette.types import Message

from tests.support.cost import cpu_us, reference
from tests.support.running import running_gateway
from weighbridge.gateway.app import create_app
from weighbridge.pool.engine import EngineCall

MOST = 6.4
"""Reference loops; half of it was measured."""
ROUNDS, REQUESTS = 8, 50
ANSWER = json.dumps({"object": "chat.completion", "choices": [{"message": {"content": "Hello"}}]}).encode()


async def test_a_request_stays_in_budget(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        app = create_app(gateway.parts)
        body = json.dumps(
            {"model": "local-8b", "messages": [{"role": "user", "content": "All is well. " * 80}]}
        ).encode()

        async def complete(call: EngineCall) -> bytes:
            call.meter.prompt, call.meter.completion = 230, 1
            return ANSWER

        gateway.engines["local-8b"].complete = complete  # type: ignore[method-assign]

        async def ask() -> list[Message]:
            sent: list[Message] = []
            bodies = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive() -> Any:
                if bodies:
                    return bodies.pop()
                await asyncio.Event().wait()

            async def send(message: Message) -> None:
                sent.append(message)

            headers = [(b"host", b"127.0.0.1"), (b"content-length", b"%d" % len(body))]
            scope = {
                "type": "http",
                "method": "POST",
                "path": "/v1/chat/completions",
                "headers": headers,
                "client": ("127.0.0.1", 50_000),
            }
            await app(scope, receive, send)
            return sent

        sent = await ask()
        assert sent[0]["status"] == 200 and sent[1]["body"] == ANSWER
        ours = theirs = float("inf")
        for _ in range(ROUNDS):
            theirs = min(theirs, cpu_us(reference, 100))
            began = time.thread_time_ns()
            await asyncio.gather(*[ask() for _ in range(REQUESTS)])
            ours = min(ours, (time.thread_time_ns() - began) / REQUESTS / 1000)
        assert all(row["outcome"] == "ok" for row in gateway.rows())
    assert ours / theirs < MOST, f"{ours / theirs:.2f} reference loops"
