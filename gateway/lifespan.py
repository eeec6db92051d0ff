"""Starting the parts behind a server that listens already, and closing them in the right order."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from weighbridge.config.errors import ConfigError
from weighbridge.gateway.errors import log_unexpected
from weighbridge.gateway.parts import Parts
from weighbridge.observability import loop_lag
from weighbridge.pool.engine import EngineStartFailed
from weighbridge.pool.threads import in_thread

log = logging.getLogger("weighbridge.gateway")

TRACES_S: Final = 5.0
"""Seconds until the last spans are given up. Their sender has a limit of its own, which a look-up of a name that hangs
does not keep."""


@asynccontextmanager
async def running(parts: Parts, on_first_ready: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
    """Run the parts.

    The loading of models, the watches on policy, kill switch and event loop and the progress rows are background tasks.
    At the end the tasks go first, then pool, Redis, gate, masker, shipper, ledger, traces and state: each is closed
    before what it writes to.

    Args:
        on_first_ready: called once, when the first tier can serve.
    """
    # What was imported stays for good. A full collection would walk through it each time, tens of milliseconds, while
    # every stream waits.
    gc.freeze()
    # Requests leave few cycles behind and make many objects; looking every 700 of them costs. With a much larger number
    # a long request's own objects are walked through in one go, while every stream waits.
    gc.set_threshold(5_000, 10, 10)
    if parts.redis is not None:
        parts.redis.start()
    tasks = [
        asyncio.create_task(_bring_up(parts), name="bring-up"),
        asyncio.create_task(_first_ready(parts, on_first_ready), name="first-ready"),
        asyncio.create_task(parts.policies.watch(), name="policy-watch"),
        asyncio.create_task(parts.switch.watch(), name="egress-switch"),
        asyncio.create_task(parts.dispatch.note_progress(), name="progress"),
        asyncio.create_task(parts.pool.mark_capacity(), name="capacity"),
        asyncio.create_task(loop_lag.watch(parts.clock, parts.metrics), name="loop-lag"),
    ]
    if parts.shipper is not None:
        parts.shipper.start()
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await close(parts)


async def close(parts: Parts) -> None:
    """Close every part; a fault in one does not keep the others open."""

    async def state() -> None:
        parts.state.close()

    async def traces() -> None:
        if parts.tracing is not None:
            closing = in_thread(parts.tracing.close, "weighbridge-last-spans")
            try:
                await asyncio.wait_for(closing, TRACES_S)
            except TimeoutError:
                log.warning("the last spans did not get to the collector in time and are lost")

    async def shipper() -> None:
        if parts.shipper is not None:
            await asyncio.to_thread(parts.shipper.stop)

    async def redis() -> None:
        if parts.redis is not None:
            await parts.redis.close()

    steps: tuple[tuple[str, Callable[[], Awaitable[object]]], ...] = (
        ("pool", lambda: parts.pool.close(parts.settings.pool.close_grace_s)),
        ("redis", redis),
        ("gate", parts.gate.close),
        ("masking", parts.masker.close),
        ("shipper", shipper),
        ("ledger", parts.ledger.close),
        ("traces", traces),
        ("state", state),
    )
    for name, step in steps:
        try:
            await step()
        except Exception as exc:
            log.error("closing %s failed", name)
            log_unexpected(log, exc, "-")


async def _bring_up(parts: Parts) -> None:
    """Masking first: until it is up nothing leaves. Where nothing ever can, its processes are not paid for."""
    if parts.gate.configured:
        await parts.masker.start()
        if not parts.masker.ready:
            log.error("masking did not start, so nothing can leave; local models are served all the same")
    else:
        log.info(
            "masking starts when a preview asks for it: no commercial API is configured, so nothing leaves"
        )
    try:
        await parts.pool.start()
    except (ConfigError, EngineStartFailed):
        # Each tier's reason is in the log already.
        log.error("no local tier came up; GET /health/ready tells what can still answer")
    except Exception as exc:
        log_unexpected(log, exc, "-")


async def _first_ready(parts: Parts, on_first_ready: Callable[[], None]) -> None:
    await parts.pool.first_ready()
    on_first_ready()
