"""Families of the local pool: its tiers and their queue, the workers, and what each worker's engine says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from weighbridge.config.roads import LOCAL_ROADS
from weighbridge.observability.instruments import OTHER, Counter, Family, Gauge, Histogram, InstrumentSet

MAX_WORKERS: Final = 64
WORKERS: Final = tuple(str(number) for number in range(MAX_WORKERS))
"""Names of a tier's workers: the numbers of its replicas."""

QUEUE_REFUSALS: Final = ("queue_full", "predicted_wait", "no_free_slot", "closed", OTHER)
CONTINUATIONS: Final = ("ok", "lost", "no_worker", OTHER)
WORKER_STATES: Final = (
    "cold",
    "starting",
    "warming",
    "ready",
    "suspect",
    "draining",
    "closed",
    "dead",
    "failed",
    OTHER,
)

_WAIT_S: Final = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_FIRST_TOKEN_S: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 60.0)
_NEXT_TOKEN_S: Final = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)

_TIER: Final[Mapping[str, Sequence[str]]] = {"tier": LOCAL_ROADS}
_WORKER: Final[Mapping[str, Sequence[str]]] = {"tier": LOCAL_ROADS, "worker": WORKERS}


class PoolMetrics(InstrumentSet):
    """What the pool writes. Families with a `worker` show only the workers there are or were."""

    def __init__(self) -> None:
        super().__init__("weighbridge_")
        self._add_tiers()
        self._add_workers()
        self._add_engines()

    def worker_is(self, tier: str, worker: str, state: str) -> None:
        """Show `state` as the one the worker is in: 1, and 0 for all others."""
        known = state if state in WORKER_STATES else OTHER
        for name in WORKER_STATES:
            self.worker_state.labels(tier, worker, name).set(1.0 if name == known else 0.0)

    def _add_tiers(self) -> None:
        add = self.add
        self.queue_wait_seconds = add(
            "queue_wait_seconds",
            "Seconds a granted slot was waited for.",
            Family(lambda: Histogram(_WAIT_S), _TIER),
        )
        self.queue_timeouts_total = add(
            "queue_timeouts_total", "Slots not granted in time.", Family(Counter, _TIER)
        )
        self.queue_refusals_total = add(
            "queue_refusals_total",
            "Requests turned away before their time was up, or because the tier was gone.",
            Family(Counter, {**_TIER, "reason": QUEUE_REFUSALS}),
        )
        self.slots_in_use = add("slots_in_use", "Slots granted at the moment.", Family(Gauge, _TIER))
        self.slots_total = add("slots_total", "Slots of the tier.", Family(Gauge, _TIER))
        self.slots_in_use_everywhere = add(
            "slots_in_use_everywhere",
            "Slots granted by all gateways that share the tier, as last told by Redis.",
            Family(Gauge, _TIER),
        )
        self.slots_on_own_share = add(
            "slots_on_own_share",
            "1 while a shared tier goes on with this gateway's share of the slots, without the others.",
            Family(Gauge, _TIER),
        )
        self.waiting = add("waiting", "Requests waiting for a slot.", Family(Gauge, _TIER))
        self.kv_reserved_tokens = add(
            "kv_reserved_tokens", "KV-cache tokens that granted slots hold reserved.", Family(Gauge, _TIER)
        )
        self.kv_budget_tokens = add(
            "kv_budget_tokens", "KV-cache tokens that may be reserved.", Family(Gauge, _TIER)
        )
        self.tier_ready = add("tier_ready", "1 while the tier serves.", Family(Gauge, _TIER))
        self.continuations_total = add(
            "continuations_total",
            "Streams that lost their worker, by whether another one carried them on.",
            Family(Counter, {**_TIER, "outcome": CONTINUATIONS}),
        )

    def _add_workers(self) -> None:
        self.worker_state = self.add(
            "worker_state",
            "1 for the state the worker is in.",
            Family(Gauge, {**_WORKER, "state": WORKER_STATES}, ahead=False),
        )
        self.worker_restarts_total = self.add(
            "worker_restarts_total",
            "Engines built anew in place of one that died or hung.",
            Family(Counter, _WORKER, ahead=False),
        )

    def _add_engines(self) -> None:
        def gauge(name: str, text: str) -> Family[Gauge]:
            return self.add(f"engine_{name}", text, Family(Gauge, _WORKER, ahead=False))

        def counter(name: str, text: str) -> Family[Counter]:
            return self.add(f"engine_{name}", text, Family(Counter, _WORKER, ahead=False))

        def histogram(name: str, text: str, bounds: Sequence[float]) -> Family[Histogram]:
            return self.add(f"engine_{name}", text, Family(lambda: Histogram(bounds), _WORKER, ahead=False))

        self.engine_running = gauge("running", "Requests the engine is working on.")
        self.engine_waiting = gauge("waiting", "Requests waiting inside the engine.")
        self.engine_kv_cache_usage_ratio = gauge(
            "kv_cache_usage_ratio", "Share of the engine's KV-cache blocks in use, 0 to 1."
        )
        self.engine_preemptions_total = counter(
            "preemptions_total", "Requests the engine put back for want of KV cache."
        )
        self.engine_prefix_cache_queries_total = counter(
            "prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache."
        )
        self.engine_prefix_cache_hits_total = counter(
            "prefix_cache_hits_total", "Prompt tokens found in the prefix cache."
        )
        self.engine_prompt_tokens_total = counter(
            "prompt_tokens_total", "Prompt tokens of the requests the engine has begun to answer."
        )
        self.engine_generation_tokens_total = counter(
            "generation_tokens_total", "Tokens the engine has made."
        )
        self.engine_time_to_first_token_seconds = histogram(
            "time_to_first_token_seconds",
            "Seconds from the engine's taking a request to its first token.",
            _FIRST_TOKEN_S,
        )
        self.engine_time_per_output_token_seconds = histogram(
            "time_per_output_token_seconds", "Seconds from one token of an answer to the next.", _NEXT_TOKEN_S
        )
