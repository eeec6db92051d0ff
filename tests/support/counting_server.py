"""A model server that counts how many answers it works on at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from tests.support.fake_engine import FakeEngine, Script
from tests.support.model_server import ModelServer


@dataclass
class CountingServer(ModelServer):
    """See `ModelServer`."""

    at_once: int = 0
    peak: int = 0
    answered: int = 0

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        self.at_once += 1
        self.peak = max(self.peak, self.at_once)
        try:
            return await super()._chat(request)
        finally:
            self.at_once -= 1
            self.answered += 1


@asynccontextmanager
async def counting_server(script: Script, window: int = 2048) -> AsyncIterator[CountingServer]:
    server = CountingServer(FakeEngine("served", max_model_len=window, script=script))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
