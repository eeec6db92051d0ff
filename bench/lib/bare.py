"""`python -m bench.lib.bare fake TOKEN_S` or `vllm [CONFIG]`: an engine without a gateway, on its own event loop.

What its process uses is what the local path would cost if there were nothing but the engine: for vLLM that is its
OpenAI chat layer (rendering, tokenising, detokenising, events as text) with no HTTP around it. CONFIG is a settings
file of the gateway; without it the engine is the shipped one. Jobs hold `bodies`, `concurrency`, and `seconds` or
`count` as for `bench.lib.load`, and are answered alike.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import uvloop

from bench.lib.answering import jobs, say
from bench.lib.asking import keep_asking
from bench.lib.usage import completion_tokens
from tests.support.fake_engine import FakeEngine, Script
from weighbridge.config.roads import LOCAL_8B
from weighbridge.config.settings import load_settings
from weighbridge.config.usage import TokenMeter
from weighbridge.observability.metrics import Metrics
from weighbridge.pool import vllm_loading
from weighbridge.pool.engine import EngineCall

Ask = Callable[[dict[str, Any], bool], Awaitable[int]]
"""Takes a body, returns the number of events (0 for a whole answer); with True, a stream's completion tokens."""

_serial = count()


@asynccontextmanager
async def fake(token_s: float) -> AsyncIterator[Ask]:
    engine = FakeEngine(LOCAL_8B, script=Script(token_s=token_s))
    await engine.start()

    async def ask(body: dict[str, Any], tokens: bool) -> int:
        call = EngineCall(f"bare-{next(_serial)}", body, TokenMeter())
        if not body.get("stream"):
            await engine.complete(call)
            return 0
        events = 0
        async for _ in engine.stream(call):
            events += 1
        return call.meter.completion if tokens else events

    yield ask
    await engine.close(0)


@asynccontextmanager
async def vllm(config: Path | None) -> AsyncIterator[Ask]:
    settings = load_settings(config, env={}).tiers[LOCAL_8B]
    loaded = await asyncio.to_thread(vllm_loading.Loader(LOCAL_8B, settings, Metrics()).run)
    # Without our counting of tokens: the engine as vLLM made it.
    loaded.engine.__class__ = type(loaded.engine).__mro__[1]
    chat = loaded.chat

    async def ask(body: dict[str, Any], tokens: bool) -> int:
        answer = await chat.create(await chat.request({**body, "request_id": f"bare-{next(_serial)}"}))
        if hasattr(answer, "error"):
            raise RuntimeError("vLLM refused the request")
        if not body.get("stream"):
            answer.model_dump_json()
            return 0
        events = 0
        last = before = b""
        async for event in answer:
            before, last = last, event.encode()
            events += 1
        # The usage comes right before `[DONE]`.
        return completion_tokens(before) or 0 if tokens else events

    try:
        yield ask
    finally:
        await asyncio.to_thread(vllm_loading.shut_down, loaded, 5.0)


async def _in_turn(ask: Ask, bodies: list[dict[str, Any]], tokens: bool, turn: int) -> int:
    return await ask(bodies[turn], tokens)


async def main() -> None:
    kind, *more = sys.argv[1:]
    engine = fake(float(more[0])) if kind == "fake" else vllm(Path(more[0]) if more else None)
    async with engine as ask:
        say({})
        async for job in jobs():
            bodies = [json.loads(body) for body in job["bodies"]]
            asker = partial(_in_turn, ask, bodies, job.get("tokens", False))
            say(await keep_asking(job, [asker] * job["concurrency"]))


if __name__ == "__main__":
    uvloop.run(main())
