"""The gateway's metrics, in a registry of their own. Label values come from closed sets; no request text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, get_args

from prometheus_client import generate_latest

from weighbridge.config.evidence import Evidence
from weighbridge.config.refusals import REASONS
from weighbridge.config.roads import LOCAL_ROADS, ROADS
from weighbridge.observability.instruments import OTHER, Counter, Family, Gauge, Histogram, Info
from weighbridge.observability.pool_metrics import PoolMetrics
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
    "resting",
    "refused",
    "cancelled",
    "ledger_unavailable",
    "seal_broken",
    "switched_off",
    "pinned",
    OTHER,
)
MASKING_REASONS: Final = (*REASONS, OTHER)
SHIP_STREAMS: Final = ("requests", "egress")
SHIP_FAILURES: Final = (
    "connect",
    "tls",
    "timeout",
    "cut",
    "malformed",
    "unauthorized",
    "throttled",
    "unavailable",
    "redirect",
    "status",
    "refused",
    "spool",
    "metrics",
    OTHER,
)
REDIS_TROUBLES: Final = ("connect", "denied", "timeout", "closed", "refused", "garbage", OTHER)
BUSY_REASONS: Final = ("requests", "key", "bodies", "connections")
TOKEN_KINDS: Final = ("prompt", "cached", "completion")

_REQUEST_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
_TTFT_S: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 60.0)
_REDIS_S: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_LAG_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics(PoolMetrics):
    """Every instrument of one gateway. Instances share nothing, and any thread may write to one.

    Labelled ones give a child by `labels(value, ...)`; keep the child where it is used often.

    Args:
        endpoints: names of the commercial endpoints.
    """

    def __init__(self, endpoints: Sequence[str] = ()) -> None:
        super().__init__()
        self._add_requests()
        self._add_egress(endpoints)
        self._add_process()
        self._add_shipping()
        self._add_redis()

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
        for kind, count in (
            ("prompt", prompt_tokens),
            ("cached", cached_tokens),
            ("completion", completion_tokens),
        ):
            if count:
                self.tokens_total.labels(road, kind).inc(count)

    def requests_lost(self, by_road: Mapping[str, int]) -> None:
        """Count requests that a dead gateway left open; the road "" is one that nobody knows."""
        for road, count in by_road.items():
            self.requests_total.labels(road or NO_ROAD, "lost").inc(count)

    def refused_busy(self, reason: str) -> None:
        """Count a refusal; `reason` is one of `BUSY_REASONS`."""
        self.busy_refusals_total.labels(reason).inc()

    def render(self) -> tuple[bytes, str]:
        """The exposition and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE

    def _add_requests(self) -> None:
        add = self.add
        road: Mapping[str, Sequence[str]] = {"road": (*ROADS, NO_ROAD)}
        self.requests_total = add(
            "requests_total", "Requests that ended.", Family(Counter, {**road, "outcome": get_args(Outcome)})
        )
        self.request_seconds = add(
            "request_seconds",
            "Seconds from admission to the end.",
            Family(lambda: Histogram(_REQUEST_S), road),
        )
        self.ttft_seconds = add(
            "ttft_seconds",
            "Seconds from admission to the first content byte.",
            Family(lambda: Histogram(_TTFT_S), road),
        )
        self.tokens_total = add(
            "tokens_total",
            "Tokens by kind; cached ones are part of prompt.",
            Family(Counter, {**road, "kind": TOKEN_KINDS}),
        )

        self.escalations_total = add(
            "escalations_total",
            "Local answers that were not good enough, so that a road above was asked.",
            Family(Counter, {"road": LOCAL_ROADS, "reason": get_args(Evidence)}),
        )

    def endpoint_passed_by(self, name: str, passed_by: bool) -> None:
        """Show whether a commercial endpoint is being passed by, because it failed too often."""
        self.commercial_endpoint_passed_by.labels(name).set(float(passed_by))

    def _add_egress(self, endpoints: Sequence[str]) -> None:
        add = self.add
        self.egress_total = add(
            "egress_total",
            "Outward requests by how they ended.",
            Family(Counter, {"outcome": EGRESS_OUTCOMES}),
        )
        self.egress_switched_off = add(
            "egress_switched_off", "1 while the kill switch lets nothing leave.", Gauge()
        )
        self.commercial_endpoint_passed_by = add(
            "commercial_endpoint_passed_by",
            "1 while a commercial endpoint is passed by, because it failed too often.",
            Family(Gauge, {"endpoint": tuple(endpoints)}),
        )
        self.masking_refusals_total = add(
            "masking_refusals_total",
            "Requests that could not be made safe to leave.",
            Family(Counter, {"reason": MASKING_REASONS}),
        )

    def _add_process(self) -> None:
        add = self.add
        self.policy_reload_failures_total = add(
            "policy_reload_failures_total", "Policy changes refused; the old policy stayed.", Counter()
        )
        self.policy_info = add("policy", "The policy version in force.", Info("version"))
        self.ledger_healthy = add("ledger_healthy", "1 while the usage ledger can be written.", Gauge())
        self.records_at_risk_total = add(
            "records_at_risk_total", "Usage records that had to wait in memory for the disk.", Counter()
        )
        self.records_dropped_total = add(
            "records_dropped_total", "Usage records lost for good; anything but 0 is an incident.", Counter()
        )
        self.records_unpriced_total = add(
            "records_unpriced_total", "Rows stored without a price because the price book failed.", Counter()
        )
        self.spans_total = add(
            "spans_total",
            "Spans of traced requests by what became of them.",
            Family(Counter, {"outcome": ("sent", "lost")}),
        )
        self.slow_reader_aborts_total = add(
            "slow_reader_aborts_total", "Answers given up because the caller did not read.", Counter()
        )
        self.busy_refusals_total = add(
            "busy_refusals_total",
            "Requests and connections refused because as much was under way as may be.",
            Family(Counter, {"reason": BUSY_REASONS}),
        )
        self.event_loop_lag_seconds = add(
            "event_loop_lag_seconds",
            "Seconds that timers of the event loop fired late.",
            Histogram(_LAG_S),
        )
        self.event_loop_lag_worst_seconds = add(
            "event_loop_lag_worst_seconds", "The longest such delay of the last minute.", Gauge()
        )

    def _add_shipping(self) -> None:
        add = self.add
        stream: Mapping[str, Sequence[str]] = {"stream": SHIP_STREAMS}
        self.ship_backlog_records = add(
            "ship_backlog_records", "Records that the collector does not have yet.", Family(Gauge, stream)
        )
        self.ship_oldest_seconds = add(
            "ship_oldest_seconds",
            "Age of the oldest of them in seconds; 0 without any.",
            Family(Gauge, stream),
        )
        self.shipped_total = add(
            "shipped_total", "Records that the collector has taken.", Family(Counter, stream)
        )
        self.ship_rejected_total = add(
            "ship_rejected_total",
            "Records that the collector refused for good; they stay in the spool.",
            Family(Counter, stream),
        )
        self.ship_failures_total = add(
            "ship_failures_total",
            "Requests to the collector that came to nothing and are made again.",
            Family(Counter, {"reason": SHIP_FAILURES}),
        )

    def _add_redis(self) -> None:
        add = self.add
        self.redis_away = add(
            "redis_away", "1 while a Redis that is configured is taken to be away.", Gauge()
        )
        self.redis_failures_total = add(
            "redis_failures_total",
            "Calls to Redis and attempts to connect that failed.",
            Family(Counter, {"reason": REDIS_TROUBLES}),
        )
        self.redis_operation_seconds = add(
            "redis_operation_seconds",
            "Seconds of an echo over Redis, once a second.",
            Histogram(_REDIS_S),
        )
