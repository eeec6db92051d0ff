"""One engine's life as a state machine: legal transitions only.

COLD -> STARTING -> WARMING -> READY -> DRAINING -> CLOSED; FAILED when it does not come up, DEAD when it dies later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from weighbridge.config.clock import Clock
from weighbridge.config.errors import ApiError, ConfigError
from weighbridge.pool.engine import Engine, EngineStartFailed
from weighbridge.pool.processes import ProcessId

log = logging.getLogger("weighbridge.pool")


class WorkerState(StrEnum):
    COLD = "cold"
    STARTING = "starting"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    CLOSED = "closed"
    DEAD = "dead"
    FAILED = "failed"


_S = WorkerState
LEGAL: Final[Mapping[WorkerState, frozenset[WorkerState]]] = {
    _S.COLD: frozenset({_S.STARTING, _S.CLOSED}),
    _S.STARTING: frozenset({_S.WARMING, _S.FAILED, _S.CLOSED}),
    _S.WARMING: frozenset({_S.READY, _S.FAILED, _S.CLOSED}),
    _S.READY: frozenset({_S.DRAINING, _S.DEAD}),
    _S.DRAINING: frozenset({_S.CLOSED}),
    _S.DEAD: frozenset({_S.CLOSED}),
    _S.FAILED: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}


class IllegalTransition(Exception):
    """A worker was asked to become what it cannot become from here: a fault in our own code."""


class TierNotReady(ApiError):
    """The tier's model is still loading, or gone; another road may serve."""

    def __init__(self, road: str) -> None:
        super().__init__(
            503,
            f"{road} is not ready to serve at the moment.",
            type="server_error",
            code="tier_not_ready",
            retry_after_s=5,
        )


class Worker:
    """An engine with a state.

    Args:
        road: the tier's name, for the log.
        engine: not started yet.
        model: what the log calls the model, such as "SmolLM2-135M-Instruct, embedded".
        start_timeout_s: seconds for loading and warming together.
        on_change: called after every change of state.
    """

    def __init__(
        self,
        road: str,
        engine: Engine,
        clock: Clock,
        *,
        model: str,
        start_timeout_s: float,
        on_change: Callable[[WorkerState], None] = lambda _: None,
    ) -> None:
        self.engine: Final = engine
        self.road: Final = road
        self._clock = clock
        self._model = model
        self._start_timeout_s = start_timeout_s
        self._on_change = on_change
        self._state = WorkerState.COLD
        self._closing: asyncio.Task[None] | None = None
        self.since: float = clock.monotonic()
        """When the present state began, in monotonic seconds."""
        self.reason = ""
        """Why it is FAILED or DEAD, in one line."""

    @property
    def state(self) -> WorkerState:
        """The state, after looking whether the engine still lives."""
        if self._state is WorkerState.READY and not self.engine.alive:
            self.reason = "the engine died"
            log.error("%s: the engine died; the tier is skipped", self.road)
            self._become(WorkerState.DEAD)
        return self._state

    @property
    def processes(self) -> tuple[ProcessId, ...]:
        """The engine's child processes; an engine without any has none to name."""
        return tuple(getattr(self.engine, "processes", ()))

    async def start(self) -> None:
        """Load and warm the engine.

        Raises:
            ConfigError, EngineStartFailed: it did not come up; the state is FAILED and nothing is left running.
        """
        began = self._clock.monotonic()
        self._become(WorkerState.STARTING)
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await self.engine.start()
                self._become(WorkerState.WARMING)
                log.info("loading %s: warming", self.road)
                await self.engine.warm()
            if not self.engine.alive:
                raise EngineStartFailed("the engine died while it warmed up")
        except asyncio.CancelledError:
            await self.close(0.0)
            raise
        except Exception as exc:
            if self._closing is not None:
                raise EngineStartFailed(f"{self.road}: closed while it was loading") from None
            self.reason = self._explain(exc)
            log.error("%s did not start: %s", self.road, self.reason)
            self._become(WorkerState.FAILED)
            await self.engine.close(0.0)
            if isinstance(exc, ConfigError):
                raise
            raise EngineStartFailed(f"{self.road}: {self.reason}") from None
        self._become(WorkerState.READY)
        log.info("%s ready in %.0f s (%s)", self.road, self._clock.monotonic() - began, self._model)

    async def close(self, grace_s: float) -> None:
        """End the engine, from any state; may be called again and from several tasks."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(grace_s))
        # The engine's processes must be gone even when whoever waits for it is cancelled.
        await asyncio.shield(self._closing)

    async def _close(self, grace_s: float) -> None:
        if self._state is WorkerState.READY:
            self._become(WorkerState.DRAINING)
        try:
            await self.engine.close(grace_s)
        finally:
            if self._state is not WorkerState.CLOSED:
                self._become(WorkerState.CLOSED)

    def _explain(self, exc: Exception) -> str:
        if isinstance(exc, TimeoutError):
            return f"not ready within {self._start_timeout_s:.0f} s (pool.start_timeout_s)"
        if isinstance(exc, ConfigError | EngineStartFailed):
            return str(exc)
        return type(exc).__name__

    def _become(self, state: WorkerState) -> None:
        if state not in LEGAL[self._state]:
            raise IllegalTransition(f"{self.road}: {self._state} -> {state}")
        self._state = state
        self.since = self._clock.monotonic()
        self._on_change(state)
