"""One worker of a tier: an engine with a state, brought up, watched, and built anew when it is lost.

COLD -> STARTING -> WARMING -> READY -> DRAINING -> CLOSED; READY -> SUSPECT -> READY or DEAD; DEAD -> STARTING after a
pause, or FAILED when that happened too often.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from weighbridge.config.clock import Clock
from weighbridge.config.errors import ApiError, ConfigError
from weighbridge.config.settings import PoolSettings
from weighbridge.pool.engine import Engine, EngineStartFailed
from weighbridge.pool.health import watch_engine
from weighbridge.pool.processes import ProcessId, kill
from weighbridge.pool.threads import in_thread

log = logging.getLogger("weighbridge.pool")


class WorkerState(StrEnum):
    COLD = "cold"
    STARTING = "starting"
    WARMING = "warming"
    READY = "ready"
    SUSPECT = "suspect"
    DRAINING = "draining"
    CLOSED = "closed"
    DEAD = "dead"
    FAILED = "failed"


_S = WorkerState
LEGAL: Final[Mapping[WorkerState, frozenset[WorkerState]]] = {
    _S.COLD: frozenset({_S.STARTING, _S.CLOSED}),
    _S.STARTING: frozenset({_S.WARMING, _S.DEAD, _S.FAILED, _S.CLOSED}),
    _S.WARMING: frozenset({_S.READY, _S.DEAD, _S.FAILED, _S.CLOSED}),
    _S.READY: frozenset({_S.SUSPECT, _S.DRAINING, _S.DEAD}),
    # It still serves: a core busy with a long step answers late, and comes back.
    _S.SUSPECT: frozenset({_S.READY, _S.DRAINING, _S.DEAD}),
    _S.DRAINING: frozenset({_S.CLOSED}),
    _S.DEAD: frozenset({_S.STARTING, _S.FAILED, _S.CLOSED}),
    _S.FAILED: frozenset({_S.CLOSED}),
    _S.CLOSED: frozenset(),
}
SERVING: Final = frozenset({_S.READY, _S.SUSPECT})
OVER: Final = frozenset({_S.FAILED, _S.CLOSED})
"""Nothing comes after these but the end."""


_END_S: Final = 15.0
"""Seconds past its grace that an engine may take to close; its processes are killed after that."""


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
    """An engine with a state. `run` is its life.

    Args:
        road: the tier's name, for the log.
        name: the worker's name inside its tier.
        make_engine: makes an engine that is not started; called for every build.
        model: what the log calls the model, such as "SmolLM2-135M-Instruct, embedded".
        settings: time limits, probes and restarts.
        on_change: called after every change of state.
    """

    def __init__(
        self,
        road: str,
        name: str,
        make_engine: Callable[[], Engine],
        clock: Clock,
        *,
        model: str,
        settings: PoolSettings,
        on_change: Callable[[Worker], None] = lambda _: None,
    ) -> None:
        self.road: Final = road
        self.name: Final = name
        self.engine: Engine = make_engine()
        """The present engine; another one after a restart."""
        self._make_engine = make_engine
        self._clock = clock
        self._model = model
        self._settings = settings
        self._on_change = on_change
        self._state = WorkerState.COLD
        self._closing: asyncio.Task[None] | None = None
        self._restarted_at: deque[float] = deque()
        self._tried = asyncio.Event()
        self.restarts = 0
        """Engines built after the first one."""
        self.since: float = clock.monotonic()
        """When the present state began, in monotonic seconds."""
        self.reason = ""
        """Why it is SUSPECT, DEAD or FAILED, in one line."""
        self.fault: ConfigError | EngineStartFailed | None = None
        """Why the last build did not come up."""

    @property
    def state(self) -> WorkerState:
        """The state, after looking whether the engine still lives."""
        if self._state in SERVING and not self.engine.alive:
            self._die("the engine died")
        return self._state

    @property
    def serving(self) -> bool:
        """Whether a request may be sent here now."""
        return self.state in SERVING

    @property
    def processes(self) -> tuple[ProcessId, ...]:
        """The engine's child processes; an engine without any has none to name."""
        return tuple(getattr(self.engine, "processes", ()))

    async def tried(self) -> None:
        """Wait until the first build has come up or failed."""
        await self._tried.wait()

    async def run(self) -> None:
        """Bring the engine up and keep it up, until it is given up or this is cancelled. Called once.

        Cancelled, it leaves a build nothing to run on; an engine that is up stays up for `close`.
        """
        try:
            await self._build()
            while self._state not in OVER and self._closing is None:
                if self._state in SERVING:
                    self._die(await self._watch())
                await self._replace()
        finally:
            self._tried.set()

    async def close(self, grace_s: float) -> None:
        """End the engine, from any state; may be called again and from several tasks. Cancel `run` first."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(grace_s))
        # The engine's processes must be gone even when whoever waits for it is cancelled.
        await asyncio.shield(self._closing)

    async def _watch(self) -> str:
        """Why the engine has to be replaced, once it has to be. An engine that cannot be watched counts as lost."""
        try:
            return await watch_engine(self.engine, self._settings, self._clock, self._suspect)
        except Exception as exc:
            return f"it cannot be watched ({type(exc).__name__})"

    # ---- building ----

    async def _build(self) -> None:
        """Load and warm the engine: READY afterwards, else DEAD, or FAILED where no other try would help."""
        began = self._clock.monotonic()
        self._become(WorkerState.STARTING)
        try:
            async with asyncio.timeout(self._settings.start_timeout_s):
                await self.engine.start()
                self._become(WorkerState.WARMING)
                log.info("loading %s: warming", self)
                await self.engine.warm()
            if not self.engine.alive:
                raise EngineStartFailed("the engine died while it warmed up")
        except asyncio.CancelledError as exc:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                await self.close(0.0)
                raise
            # Nobody cancelled us: something inside the engine was.
            if self._closing is None:
                self._failed(EngineStartFailed(f"its start was cancelled ({type(exc).__name__})"))
                await self._end_engine()
            return
        except Exception as exc:
            if self._closing is None:
                self._failed(exc)
                await self._end_engine()
            return
        finally:
            self._tried.set()
        self.fault, self.reason = None, ""
        self._become(WorkerState.READY)
        log.info("%s ready in %.0f s (%s)", self, self._clock.monotonic() - began, self._model)

    async def _replace(self) -> None:
        """Take the dead engine away and build another one, after a pause; FAILED when that happened too often."""
        if self._state is not WorkerState.DEAD:
            return
        await self._end_engine()
        pause_s = self._pause_s()
        if pause_s is None:
            log.error(
                "%s: given up after %d restarts within %.0f s (pool.max_restarts); restart the gateway when the cause "
                "is gone: %s",
                self,
                self._settings.max_restarts,
                self._settings.restart_window_s,
                self.reason,
            )
            self._become(WorkerState.FAILED)
            return
        log.warning("%s: building a new engine in %.0f s", self, pause_s)
        await asyncio.sleep(pause_s)
        self.restarts += 1
        try:
            self.engine = self._make_engine()
        except Exception as exc:
            self._failed(exc)
            return
        await self._build()

    def _failed(self, exc: Exception) -> None:
        """A build did not come up: another try may help, but not where the settings are wrong."""
        self.reason = self._explain(exc)
        wrong = isinstance(exc, ConfigError)
        self.fault = exc if isinstance(exc, ConfigError) else EngineStartFailed(f"{self}: {self.reason}")
        log.error("%s did not start: %s", self, self.reason)
        if wrong:
            self._become(WorkerState.FAILED)
        elif self._state is not WorkerState.DEAD:
            self._become(WorkerState.DEAD)

    async def _end_engine(self) -> None:
        """Take an engine away that has failed, whatever state it is in; its processes end in any case."""
        processes = self.processes
        try:
            async with asyncio.timeout(_END_S):
                await self.engine.close(0.0)
        except Exception as exc:
            log.error("%s: its old engine did not close (%s)", self, type(exc).__name__)
        if processes and (leftover := await in_thread(lambda: kill(processes), f"end {self}")):
            log.warning("%s: %d engine processes had to be killed", self, len(leftover))

    def _pause_s(self) -> float | None:
        """Seconds before the next restart, doubled with each one in the window; None when there were too many."""
        now, settings = self._clock.monotonic(), self._settings
        while self._restarted_at and self._restarted_at[0] <= now - settings.restart_window_s:
            self._restarted_at.popleft()
        if len(self._restarted_at) >= settings.max_restarts:
            return None
        pause_s = min(
            settings.restart_backoff_s * 2.0 ** len(self._restarted_at), settings.restart_backoff_max_s
        )
        self._restarted_at.append(now)
        return pause_s

    # ---- states ----

    def _suspect(self, reason: str | None) -> None:
        """The watch has a doubt about the engine, or none any more."""
        if reason is not None and self._state is WorkerState.READY:
            self.reason = reason
            log.warning("%s: %s", self, reason)
            self._become(WorkerState.SUSPECT)
        elif reason is None and self._state is WorkerState.SUSPECT:
            self.reason = ""
            log.info("%s: answers again", self)
            self._become(WorkerState.READY)

    def _die(self, reason: str) -> None:
        if self._state in SERVING:
            self.reason = reason
            log.error("%s: %s; its requests go elsewhere", self, reason)
            self._become(WorkerState.DEAD)

    async def _close(self, grace_s: float) -> None:
        if self._state in SERVING:
            self._become(WorkerState.DRAINING)
        try:
            async with asyncio.timeout(grace_s + _END_S):
                await self.engine.close(grace_s)
        except TimeoutError:
            log.error("%s: its engine did not close; its processes are killed", self)
            await in_thread(lambda: kill(self.processes), f"end {self}")
        finally:
            if self._state is not WorkerState.CLOSED:
                self._become(WorkerState.CLOSED)

    def _explain(self, exc: Exception) -> str:
        if isinstance(exc, TimeoutError):
            return f"not ready within {self._settings.start_timeout_s:.0f} s (pool.start_timeout_s)"
        if isinstance(exc, ConfigError | EngineStartFailed):
            return str(exc)
        return type(exc).__name__

    def _become(self, state: WorkerState) -> None:
        if state not in LEGAL[self._state]:
            raise IllegalTransition(f"{self}: {self._state} -> {state}")
        self._state = state
        self.since = self._clock.monotonic()
        self._on_change(self)

    def __str__(self) -> str:
        return self.road if self.name == "0" else f"{self.road}/{self.name}"
