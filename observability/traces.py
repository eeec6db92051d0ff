"""OpenTelemetry traces of sampled requests: one span a stage, numbers and names of ours, never content.

A request that is not sampled costs the reading of one header and one random number; no span is made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, set_span_in_context

from weighbridge.config.clock import Clock
from weighbridge.observability.request_trace import RequestTrace
from weighbridge.observability.trace_context import CallerTrace

MAX_WAITING_SPANS: Final = 8192
"""Spans that wait to be sent at most; while a collector is away newer ones are dropped. Usage records never are."""

_SEND_EVERY_MS: Final = 2000
_BATCH: Final = 512


class Tracing:
    """Makes the traces of one gateway and sends them in a thread of its own.

    Args:
        exporter: sends spans; called from that thread.
        ratio: share, 0..1, of the requests whose callers bring no trace.
        draw: a random number in [0, 1).
        ids: makes trace and span ids; None takes random ones.
        resource: attributes of the gateway itself.
        on_close: called before the last spans are sent.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        *,
        ratio: float,
        clock: Clock,
        draw: Callable[[], float],
        ids: IdGenerator | None = None,
        resource: Mapping[str, str] | None = None,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._ratio = ratio
        self._clock = clock
        self._draw = draw
        self._on_close = on_close
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource(dict(resource or {})),
            id_generator=ids,
            shutdown_on_exit=False,
            span_limits=SpanLimits(max_span_attributes=64, max_events=16, max_links=0),
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                exporter,
                max_queue_size=MAX_WAITING_SPANS,
                schedule_delay_millis=_SEND_EVERY_MS,
                max_export_batch_size=_BATCH,
                export_timeout_millis=30_000,
            )
        )
        self._tracer = self._provider.get_tracer("weighbridge")

    def begin(self, caller: CallerTrace | None, *, model: str, at_ns: int) -> RequestTrace | None:
        """The trace of a request that was admitted at `at_ns`; None where it is not sampled.

        A caller that brings a trace has decided: it is followed, sampled or not.
        """
        if not (self._draw() < self._ratio if caller is None else caller.sampled):
            return None
        above = None
        if caller is not None:
            context = SpanContext(
                caller.trace_id, caller.span_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
            )
            above = set_span_in_context(NonRecordingSpan(context))
        root = self._tracer.start_span(f"chat {model}", context=above, kind=SpanKind.SERVER, start_time=at_ns)
        return RequestTrace(self._tracer, root, self._clock, at_ns)

    def close(self) -> None:
        """Send what waits, within the exporter's own limits, and stop. Blocks."""
        self._on_close()
        self._provider.shutdown()
