"""`python -m bench.lib.bare fake TOKEN_S` or `vllm`: an engine without a gateway, driven from its own event loop.

What its process uses is what the local path would cost if there were nothing but the engine: for vLLM that is its
OpenAI chat layer (rendering, tokenising, detokenising, events as text) with no HTTP around it. Jobs hold `bodies`,
`concurrency`, and `seconds` or `count` as for `bench.lib.load`, and are answered alike.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any

import uvloop

from bench.lib.answering import jobs, say
from bench.lib.asking import keep_asking
from tests.support.fake_engine import FakeEngine, Script
from weighbridge.config.roads import LOCAL_8B
from weighbridge.config.settings import load_settings
from weighbridge.config.usage import TokenMeter
from weighbridge.observability.metrics import Metrics
from weighbridge.pool import vllm_loading
from weighbridge.pool.engine import EngineCall

Ask = Callable[[dict[str, Any]], Awaitable[int]]
"""Takes a body, returns the number of events (0 for a whole answer)."""

_serial = count()


@asynccontextmanager
async def fake(token_s: float) -> AsyncIterator[Ask]:
    engine = FakeEngine(LOCAL_8B, script=Script(token_s=token_s))
    await engine.start()

    async def ask(body: dict[str, Any]) -> int:
        call = EngineCall(f"bare-{next(_serial)}", body, TokenMeter())
        if not body.get("stream"):
            await engine.complete(call)
            return 0
        events = 0
        async for _ in engine.stream(call):
            events += 1
        return events

    yield ask
    await engine.close(0)


@asynccontextmanager
async def vllm() -> AsyncIterator[Ask]:
    settings = load_settings(None, env={}).tiers[LOCAL_8B]
    loaded = await asyncio.to_thread(vllm_loading.Loader(LOCAL_8B, settings, Metrics()).run)
    # Without our counting of tokens: the engine as vLLM made it.
    loaded.engine.__class__ = type(loaded.engine).__mro__[1]
    chat = loaded.chat

    async def ask(body: dict[str, Any]) -> int:
        answer = await chat.create(chat.request({**body, "request_id": f"bare-{next(_serial)}"}))
        if hasattr(answer, "error"):
            raise RuntimeError("vLLM refused the request")
        if not body.get("stream"):
            answer.model_dump_json()
            return 0
        events = 0
        async for event in answer:
            event.encode()
            events += 1
        return events

    try:
        yield ask
    finally:
        await asyncio.to_thread(vllm_loading.shut_down, loaded, 5.0)


async def _in_turn(ask: Ask, bodies: list[dict[str, Any]], turn: int) -> int:
    return await ask(bodies[turn])


async def main() -> None:
    engine = fake(float(sys.argv[2])) if sys.argv[1] == "fake" else vllm()
    async with engine as ask:
        say({})
        async for job in jobs():
            asker = partial(_in_turn, ask, [json.loads(body) for body in job["bodies"]])
            say(await keep_asking(job, [asker] * job["concurrency"]))


if __name__ == "__main__":
    uvloop.run(main())
