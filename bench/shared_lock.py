"""What sharing a tier's slots by Redis adds to a request, beside the queue lock in this process, in turns of one run.

Milliseconds to take a slot and give it back: with a slot free, with more callers than slots (then the wait for others
is in both), and with a Redis that swallows everything. Redis is one of its own on this machine. See docs/redis.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib import machine
from bench.lib.measuring import table
from tests.support.redis_server import redis_server
from tests.support.replicas import CLOCK, replica, terms
from tests.support.wire import wire
from weighbridge.pool.queue_lock import QueueLock
from weighbridge.pool.slot_lock import SlotLock

SLOTS = 64
HOLD_S = 0.002
GOAL_MS = 5.0


async def one_by_one(lock: SlotLock, count: int) -> list[float]:
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        slot = await lock.acquire(terms())
        taken.append(1000 * (time.perf_counter() - began))
        slot.release()
        # A request does more than this; what it gave back is told meanwhile.
        await asyncio.sleep(0.0005)
    return taken


async def crowd(lock: SlotLock, count: int, callers: int) -> list[float]:
    taken: list[float] = []

    async def call() -> None:
        while len(taken) < count:
            began = time.perf_counter()
            slot = await lock.acquire(terms())
            taken.append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(HOLD_S)
            slot.release()

    await asyncio.gather(*(call() for _ in range(callers)))
    return taken


def local() -> QueueLock:
    lock = QueueLock(10_000, CLOCK)
    lock.open("worker", SLOTS)
    return lock


@asynccontextmanager
async def swallowed(port: int) -> AsyncIterator[SlotLock]:
    """A lock whose Redis has begun to swallow everything, and nobody knows yet."""
    async with wire(port) as line, replica(line.url, slots=SLOTS, operation_ms=50, lease_s=10) as one:
        line.swallows = True
        yield one.lock


async def measure(rounds: int, count: int) -> list[tuple[str, list[float], list[float]]]:
    works = (
        ("a slot is free", lambda lock: one_by_one(lock, count)),
        ("32 callers, 64 slots", lambda lock: crowd(lock, count, 32)),
        ("96 callers, 64 slots", lambda lock: crowd(lock, count, 96)),
    )
    found: dict[str, tuple[list[float], list[float]]] = {}
    with TemporaryDirectory() as folder, redis_server(Path(folder)) as server:
        for _ in range(rounds):
            for what, work in works:
                mine, shared = found.setdefault(what, ([], []))
                mine += await work(local())
                async with replica(server.url, slots=SLOTS, lease_s=10) as one:
                    shared += await work(one.lock)
            mine, shared = found.setdefault("swallowed, 32 callers, 64 slots", ([], []))
            mine += await crowd(local(), 10 * count, 32)
            async with swallowed(server.port) as lock:
                shared += await crowd(lock, 10 * count, 32)
    return [(what, mine, shared) for what, (mine, shared) in found.items()]


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=2000, help="slots taken in a round")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    print(", ".join(f"{name}: {value}" for name, value in machine.description().items()))
    found = asyncio.run(measure(options.rounds, options.count))
    rows, figures = [], {}
    for what, mine, shared in found:
        at = {share: (percentile(mine, share), percentile(shared, share)) for share in (0.5, 0.99)}
        rows.append(
            [
                what,
                *(f"{value:.3f}" for pair in at.values() for value in pair),
                f"{at[0.99][1] - at[0.99][0]:+.2f}",
            ]
        )
        figures[what] = {
            "p50": at[0.5],
            "p99": at[0.99],
            "mean": (statistics.fmean(mine), statistics.fmean(shared)),
        }
    head = ["ms to get a slot", "p50 here", "p50 Redis", "p99 here", "p99 Redis", "p99 added"]
    print(table(head, rows))
    print(
        f"load average {machine.load_average():.1f}; goal: p99 added at most {GOAL_MS:g} ms, swallowed or not"
    )
    if options.json is not None:
        options.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
