"""The spans of one sampled request, in the names of the GenAI semantic conventions where there are any."""

from __future__ import annotations

from typing import Final

from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from weighbridge.config.clock import Clock
from weighbridge.observability.records import Attempt, Completion, Intent
from weighbridge.observability.trace_context import traceparent

_CHAT: Final = {"gen_ai.operation.name": "chat"}
_MS: Final = 1_000_000


class RequestTrace:
    """Follows a request through its stages. Made by `Tracing.begin`.

    Args:
        root: the request's own span.
        at_ns: when it was admitted.
    """

    def __init__(self, tracer: Tracer, root: Span, clock: Clock, at_ns: int) -> None:
        self._tracer = tracer
        self._root = root
        self._clock = clock
        self._at_ns = at_ns
        self._inside = set_span_in_context(root)
        self._attempt: Span | None = None
        self._began_ns = 0
        self._closed_ns = 0

    @property
    def traceparent(self) -> bytes:
        """What a local engine gets: its spans belong to the attempt under way."""
        context = (self._attempt or self._root).get_span_context()
        return traceparent(context.trace_id, context.span_id, sampled=True)

    def decided(self, row: Intent) -> None:
        """The request is weighed and its road decided."""
        self._stage("weigh", self._at_ns, self._clock.wall_ns())
        self._root.set_attributes(
            {
                **_CHAT,
                "gen_ai.request.model": row.model_requested,
                "gen_ai.request.stream": row.stream,
                "weighbridge.request.id": row.request_id,
                "weighbridge.tenant": row.tenant,
                "weighbridge.road.decided": row.road,
                "weighbridge.task": row.task,
                "weighbridge.policy.version": row.policy_version,
                "weighbridge.calibration.version": row.calibration_version,
                "weighbridge.reasons": row.reasons,
                **({} if row.score is None else {"weighbridge.score": row.score}),
            }
        )

    def attempt_begins(self, road: str, at_ns: int) -> None:
        """A road is tried."""
        self._began_ns = at_ns
        self._attempt = self._tracer.start_span(
            f"chat {road}", context=self._inside, kind=SpanKind.CLIENT, start_time=at_ns
        )

    def inspected(self) -> None:
        """The request is masked and its egress row durable; from here it may leave."""
        self._stage("inspect", self._began_ns, self._clock.wall_ns(), inside=self._attempt)

    def attempt_ends(self, row: Attempt) -> None:
        """The road has served, or not."""
        span, self._attempt = self._attempt, None
        if span is None:
            return
        if row.queue_ms > 0:
            self._stage("queue", row.started_ns, row.started_ns + round(row.queue_ms * _MS), inside=span)
        span.set_attributes(
            {
                **_CHAT,
                "gen_ai.request.model": row.model or row.road,
                "gen_ai.usage.input_tokens": row.prompt_tokens,
                "gen_ai.usage.output_tokens": row.completion_tokens,
                "gen_ai.usage.cache_read.input_tokens": row.cached_tokens,
                "weighbridge.attempt": row.n,
                "weighbridge.road": row.road,
                "weighbridge.backend": row.backend,
                "weighbridge.outcome": row.outcome,
                **({"weighbridge.egress.id": row.egress_id} if row.egress_id else {}),
            }
        )
        if row.outcome != "ok":
            span.set_attribute("error.type", row.outcome)
            span.set_status(Status(StatusCode.ERROR))
        span.end(row.ended_ns)

    def closed(self, row: Completion) -> None:
        """The request's record is handed to the ledger."""
        self._closed_ns = row.ended_ns
        self._root.set_attributes(
            {
                "http.response.status_code": row.status,
                "gen_ai.response.model": row.road,
                "gen_ai.usage.input_tokens": row.prompt_tokens,
                "gen_ai.usage.output_tokens": row.completion_tokens,
                "gen_ai.usage.cache_read.input_tokens": row.cached_tokens,
                "weighbridge.outcome": row.outcome,
                "weighbridge.attempts": row.attempts,
                "weighbridge.queue_ms": row.queue_ms,
            }
        )
        if row.ttft_ms is not None:
            self._root.set_attribute("gen_ai.response.time_to_first_chunk", row.ttft_ms / 1000)
            self._root.add_event("first content", timestamp=self._at_ns + round(row.ttft_ms * _MS))
        if row.outcome != "ok":
            self._root.set_attribute("error.type", row.error_code or row.outcome)
            if row.outcome not in ("client_aborted", "refused"):
                self._root.set_status(Status(StatusCode.ERROR))

    def end(self) -> None:
        """The answer and its record are done with."""
        now_ns = self._clock.wall_ns()
        if self._closed_ns:
            self._stage("record", self._closed_ns, max(now_ns, self._closed_ns))
        self._root.end(now_ns)

    def _stage(self, name: str, from_ns: int, to_ns: int, inside: Span | None = None) -> None:
        context = self._inside if inside is None else set_span_in_context(inside)
        self._tracer.start_span(name, context=context, start_time=from_ns).end(to_ns)
