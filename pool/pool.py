"""All local tiers of a gateway: loaded one after the other, kept up, closed together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from weighbridge.pool.processes import EngineRegister, ProcessId
from weighbridge.pool.tier import Tier
from weighbridge.pool.uptime import Record
from weighbridge.pool.worker import SERVING, Worker, WorkerState

log = logging.getLogger("weighbridge.pool")

MARK_S = 10.0
"""Seconds between two records of how long a worker has been up: so much a killed gateway leaves out at most."""


class Pool:
    """The tiers of one gateway.

    Args:
        tiers: in the order they are loaded.
        register: file that names the engines' processes, so that the next start ends what a crash left over.
        record: takes the periods in which workers are up.
    """

    def __init__(
        self, tiers: Iterable[Tier], *, register: Path | None = None, record: Record = lambda _: None
    ) -> None:
        self._tiers: dict[str, Tier] = {tier.road: tier for tier in tiers}
        self._register = None if register is None else EngineRegister(register)
        self._lives: list[asyncio.Task[None]] = []
        self._writing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        for tier in self._tiers.values():
            tier.on_change = self._note
            tier.on_capacity = record

    def tier(self, road: str) -> Tier | None:
        return self._tiers.get(road)

    def status(self) -> list[dict[str, Any]]:
        """One row a tier, see `Tier.status`."""
        return [tier.status() for tier in self._tiers.values()]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; it is looked at after every change of a worker's state."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def first_ready(self) -> None:
        """Wait until a tier can serve."""
        await self.until(lambda: any(tier.ready for tier in self._tiers.values()))

    async def start(self) -> None:
        """Bring the workers up; each serves as soon as it is, and is built anew when it is lost.

        Engines in this process load one after the other, the first of every tier before the second of any: two at once
        are slower on a CPU (69 s against 60 s). Those elsewhere are waited for beside them.

        Raises:
            ConfigError, EngineStartFailed: not one came up; the first one's reason.
        """
        if self._register is not None:
            leftover = await asyncio.to_thread(self._register.prune)
            if leftover:
                log.warning("ended %d engine processes that an earlier crash had left", len(leftover))
        elsewhere = [worker for tier in self._tiers.values() if tier.elsewhere for worker in tier.workers]
        for worker in elsewhere:
            self._begin(worker)
        here = [tier.workers for tier in self._tiers.values() if not tier.elsewhere]
        for n in range(max(map(len, here), default=0)):
            for workers in here:
                if n < len(workers):
                    self._begin(workers[n])
                    await workers[n].tried()
        for worker in elsewhere:
            await worker.tried()
        if self._writing is not None:
            await asyncio.wait((self._writing,))
        faults = [worker.fault for tier in self._tiers.values() for worker in tier.workers]
        if faults and faults[0] is not None and None not in faults:
            raise faults[0]

    async def mark_capacity(self) -> None:
        """Record every `MARK_S` seconds until when the workers have been up, until cancelled."""
        while True:
            await asyncio.sleep(MARK_S)
            for tier in self._tiers.values():
                tier.mark_capacity()

    async def close(self, grace_s: float) -> None:
        """Close every tier at once; what is in flight is aborted. Idempotent.

        Args:
            grace_s: seconds an engine gets to end by itself before it is killed.
        """
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        results = await asyncio.gather(
            *(tier.close(grace_s) for tier in self._tiers.values()), return_exceptions=True
        )
        if self._writing is not None:
            await asyncio.wait((self._writing,))
        if self._register is not None:
            await asyncio.to_thread(self._register.clear)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _begin(self, worker: Worker) -> None:
        self._lives.append(asyncio.create_task(self._live(worker), name=f"worker {worker}"))

    async def _live(self, worker: Worker) -> None:
        try:
            await worker.run()
        except Exception as exc:
            # A fault of ours must not pass for a worker that rests.
            log.error("%s: its supervision ended with %s", worker, type(exc).__name__)

    def _note(self, worker: Worker) -> None:
        self._changed.set()
        if worker.state is WorkerState.READY and self._register is not None and worker.processes:
            self._writing = asyncio.get_running_loop().create_task(self._note_processes(self._writing))

    async def _note_processes(self, before: asyncio.Task[None] | None) -> None:
        assert self._register is not None
        if before is not None:
            await asyncio.wait((before,))
        processes: list[ProcessId] = []
        for tier in self._tiers.values():
            for worker in tier.workers:
                if worker.state in SERVING:
                    processes += worker.processes
        await asyncio.to_thread(self._register.write, processes)
