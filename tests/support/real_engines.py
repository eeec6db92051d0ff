"""A whole gateway in this process on real vLLM engines, and how to hurt them."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.running import Running, running_gateway
from weighbridge.config.clock import SystemClock
from weighbridge.config.settings import TierSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.pool.engine import Engine, EngineCall
from weighbridge.pool.processes import ProcessId
from weighbridge.pool.worker import Worker


class RealFleet:
    """Makes vLLM engines and remembers them and every call they got."""

    def __init__(self) -> None:
        self.made: dict[str, list[Any]] = {}
        self.calls: list[EngineCall] = []
        self.metrics = Metrics()

    def make(self, road: str, settings: TierSettings, worker: str) -> Engine:
        from weighbridge.pool.vllm_engine import VllmEngine

        fleet = self

        class Watched(VllmEngine):
            async def stream(self, call: EngineCall) -> Any:
                fleet.calls.append(call)
                async for event in super().stream(call):
                    yield event

        engine = Watched(settings, road, SystemClock(), metrics=self.metrics, worker=worker)
        self.made.setdefault(road, []).append(engine)
        return engine


@asynccontextmanager
async def real_gateway(
    folder: Path, tiers: Mapping[str, Mapping[str, Any]], **more: Any
) -> AsyncIterator[tuple[Running, RealFleet]]:
    """A gateway with the given tiers on vLLM; every worker is up when it is yielded."""
    fleet = RealFleet()
    async with running_gateway(
        folder, factory=fleet.make, tiers=tiers, ready_within_s=600, **more
    ) as gateway:
        yield gateway, fleet


def core_of(worker: Worker) -> ProcessId:
    """The process that schedules; the first of an engine's children."""
    return worker.processes[0]


def hurt(process: ProcessId, how: signal.Signals) -> None:
    os.kill(process.pid, how)
