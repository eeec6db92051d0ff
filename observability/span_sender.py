"""Sends spans to the collector by OTLP over HTTP, once: what does not get there is counted and gone."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from weighbridge.config.clock import Clock
from weighbridge.observability.otlp_post import Answer, PostLost

if TYPE_CHECKING:
    from weighbridge.observability.metrics import Metrics

log = logging.getLogger("weighbridge.traces")

TRACES: Final = "/v1/traces"
COMPLAIN_EVERY_S: Final = 60.0
LAST_S: Final = 2.0


class Posts(Protocol):
    """What this needs of `otlp_post.Poster`."""

    def post(self, path: str, body: bytes, limit_s: float) -> Answer: ...

    def cut(self) -> None: ...


class SpanSender(SpanExporter):
    """Called by one thread of the SDK's.

    Args:
        poster: its own; nobody else posts by it.
        limit_s: seconds that one request may take.
        metrics: counts spans that were sent, and those that were lost.
    """

    def __init__(self, poster: Posts, *, limit_s: float, clock: Clock, metrics: Metrics) -> None:
        self._poster = poster
        self._limit_s = limit_s
        self._clock = clock
        self._metrics = metrics
        self._complained: float | None = None
        self._due: float | None = None

    def hurry(self) -> None:
        """The gateway stops: what waits has `LAST_S` seconds in all. Callable from any thread."""
        self._due = self._clock.monotonic() + LAST_S
        last = threading.Timer(LAST_S, self._poster.cut)
        last.daemon = True
        last.start()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send some spans, once."""
        if (fault := self._send(spans)) is None:
            self._metrics.spans_total.labels("sent").inc(len(spans))
            return SpanExportResult.SUCCESS
        self._metrics.spans_total.labels("lost").inc(len(spans))
        now = self._clock.monotonic()
        if self._complained is None or now - self._complained >= COMPLAIN_EVERY_S:
            self._complained = now
            log.warning("%d spans did not reach the collector (%s)", len(spans), fault)
        return SpanExportResult.FAILURE

    def _send(self, spans: Sequence[ReadableSpan]) -> str | None:
        """What went wrong, in a word."""
        limit_s = self._limit_s
        if self._due is not None:
            limit_s = min(limit_s, self._due - self._clock.monotonic())
            if limit_s <= 0:
                return "stopping"
        body = encode_spans(spans).SerializeToString()
        try:
            answer = self._poster.post(TRACES, body, limit_s)
        except PostLost as lost:
            return lost.fault
        return None if 200 <= answer.status < 300 else f"status {answer.status}"

    def shutdown(self) -> None:
        """Nothing is kept open between two requests."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return True
