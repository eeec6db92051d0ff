"""A process that holds a pool of two vLLM tiers, told by lines on stdin, answering in JSON lines on stdout.

Commands: `ask ROAD` (a short completion), `hold ROAD` (a long stream; says when it has begun and how it ended),
`status`, `close`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.engine_lab import chat, complete, new_call
from weighbridge.config.clock import SystemClock
from weighbridge.config.settings import PoolSettings, TierSettings
from weighbridge.observability.logs import setup_logging
from weighbridge.observability.metrics import Metrics
from weighbridge.pool.pool import Pool
from weighbridge.pool.tier import Tier
from weighbridge.pool.vllm_engine import VllmEngine

ROADS = ("local-8b", "local-70b")


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


async def hold(tier: Tier) -> None:
    call = new_call(chat(max_tokens=2000))
    try:
        first = True
        async for _ in tier.workers[0].engine.stream(call):
            if first:
                say("holding", road=tier.road)
                first = False
    except Exception as exc:
        say("ended", road=tier.road, error=type(exc).__name__, tokens=call.meter.completion)
    else:
        say("ended", road=tier.road, error="", tokens=call.meter.completion)


async def main(register: Path) -> None:
    clock, metrics = SystemClock(), Metrics()
    settings = TierSettings(
        max_num_seqs=4, max_num_batched_tokens=2048, kv_cache_memory_bytes=1 << 28, enforce_eager=True
    )

    def engine(road: str, own: TierSettings, worker: str) -> VllmEngine:
        return VllmEngine(own, road, clock, metrics=metrics, worker=worker)

    # A worker that is lost stays lost here: the test looks at what is left of it.
    once = PoolSettings(max_restarts=0)
    tiers = [Tier(road, settings, partial(engine, road), clock, metrics, pool=once) for road in ROADS]
    pool = Pool(tiers, register=register)
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), lambda: lines.put_nowait(sys.stdin.readline()))
    say("loading")
    await pool.start()
    say(
        "ready",
        processes={tier.road: [process.pid for process in tier.workers[0].processes] for tier in tiers},
    )
    tasks: set[asyncio.Task[None]] = set()
    while command := (await lines.get()).split():
        road = command[1] if len(command) > 1 else ""
        tier = pool.tier(road)
        if command[0] == "close":
            break
        if command[0] == "status":
            say("status", tiers={row["road"]: row["state"] for row in pool.status()})
        elif command[0] == "hold" and tier is not None:
            tasks.add(asyncio.create_task(hold(tier)))
        elif command[0] == "ask" and tier is not None:
            answer = await complete(tier.workers[0].engine, chat())
            say("answer", road=road, text=answer.text(), tokens=answer.meter.completion)
    await pool.close(5.0)
    say("closed")


if __name__ == "__main__":
    setup_logging()
    asyncio.run(main(Path(sys.argv[1])))
