"""The gateway's metrics, in a registry of their own. Label values come from closed sets; no request text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar, get_args

from prometheus_client import CollectorRegistry, generate_latest

from weighbridge.config.roads import LOCAL_ROADS, ROADS
from weighbridge.observability.instruments import (
    OTHER,
    Counter,
    Family,
    Gauge,
    Histogram,
    Info,
    Instrument,
    InstrumentCollector,
)
from weighbridge.observability.records import Outcome

NO_ROAD: Final = "none"
"""The `road` of a request that none was tried for."""

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

EGRESS_OUTCOMES: Final = (
    "ok",
    "connect",
    "status",
    "reset",
    "stall",
    "cut",
    "malformed",
    "timeout",
    "refused",
    "cancelled",
    "ledger_unavailable",
    "seal_broken",
    OTHER,
)
MASKING_REASONS: Final = (
    "placeholder_shaped_input",
    "not_text",
    "too_large",
    "detector_failed",
    "timeout",
    "overloaded",
    "unknown_field_type",
    "bad_arguments",
    "key_hit",
    "number",
    "internal",
    OTHER,
)
TOKEN_KINDS: Final = ("prompt", "cached", "completion")

_REQUEST_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
_TTFT_S: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 60.0)
_QUEUE_S: Final = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

I = TypeVar("I", bound=Instrument)  # noqa: E741


class Metrics:
    """Every instrument of one gateway. Instances share nothing, and any thread may write to one.

    Labelled ones give a child by `labels(value, ...)`; keep the child where it is used often.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._collector = InstrumentCollector()
        road: Mapping[str, Sequence[str]] = {"road": (*ROADS, NO_ROAD)}
        tier: Mapping[str, Sequence[str]] = {"tier": LOCAL_ROADS}

        self.requests_total = self._add(
            "requests_total", "Requests that ended.", Family(Counter, {**road, "outcome": get_args(Outcome)})
        )
        self.request_seconds = self._add(
            "request_seconds",
            "Seconds from admission to the end.",
            Family(lambda: Histogram(_REQUEST_S), road),
        )
        self.ttft_seconds = self._add(
            "ttft_seconds",
            "Seconds from admission to the first content byte.",
            Family(lambda: Histogram(_TTFT_S), road),
        )
        self.tokens_total = self._add(
            "tokens_total",
            "Tokens by kind; cached ones are part of prompt.",
            Family(Counter, {**road, "kind": TOKEN_KINDS}),
        )
        self.queue_wait_seconds = self._add(
            "queue_wait_seconds",
            "Seconds a granted slot was waited for.",
            Family(lambda: Histogram(_QUEUE_S), tier),
        )
        self.queue_timeouts_total = self._add(
            "queue_timeouts_total", "Slots not granted in time.", Family(Counter, tier)
        )
        self.slots_in_use = self._add("slots_in_use", "Slots granted at the moment.", Family(Gauge, tier))
        self.slots_total = self._add("slots_total", "Slots of the tier.", Family(Gauge, tier))
        self.waiting = self._add("waiting", "Requests waiting for a slot.", Family(Gauge, tier))
        self.tier_ready = self._add("tier_ready", "1 while the tier serves.", Family(Gauge, tier))
        self.engine_running = self._add(
            "engine_running", "Requests the engine is working on.", Family(Gauge, tier)
        )
        self.engine_waiting = self._add(
            "engine_waiting", "Requests waiting inside the engine.", Family(Gauge, tier)
        )
        self.kv_cache_usage = self._add(
            "kv_cache_usage", "Share of the engine's KV cache in use, 0 to 1.", Family(Gauge, tier)
        )
        self.preemptions_total = self._add(
            "preemptions_total", "Requests the engine put back for want of KV cache.", Family(Counter, tier)
        )
        self.egress_total = self._add(
            "egress_total",
            "Outward requests by how they ended.",
            Family(Counter, {"outcome": EGRESS_OUTCOMES}),
        )
        self.masking_refusals_total = self._add(
            "masking_refusals_total",
            "Requests that could not be made safe to leave.",
            Family(Counter, {"reason": MASKING_REASONS}),
        )
        self.policy_reload_failures_total = self._add(
            "policy_reload_failures_total", "Policy changes refused; the old policy stayed.", Counter()
        )
        self.policy_info = self._add("policy", "The policy version in force.", Info("version"))
        self.ledger_healthy = self._add("ledger_healthy", "1 while the usage ledger can be written.", Gauge())
        self.records_at_risk_total = self._add(
            "records_at_risk_total", "Usage records that had to wait in memory for the disk.", Counter()
        )
        self.records_dropped_total = self._add(
            "records_dropped_total", "Usage records lost for good; anything but 0 is an incident.", Counter()
        )
        self.slow_reader_aborts_total = self._add(
            "slow_reader_aborts_total", "Answers given up because the caller did not read.", Counter()
        )
        self.registry.register(self._collector)

    def request_done(
        self,
        *,
        road: str,
        outcome: str,
        seconds: float,
        ttft_seconds: float | None,
        prompt_tokens: int,
        cached_tokens: int,
        completion_tokens: int,
    ) -> None:
        """Count one request that has ended."""
        self.requests_total.labels(road, outcome).inc()
        self.request_seconds.labels(road).observe(seconds)
        if ttft_seconds is not None:
            self.ttft_seconds.labels(road).observe(ttft_seconds)
        tokens = self.tokens_total
        tokens.labels(road, "prompt").inc(prompt_tokens)
        tokens.labels(road, "cached").inc(cached_tokens)
        tokens.labels(road, "completion").inc(completion_tokens)

    def requests_lost(self, by_road: Mapping[str, int]) -> None:
        """Count requests that a dead gateway left open; the road "" is one that nobody knows."""
        for road, count in by_road.items():
            self.requests_total.labels(road or NO_ROAD, "lost").inc(count)

    def render(self) -> tuple[bytes, str]:
        """The exposition and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE

    def _add(self, name: str, text: str, instrument: I) -> I:
        self._collector.add(f"weighbridge_{name}", text, instrument)
        return instrument
