"""What the ledger adds to an answer: the same gateway with it and without it, block by block."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.direct import Paper, admitted
from tests.support.running import Running, running_gateway
from weighbridge.observability.ledger import Ledger

BLOCK = 40
"""Requests of one block; blocks with and without alternate, and every other pair is turned round."""


class NoLedger:
    """Takes every row and keeps none; whoever waits for one has it."""

    def __init__(self) -> None:
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._done.set_result(None)

    def intent(self, row: object) -> asyncio.Future[None]:
        return self._done

    def completion(self, row: object) -> asyncio.Future[None]:
        return self._done

    def attempt(self, row: object) -> None:
        pass

    def progress(self, row: object) -> None:
        pass


@dataclass(frozen=True)
class Added:
    """Milliseconds of answers at one concurrency: pooled over all blocks, and the difference pair by pair."""

    concurrency: int
    stream: bool
    with_p50: float
    without_p50: float
    with_p99: float
    without_p99: float
    added_p50: float
    """Median over the pairs of the difference of their medians."""
    with_cpu: float
    without_cpu: float
    """CPU of this process for an answer, the ledger's thread included: what is left of the comparison on a machine that
    others use. The smallest of the blocks."""


async def measure(folder: Path, pairs: int, concurrencies: Sequence[int]) -> list[Added]:
    """An engine answers at once with three tokens: what is left is the gateway and its ledger."""
    tiers = {"local-8b": {"max_num_seqs": 256}}
    async with running_gateway(folder, tiers=tiers) as gateway:
        kinds = [(count, stream) for count in concurrencies for stream in (False, True)]
        return [await _pairs(gateway, pairs, count, stream) for count, stream in kinds]


async def _pairs(gateway: Running, pairs: int, concurrency: int, stream: bool) -> Added:
    dispatch: Any = gateway.parts.dispatch
    real, none = gateway.parts.ledger, NoLedger()
    taken: dict[bool, list[list[float]]] = {True: [], False: []}
    cpu = {True: float("inf"), False: float("inf")}
    try:
        for turn in range(pairs + 1):
            for kept in (True, False) if turn % 2 else (False, True):
                ledger: Ledger | NoLedger = real if kept else none
                dispatch._ledger = ledger
                began = time.process_time()
                block = await _block(gateway, concurrency, stream)
                used_ms = (time.process_time() - began) * 1000 / len(block)
                if turn:  # the first one warms up
                    taken[kept].append(block)
                    cpu[kept] = min(cpu[kept], used_ms)
    finally:
        dispatch._ledger = real
    having, lacking = ([ms for block in taken[kept] for ms in block] for kept in (True, False))
    return Added(
        concurrency,
        stream,
        statistics.median(having),
        statistics.median(lacking),
        _p99(having),
        _p99(lacking),
        statistics.median(
            statistics.median(a) - statistics.median(b)
            for a, b in zip(taken[True], taken[False], strict=True)
        ),
        cpu[True],
        cpu[False],
    )


async def _block(gateway: Running, concurrency: int, stream: bool) -> list[float]:
    left = iter(range(max(BLOCK, 4 * concurrency)))
    took: list[float] = []

    async def caller() -> None:
        for _ in left:
            request, paper = admitted(gateway, "local-8b", stream, "Hello"), Paper()
            began = time.perf_counter()
            await gateway.parts.dispatch.run(request, paper)
            took.append((time.perf_counter() - began) * 1000)
            if not paper.ended:
                raise RuntimeError("an answer broke off")

    await asyncio.gather(*(caller() for _ in range(concurrency)))
    return took


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * len(values))]
