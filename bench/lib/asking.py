"""The loop of every load: so many at a time, each asking again as soon as it has its answer."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

LONGEST_S = 60.0
"""Where a job does not say."""


async def keep_asking(
    job: dict[str, Any], askers: Sequence[Callable[[int], Awaitable[int]]]
) -> dict[str, Any]:
    """Ask until `job["seconds"]` (60) are over, or until `job["count"]` requests were asked.

    Args:
        job: also holds `bodies`, which are used in turn.
        askers: one for each request at a time; takes the place of a body, returns the number of events of its answer.

    Returns:
        `requests`, `events` of all, `seconds` until the last answer, `p50_ms` of whole answers.
    """
    limit: int | None = job.get("count")
    bodies = len(job["bodies"])
    took: list[float] = []
    asked = events = 0
    started = time.perf_counter()
    ends = started + job.get("seconds", LONGEST_S)

    async def ask(asker: Callable[[int], Awaitable[int]]) -> None:
        nonlocal asked, events
        while time.perf_counter() < ends and (limit is None or asked < limit):
            turn = asked % bodies
            asked += 1
            begun = time.perf_counter()
            heard = await asker(turn)
            took.append(time.perf_counter() - begun)
            events += heard

    async with asyncio.TaskGroup() as group:
        for asker in askers:
            group.create_task(ask(asker))
    return {
        "requests": len(took),
        "events": events,
        "seconds": time.perf_counter() - started,
        "p50_ms": statistics.median(took) * 1000,
    }
