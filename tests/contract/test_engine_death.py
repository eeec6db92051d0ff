"""An engine that dies by itself says so at once, though nobody has asked it for anything yet."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from tests.support.engine_lab import WINDOW, chat, new_call, play
from tests.support.fake_engine import FakeEngine
from weighbridge.config.clock import SystemClock
from weighbridge.config.settings import TierSettings
from weighbridge.pool.engine import Engine, EngineUnavailable
from weighbridge.pool.processes import alive

TOLD_S = 0.5
"""How soon it must be known; on an idle machine it takes 40 ms for the core and 110 ms for its worker."""


async def dies(engine: Engine, kill: object) -> None:
    """Start an engine, kill it and see what it says."""
    assert callable(kill)
    await engine.start()
    death = asyncio.ensure_future(engine.died())
    await asyncio.sleep(0.1)
    assert not death.done() and engine.alive
    kill()
    async with asyncio.timeout(TOLD_S):
        await death
    assert not engine.alive
    with pytest.raises(EngineUnavailable):
        await play(engine, new_call(chat()))
    await engine.died()
    await engine.close(1.0)


def test_the_fake_engine_dies() -> None:
    engine = FakeEngine()
    asyncio.run(dies(engine, engine.kill))


@pytest.mark.engine
@pytest.mark.parametrize("which", [0, -1], ids=["core", "worker"])
def test_vllm_is_killed_before_its_first_call(which: int) -> None:
    from weighbridge.pool.vllm_engine import VllmEngine

    settings = TierSettings(
        max_model_len=WINDOW,
        max_num_seqs=2,
        max_num_batched_tokens=WINDOW,
        kv_cache_memory_bytes=1 << 26,
        enforce_eager=True,
    )
    engine = VllmEngine(settings, "local-8b", SystemClock())
    asyncio.run(dies(engine, lambda: os.kill(engine.processes[which].pid, signal.SIGKILL)))
    assert not [process for process in engine.processes if alive(process)]
