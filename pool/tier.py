"""A local road: its model, its workers, their slots and the queue for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from msgspec.structs import replace

from weighbridge.config.clock import Clock
from weighbridge.config.errors import ContextLengthExceeded, InvalidRequest
from weighbridge.config.settings import PoolSettings, TierSettings
from weighbridge.config.usage import TokenMeter
from weighbridge.observability.metrics import Metrics
from weighbridge.pool.embedded_model import MODEL_NAME
from weighbridge.pool.engine import Engine, EngineUnavailable
from weighbridge.pool.engine_body import MAX_CHOICES
from weighbridge.pool.expectation import Expectation
from weighbridge.pool.lease import SlotLease
from weighbridge.pool.queue_lock import LocalSlot, QueueLock
from weighbridge.pool.shared_lock import SharedQueueLock
from weighbridge.pool.shared_place import shared_place_names
from weighbridge.pool.slot_lock import Ask, NoFreeSlot, QueueClosed, QueueFull, QueueLockTimeout, WaitTooLong
from weighbridge.pool.uptime import Record, Uptime
from weighbridge.pool.worker import SERVING, TierNotReady, Worker, WorkerState
from weighbridge.state.slot_leases import SlotLeases

log = logging.getLogger("weighbridge.pool")

TEMPLATE_TOKENS: Final = 256
"""Tokens allowed for what the chat template adds to the messages."""

MakeEngine = Callable[[TierSettings, str], Engine]
"""Makes the engine of a worker: its settings and its name."""

_NEAREST: Final = (
    WorkerState.READY,
    WorkerState.SUSPECT,
    WorkerState.WARMING,
    WorkerState.STARTING,
    WorkerState.DRAINING,
    WorkerState.DEAD,
    WorkerState.COLD,
    WorkerState.FAILED,
    WorkerState.CLOSED,
)
"""A tier is in the state of the worker that is nearest to serving."""

_GONE: Final = frozenset({WorkerState.DEAD, WorkerState.FAILED, WorkerState.CLOSED})
"""States that end a worker's period of being up."""


def model_name(settings: TierSettings) -> str:
    """What the tier's model is called in `/v1/models` and the log."""
    if settings.served_model_name is not None:
        return settings.served_model_name
    if settings.endpoint_model is not None:
        return settings.endpoint_model
    return MODEL_NAME if settings.model_path is None else settings.model_path.resolve().name


