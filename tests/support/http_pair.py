"""An `HttpEngine` that is up, and the server behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.engine_lab import complete, stream
from tests.support.fake_engine import FakeEngine, Script
from tests.support.model_server import MODEL, ModelServer, model_server
from weighbridge.config.clock import SystemClock
from weighbridge.config.settings import TierSettings
from weighbridge.pool.http_engine import HttpEngine

WINDOW = 512
FREE_S = 1.0
"""How soon the other machine must be free after a cancellation."""

ways = pytest.mark.parametrize("way", [complete, stream], ids=["complete", "stream"])


def settings(**fields: Any) -> TierSettings:
    return TierSettings(max_model_len=WINDOW, endpoint_model=MODEL, **fields)


def engine_at(url: str, clock: Any = None, **fields: Any) -> HttpEngine:
    return HttpEngine(settings(**fields), "local-8b", url, clock or SystemClock())


@dataclass
class Pair:
    """An engine that is up, and the server behind it."""

    engine: HttpEngine
    server: ModelServer

    @property
    def there(self) -> FakeEngine:
        return self.server.engine

    async def until_free(self) -> None:
        """Wait until neither side works any more, not longer than it may take."""
        async with asyncio.timeout(FREE_S):
            while self.there.load().unfinished or self.engine.load().unfinished:
                await asyncio.sleep(0.002)


@asynccontextmanager
async def pair(*, script: Script | None = None, clock: Any = None, **fields: Any) -> AsyncIterator[Pair]:
    ours = {
        name: fields.pop(name)
        for name in tuple(fields)
        if name.startswith("endpoint_") or name == "trusted_endpoints"
    }
    async with model_server(script=script or Script(token_s=0.001), window=WINDOW, **fields) as server:
        engine = engine_at(server.url, clock, **ours)
        await engine.start()
        try:
            yield Pair(engine, server)
        finally:
            await engine.close(0.0)
