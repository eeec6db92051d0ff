"""Requests handed to a gateway's dispatch without HTTP, and a sink that keeps what is written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.support.running import Running
from weighbridge.router.admitted import Admitted, Header


class Paper:
    """A sink that keeps what is written; every write suspends once, as a real one may."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.ended = False

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        await asyncio.sleep(0)
        self.status = status

    async def write(self, data: bytes) -> None:
        await asyncio.sleep(0)
        self.body += data

    async def end(self) -> None:
        await asyncio.sleep(0)
        self.ended = True


def admitted(gateway: Running, model: str, stream: bool, text: str, **more: Any) -> Admitted:
    """A request as the HTTP side hands it over, of three tokens unless `more` says otherwise."""
    clock = gateway.parts.clock
    body = {
        "model": model,
        "stream": stream,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 3,
        **more,
    }
    return Admitted(
        request_id=gateway.parts.ids.new(),
        body=body,
        body_bytes=200,
        model=model,
        stream=stream,
        tenant="default",
        key_id="test",
        admitted_at=clock.monotonic(),
        admitted_ns=clock.wall_ns(),
    )