class Tier:
    """One local road.

    Args:
        road: its name.
        settings: its settings.
        make_engine: makes the engine of one worker, not started; called for every build.
        pool: time limits, probes and restarts of the workers.
        leases: its slots are shared with other gateways by them; None: they are this gateway's alone.
        clock: for deadlines and states.
        metrics: slots, queue and readiness are kept there.
    """

    def __init__(
        self,
        road: str,
        settings: TierSettings,
        make_engine: MakeEngine,
        clock: Clock,
        metrics: Metrics,
        *,
        pool: PoolSettings | None = None,
        leases: SlotLeases | None = None,
    ) -> None:
        self.road: Final = road
        self.model: Final = model_name(settings)
        self.embedded: Final = settings.model_path is None and not settings.endpoints
        self.elsewhere: Final = bool(settings.endpoints)
        """Whether it is served by other machines; nothing is loaded here then."""
        self.adapters: Final = tuple(settings.lora_adapters)
        """Names of the LoRA adapters this tier answers with."""
        self.lock: Final = (
            QueueLock(settings.max_waiting, clock)
            if leases is None
            else SharedQueueLock(
                settings.max_waiting, clock, leases, keys=shared_place_names(settings.endpoints)
            )
        )
        self.expectation: Final = Expectation()
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self.on_change: Callable[[Worker], None] = lambda _: None
        """Called after every change of a worker's state; the pool sets it."""
        self.on_capacity: Record = lambda _: None
        """Takes the periods in which workers are up; the pool sets it."""
        self._up: dict[str, Uptime] = {}
        """The present period of each worker that is up, by its name."""
        self._ending: list[Uptime] = []
        """Periods of workers that are gone while some of their slots are not back."""
        metrics.slots_in_use.labels(road).follow(lambda: self.lock.in_use)
        metrics.slots_total.labels(road).follow(lambda: self.lock.slots)
        metrics.waiting.labels(road).follow(lambda: self.lock.waiting)
        metrics.kv_reserved_tokens.labels(road).follow(lambda: self.lock.reserved_tokens)
        metrics.kv_budget_tokens.labels(road).follow(lambda: self.lock.budget_tokens)
        if isinstance(self.lock, SharedQueueLock):
            shared = self.lock
            metrics.slots_in_use_everywhere.labels(road).follow(lambda: shared.in_use_everywhere)
            metrics.slots_on_own_share.labels(road).follow(lambda: shared.on_own)
        self._ready = metrics.tier_ready.labels(road)
        self._wait_seconds = metrics.queue_wait_seconds.labels(road)
        self._timeouts = metrics.queue_timeouts_total.labels(road)
        shown = f"{self.model}, embedded" if self.embedded else self.model
        self.workers: Final[Sequence[Worker]] = tuple(
            self._worker(n, make_engine, shown, pool or PoolSettings()) for n in range(settings.worker_count)
        )
        self._by_name = {worker.name: worker for worker in self.workers}
        self._most_reserved = self._half_a_worker()

    @property
    def max_model_len(self) -> int:
        """The window in tokens, prompt and answer together."""
        return self.workers[0].engine.max_model_len

    @property
    def state(self) -> WorkerState:
        """The state of the worker that is nearest to serving."""
        return min((worker.state for worker in self.workers), key=_NEAREST.index)

    @property
    def ready(self) -> bool:
        """Whether a request may be sent here now."""
        return any(worker.serving for worker in self.workers)

    @property
    def recovering(self) -> bool:
        """Whether a worker is up or may come up again, so that waiting for one makes sense."""
        return any(worker.state not in (WorkerState.FAILED, WorkerState.CLOSED) for worker in self.workers)

    def serves_besides(self, failed: Collection[str]) -> bool:
        """Whether a worker serves that is none of `failed`."""
        return any(worker.serving and worker.name not in failed for worker in self.workers)

    async def lease(self, ask: Ask, task: str, body: dict[str, Any], body_bytes: int) -> SlotLease:
        """Wait for a slot in turn. The caller releases it.

        Args:
            ask: its tokens are filled in here, estimated from the rest.

        Raises:
            InvalidRequest: more answers are asked for than may be.
            TierNotReady: no worker is up, or the last one went away while waiting.
            QueueLockTimeout, QueueFull: no slot in time, or too many wait already.
        """
        answer = self._expected_answer(task, body)
        read = prompt_bytes(body, body_bytes)
        prompt = min(self.expectation.prompt_tokens(read), self.max_model_len)
        ask = replace(ask, tokens=min(prompt + answer, self._most_reserved))
        while True:
            slot = await self._acquire(ask)
            worker = self._by_name[slot.place]
            if worker.serving:
                return SlotLease(slot, worker.engine, self._up[slot.place], answer, read)
            # It has died and nobody had noticed: looking at it has closed its place.
            slot.release()

    def _expected_answer(self, task: str, body: dict[str, Any]) -> int:
        n = choices(body)
        if n > MAX_CHOICES:
            # The engine would say so too, after the request had waited and made others wait.
            raise InvalidRequest(f"n must be at most {MAX_CHOICES}.", param="n")
        # More sequences than the engine runs hold no cache.
        return self.expectation.answer_tokens(task, asked_tokens(body), min(n, self._settings.max_num_seqs))

    def _half_a_worker(self) -> int:
        """The most tokens one request may reserve: one that needed a worker whole would keep all others waiting for an
        idle one. What the engine then lacks, it preempts."""
        budgets = [
            budget for worker in self.workers if (budget := self._kv_budget(worker.engine)) is not None
        ]
        return (
            max(1, min(budgets) // 2) if budgets else self.max_model_len * (self._settings.max_num_seqs + 1)
        )

    def learn(self, task: str, body: dict[str, Any], lease: SlotLease, meter: TokenMeter) -> None:
        """Take a finished answer into the expectations."""
        self.expectation.learn(task, lease.prompt_bytes, meter.prompt, meter.completion, choices(body))

    async def fits(self, body: dict[str, Any], body_bytes: int) -> None:
        """Check the prompt against the window; short bodies pass without being tokenised.

        A token is at least one byte of the body, so a body shorter than the window always fits. A tier that is not
        ready cannot tell, and lets everything pass: `lease` will say so.

        Raises:
            ContextLengthExceeded: the prompt leaves no room for a single token of answer.
            InvalidRequest: the messages cannot be rendered for this model.
        """
        if body_bytes + TEMPLATE_TOKENS < self.max_model_len:
            return
        for worker in self.workers:
            if not worker.serving:
                continue
            try:
                tokens = await worker.engine.count_tokens(body)
            except EngineUnavailable:
                # It died over it, or is about to: another one can count as well.
                continue
            if tokens >= self.max_model_len:
                raise ContextLengthExceeded(tokens, self.max_model_len)
            return

    def mark_capacity(self) -> None:
        """Record until when its workers have been up."""
        self._ending = [uptime for uptime in self._ending if not uptime.closed]
        for uptime in (*self._up.values(), *self._ending):
            uptime.mark()

    async def close(self, grace_s: float) -> None:
        """Turn away who waits and end the engines; see `Worker.close`."""
        self.lock.close()
        await asyncio.gather(*(worker.close(grace_s) for worker in self.workers))

    def status(self) -> dict[str, Any]:
        """Numbers and names for `/health/ready` and the admin API."""
        # Each state is read once: an engine may die between two looks.
        states = [worker.state for worker in self.workers]
        state = min(states, key=_NEAREST.index)
        nearest = self.workers[states.index(state)]
        workers = [self._worker_status(worker) for worker in self.workers]
        return {
            "road": self.road,
            "model": self.model,
            "embedded": self.embedded,
            "ready": state in SERVING,
            "whole": all(one in SERVING for one in states),
            "state": str(state),
            "reason": nearest.reason,
            "state_age_s": round(self._clock.monotonic() - nearest.since, 3),
            "max_model_len": self.max_model_len,
            "slots": self.lock.slots,
            "slots_in_use": self.lock.in_use,
            "waiting": self.lock.waiting,
            "max_waiting": self.lock.max_waiting,
            "kv_reserved_tokens": self.lock.reserved_tokens,
            "engine_unfinished": sum(worker["engine_unfinished"] for worker in workers),
            "engine_queued_tokens": sum(worker["engine_queued_tokens"] for worker in workers),
            "workers": workers,
            **self._shared_status(),
        }

    def _shared_status(self) -> dict[str, Any]:
        if not isinstance(self.lock, SharedQueueLock):
            return {}
        return {
            "shared": {
                "on_own_share": self.lock.on_own,
                "slots_in_use_everywhere": self.lock.in_use_everywhere,
                "gateways": self.lock.replicas,
            }
        }

    # ---- workers ----

    def _worker(self, n: int, make_engine: MakeEngine, shown: str, pool: PoolSettings) -> Worker:
        settings, name = self._settings.for_replica(n), str(n)
        return Worker(
            self.road,
            name,
            lambda: make_engine(settings, name),
            self._clock,
            model=shown,
            settings=pool,
            on_change=self._changed,
        )

    def _worker_status(self, worker: Worker) -> dict[str, Any]:
        serving = worker.state in (*SERVING, WorkerState.DRAINING)
        load = worker.engine.load() if serving else None
        return {
            "name": worker.name,
            "state": str(worker.state),
            "reason": worker.reason,
            "state_age_s": round(self._clock.monotonic() - worker.since, 3),
            "restarts": worker.restarts,
            "slots_in_use": self.lock.in_use_at(worker.name),
            "engine_unfinished": 0 if load is None else load.unfinished,
            "engine_queued_tokens": 0 if load is None else load.queued_tokens,
        }

    def _changed(self, worker: Worker) -> None:
        if worker.state is WorkerState.READY:
            self.lock.avoid(worker.name, False)
            if not self.lock.is_open(worker.name):
                slots = self._settings.slot_count
                self._up[worker.name] = Uptime(self.road, worker.name, slots, self._clock, self.on_capacity)
                self.lock.open(worker.name, slots, self._kv_budget(worker.engine))
        elif worker.state is WorkerState.SUSPECT:
            self.lock.avoid(worker.name, True)
        elif worker.state in (WorkerState.DEAD, WorkerState.FAILED):
            self.lock.close_place(worker.name)
            if not self.recovering:
                self.lock.close()
        elif worker.state is WorkerState.STARTING and worker.restarts:
            self._metrics.worker_restarts_total.labels(self.road, worker.name).inc()
        if worker.state in _GONE and (uptime := self._up.pop(worker.name, None)) is not None:
            uptime.end()
            if not uptime.closed:
                self._ending.append(uptime)
        self._most_reserved = self._half_a_worker()
        self._metrics.worker_is(self.road, worker.name, str(worker.state))
        self._ready.set(1.0 if self.lock.slots else 0.0)
        self.on_change(worker)

    def _kv_budget(self, engine: Engine) -> int | None:
        """KV-cache tokens that may be reserved on one worker."""
        tokens = engine.kv_tokens
        if tokens is None or not self._settings.kv_gate:
            return None
        return max(1, int(tokens * self._settings.kv_overcommit))

    # ---- the queue ----

    async def _acquire(self, ask: Ask) -> LocalSlot:
        try:
            slot = await self.lock.acquire(ask)
        except QueueClosed:
            self._refused("closed")
            raise TierNotReady(self.road) from None
        except QueueFull:
            self._refused("queue_full")
            raise
        except WaitTooLong:
            self._refused("predicted_wait")
            raise
        except NoFreeSlot:
            self._refused("no_free_slot")
            raise
        except QueueLockTimeout:
            self._timeouts.inc()
            raise
        self._wait_seconds.observe(slot.waited_ms / 1000)
        return slot

    def _refused(self, reason: str) -> None:
        self._metrics.queue_refusals_total.labels(self.road, reason).inc()


def asked_tokens(body: dict[str, Any]) -> int | None:
    """The caller's own limit on the answer; None where there is none that makes sense."""
    for field in ("max_completion_tokens", "max_tokens"):
        limit = body.get(field)
        if type(limit) is int and limit > 0:
            return limit
    return None


def choices(body: dict[str, Any]) -> int:
    """How many answers are asked for."""
    n = body.get("n")
    return n if type(n) is int and n > 0 else 1


def prompt_bytes(body: dict[str, Any], body_bytes: int) -> int:
    """Bytes of a body that become prompt, about: its messages' text, or all of it where there are tools too.

    What else a body holds would be reserved for without ever being read.
    """
    if body.get("tools") or not isinstance(body.get("messages"), list):
        return body_bytes
    size = 0
    for message in body["messages"]:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else (content,):
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                size += len(text) if text.isascii() else 3 * len(text)
    return min(size, body_bytes)
