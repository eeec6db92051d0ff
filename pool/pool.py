"""All local tiers of a gateway: loaded one after the other, closed together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weighbridge.config.errors import ConfigError
from weighbridge.pool.engine import EngineStartFailed
from weighbridge.pool.processes import EngineRegister, ProcessId
from weighbridge.pool.tier import Tier

log = logging.getLogger("weighbridge.pool")


class Pool:
    """The tiers of one gateway.

    Args:
        tiers: in the order they are loaded.
        register: file that names the engines' processes, so that the next start ends what a crash left over.
    """

    def __init__(self, tiers: Iterable[Tier], *, register: Path | None = None) -> None:
        self._tiers: dict[str, Tier] = {tier.road: tier for tier in tiers}
        self._register = None if register is None else EngineRegister(register)

    def tier(self, road: str) -> Tier | None:
        return self._tiers.get(road)

    def status(self) -> list[dict[str, Any]]:
        """One row a tier, see `Tier.status`."""
        return [tier.status() for tier in self._tiers.values()]

    async def start(self) -> None:
        """Load the tiers one after the other; each serves as soon as it is up.

        One after the other, because two at once is slower on a CPU (69 s against 60 s). A tier that does not come up
        is left out and the others serve on.

        Raises:
            ConfigError, EngineStartFailed: not one tier came up; the first one's reason.
        """
        if self._register is not None:
            leftover = await asyncio.to_thread(self._register.prune)
            if leftover:
                log.warning("ended %d engine processes that an earlier crash had left", len(leftover))
        failures: list[ConfigError | EngineStartFailed] = []
        for tier in self._tiers.values():
            try:
                await tier.worker.start()
            except (ConfigError, EngineStartFailed) as exc:
                failures.append(exc)
            else:
                await self._note_processes()
        if failures and len(failures) == len(self._tiers):
            raise failures[0]

    async def close(self, grace_s: float) -> None:
        """Close every tier at once; what is in flight is aborted. Idempotent.

        Args:
            grace_s: seconds an engine gets to end by itself before it is killed.
        """
        results = await asyncio.gather(
            *(tier.close(grace_s) for tier in self._tiers.values()), return_exceptions=True
        )
        if self._register is not None:
            await asyncio.to_thread(self._register.clear)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _note_processes(self) -> None:
        if self._register is None:
            return
        processes: list[ProcessId] = []
        for tier in self._tiers.values():
            processes += tier.worker.processes
        await asyncio.to_thread(self._register.write, processes)
