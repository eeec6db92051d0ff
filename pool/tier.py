"""A local road: its model, its slots and its engine."""

from __future__ import annotations

from typing import Any, Final

from weighbridge.config.clock import Clock
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ContextLengthExceeded
from weighbridge.config.settings import TierSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.pool.embedded_model import MODEL_NAME
from weighbridge.pool.engine import Engine
from weighbridge.pool.queue_lock import QueueClosed, QueueLock, QueueLockTimeout, Slot, SlotLease
from weighbridge.pool.worker import TierNotReady, Worker, WorkerState

TEMPLATE_TOKENS: Final = 256
"""Tokens allowed for what the chat template adds to the messages."""


def model_name(settings: TierSettings) -> str:
    """What the tier's model is called in `/v1/models` and the log."""
    if settings.served_model_name is not None:
        return settings.served_model_name
    return MODEL_NAME if settings.model_path is None else settings.model_path.resolve().name


class Tier:
    """One local road.

    Args:
        road: its name.
        settings: its settings.
        engine: not started yet.
        clock: for deadlines and states.
        metrics: slots, queue and readiness are kept there.
        start_timeout_s: seconds the engine may take to come up.
    """

    def __init__(
        self,
        road: str,
        settings: TierSettings,
        engine: Engine,
        clock: Clock,
        metrics: Metrics,
        *,
        start_timeout_s: float = 900.0,
    ) -> None:
        self.road: Final = road
        self.model: Final = model_name(settings)
        self.embedded: Final = settings.model_path is None
        self.lock: Final = QueueLock(settings.slot_count, settings.max_waiting, clock, on_change=self._count)
        self._engine = engine
        self._clock = clock
        self._in_use = metrics.slots_in_use.labels(road)
        self._waiting = metrics.waiting.labels(road)
        self._ready = metrics.tier_ready.labels(road)
        self._wait_seconds = metrics.queue_wait_seconds.labels(road)
        self._timeouts = metrics.queue_timeouts_total.labels(road)
        metrics.slots_total.labels(road).set(self.lock.slots)
        shown = f"{self.model}, embedded" if self.embedded else self.model
        self.worker: Final = Worker(
            road, engine, clock, model=shown, start_timeout_s=start_timeout_s, on_change=self._changed
        )

    @property
    def max_model_len(self) -> int:
        """The window in tokens, prompt and answer together."""
        return self._engine.max_model_len

    @property
    def state(self) -> WorkerState:
        return self.worker.state

    @property
    def ready(self) -> bool:
        """Whether a request may be sent here now."""
        return self.worker.state is WorkerState.READY

    async def lease(self, deadline: Deadline) -> SlotLease:
        """Wait for a slot, in the order of asking. The caller releases it.

        Raises:
            TierNotReady: the engine is not up, or went away while waiting.
            QueueLockTimeout, QueueFull: no slot in time, or too many wait already.
        """
        self._require_ready()
        try:
            slot = await self._acquire(deadline)
        except QueueClosed:
            raise TierNotReady(self.road) from None
        try:
            self._require_ready()
        except TierNotReady:
            slot.release()
            raise
        return SlotLease(slot, self._engine)

    async def fits(self, body: dict[str, Any], body_bytes: int) -> None:
        """Check the prompt against the window; short bodies pass without being tokenised.

        A token is at least one byte of the body, so a body shorter than the window always fits. A tier that is not
        ready cannot tell, and lets everything pass: `lease` will say so.

        Raises:
            ContextLengthExceeded: the prompt leaves no room for a single token of answer.
            InvalidRequest: the messages cannot be rendered for this model.
        """
        if body_bytes + TEMPLATE_TOKENS < self.max_model_len or not self.ready:
            return
        tokens = await self._engine.count_tokens(body)
        if tokens >= self.max_model_len:
            raise ContextLengthExceeded(tokens, self.max_model_len)

    async def close(self, grace_s: float) -> None:
        """Turn away who waits and end the engine; see `Worker.close`."""
        self.lock.close()
        await self.worker.close(grace_s)

    def status(self) -> dict[str, Any]:
        """Numbers and names for `/health/ready` and the admin API."""
        state = self.state
        load = self._engine.load() if state in (WorkerState.READY, WorkerState.DRAINING) else None
        return {
            "road": self.road,
            "model": self.model,
            "embedded": self.embedded,
            "ready": state is WorkerState.READY,
            "state": str(state),
            "reason": self.worker.reason,
            "state_age_s": round(self._clock.monotonic() - self.worker.since, 3),
            "max_model_len": self.max_model_len,
            "slots": self.lock.slots,
            "slots_in_use": self.lock.in_use,
            "waiting": self.lock.waiting,
            "max_waiting": self.lock.max_waiting,
            "engine_unfinished": 0 if load is None else load.unfinished,
            "engine_queued_tokens": 0 if load is None else load.queued_tokens,
        }

    def _require_ready(self) -> None:
        if not self.ready:
            raise TierNotReady(self.road)

    async def _acquire(self, deadline: Deadline) -> Slot:
        try:
            slot = await self.lock.acquire(deadline)
        except QueueLockTimeout:
            self._timeouts.inc()
            raise
        self._wait_seconds.observe(slot.waited_ms / 1000)
        return slot

    def _count(self) -> None:
        self._in_use.set(self.lock.in_use)
        self._waiting.set(self.lock.waiting)

    def _changed(self, state: WorkerState) -> None:
        self._ready.set(1.0 if state is WorkerState.READY else 0.0)
        if state is WorkerState.DEAD:
            self.lock.close()
