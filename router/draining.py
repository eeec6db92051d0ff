"""Reading a commercial answer to its end after its caller has left, so that what it cost is known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from weighbridge.router.admitted import ClientGone
from weighbridge.router.delivery import Delivery

log = logging.getLogger("weighbridge.router")


async def drained(
    crossing: Coroutine[Any, Any, None], drain_s: float, delivery: Delivery, ends_now: Callable[[], bool]
) -> None:
    """Run `crossing`; when the caller leaves, let it read on for at most `drain_s` seconds.

    Whatever comes of it, the caller's leaving is then raised again. A second cancellation ends the reading at once.

    Args:
        ends_now: whether nothing is to be read on: the cancellation is our own doing, or nothing has left yet.
    """
    if drain_s <= 0:
        await crossing
        return
    delivery.reads_on = True
    # A task of its own: what a cancellation has reached cannot read on.
    task = asyncio.ensure_future(crossing)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        # Who is still there may yet be told something.
        delivery.discard = not (ends := ends_now())
        try:
            async with asyncio.timeout(0 if ends else drain_s):
                await asyncio.shield(task)
        except (TimeoutError, asyncio.CancelledError):
            log.debug("a commercial answer was not read to its end")
        except Exception as exc:
            log.debug("a commercial answer ended with %s while it was drained", type(exc).__name__)
        finally:
            task.cancel()
            await asyncio.wait((task,))
        raise
    finally:
        delivery.reads_on = False
    if delivery.discard:
        raise ClientGone
