"""Spans of sampled requests, and what those cost that are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.support import ledger_rows as rows
from tests.support.clocks import SetClock
from tests.support.cost import in_references
from weighbridge.observability.trace_context import CallerTrace, read_traceparent
from weighbridge.observability.traces import Tracing

CALLER = CallerTrace(int("4bf92f3577b34da6a3ce929d0e0e4736", 16), int("00f067aa0ba902b7", 16), True)
MS = 1_000_000


class Lab:
    """Tracing with a clock and a draw in the test's hands."""

    def __init__(self, ratio: float) -> None:
        self.clock = SetClock()
        self.sent = InMemorySpanExporter()
        self.drawn = 0.5
        self.tracing = Tracing(
            self.sent,
            ratio=ratio,
            clock=self.clock,
            draw=lambda: self.drawn,
            resource={"service.name": "weighbridge"},
        )

    def later(self, ms: float) -> int:
        self.clock.now_ns += round(ms * MS)
        return self.clock.now_ns

    def spans(self) -> dict[str, ReadableSpan]:
        self.tracing.close()
        return {span.name: span for span in self.sent.get_finished_spans()}


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab(1.0)
    yield made
    made.tracing.close()


def test_a_request_has_one_span_a_stage(lab: Lab) -> None:
    began = lab.clock.now_ns
    trace = lab.tracing.begin(None, model="auto", at_ns=began)
    assert trace is not None
    lab.later(2)
    trace.decided(rows.intent(admitted_ns=began))
    tried = lab.later(1)
    trace.attempt_begins("local-8b", tried)
    inside = read_traceparent(trace.traceparent)
    served = lab.later(100)
    trace.attempt_ends(
        rows.attempt(started_ns=tried, ended_ns=served, queue_ms=30.0, backend="0", model="org/model")
    )
    trace.closed(rows.completion(ended_ns=served, ttft_ms=40.0))
    lab.later(5)
    trace.end()
    spans = lab.spans()
    assert set(spans) == {"chat auto", "weigh", "chat local-8b", "queue", "record"}
    root, attempt = spans["chat auto"], spans["chat local-8b"]
    assert root.parent is None and root.kind is SpanKind.SERVER
    assert inside is not None and inside.span_id == attempt.get_span_context().span_id
    for name, parent in {"weigh": root, "chat local-8b": root, "record": root, "queue": attempt}.items():
        assert spans[name].parent is not None
        assert spans[name].parent.span_id == parent.get_span_context().span_id, name
        assert spans[name].get_span_context().trace_id == root.get_span_context().trace_id
    took = {name: (span.end_time - span.start_time) / MS for name, span in spans.items()}
    assert took == {"chat auto": 108, "weigh": 2, "chat local-8b": 100, "queue": 30, "record": 5}
    assert root.attributes is not None
    assert root.attributes["gen_ai.usage.output_tokens"] == 20
    assert root.attributes["gen_ai.response.time_to_first_chunk"] == 0.04
    assert root.attributes["weighbridge.request.id"] == "r1"
    (event,) = root.events
    assert event.timestamp == began + 40 * MS
    assert root.status.status_code is StatusCode.UNSET
    assert attempt.attributes is not None
    asked = {name: attempt.attributes[name] for name in ("gen_ai.request.model", "weighbridge.backend")}
    assert asked == {"gen_ai.request.model": "org/model", "weighbridge.backend": "0"}
    assert root.resource.attributes == {"service.name": "weighbridge"}


def test_what_went_wrong_is_told_by_its_word(lab: Lab) -> None:
    trace = lab.tracing.begin(None, model="auto", at_ns=lab.clock.now_ns)
    assert trace is not None
    trace.attempt_begins("commercial", lab.clock.now_ns)
    lab.later(1)
    trace.inspected()
    lab.later(1)
    trace.attempt_ends(
        rows.attempt(road="commercial", outcome="upstream_stall", egress_id="e1", ended_ns=lab.clock.now_ns)
    )
    trace.closed(
        rows.completion(outcome="error", error_code="upstream_failed", status=502, ended_ns=lab.clock.now_ns)
    )
    trace.end()
    spans = lab.spans()
    attempt, root = spans["chat commercial"], spans["chat auto"]
    assert attempt.attributes is not None and root.attributes is not None
    assert attempt.attributes["error.type"] == "upstream_stall"
    assert attempt.attributes["weighbridge.egress.id"] == "e1"
    assert root.attributes["error.type"] == "upstream_failed"
    assert attempt.status.status_code is root.status.status_code is StatusCode.ERROR
    parent = spans["inspect"].parent
    assert parent is not None and parent.span_id == attempt.get_span_context().span_id


@pytest.mark.parametrize(("outcome", "status"), [("refused", "UNSET"), ("client_aborted", "UNSET")])
def test_what_the_caller_did_is_no_fault_of_ours(lab: Lab, outcome: str, status: str) -> None:
    trace = lab.tracing.begin(None, model="auto", at_ns=lab.clock.now_ns)
    assert trace is not None
    trace.closed(rows.completion(outcome=outcome, ttft_ms=None))
    trace.end()
    assert lab.spans()["chat auto"].status.status_code.name == status


def test_a_caller_that_brings_a_trace_decides() -> None:
    lab = Lab(0.0)
    assert lab.tracing.begin(None, model="auto", at_ns=1) is None
    trace = lab.tracing.begin(CALLER, model="auto", at_ns=lab.clock.now_ns)
    assert trace is not None
    trace.end()
    root = lab.spans()["chat auto"]
    assert root.parent is not None and root.parent.span_id == CALLER.span_id
    assert root.get_span_context().trace_id == CALLER.trace_id
    every = Lab(1.0)
    assert every.tracing.begin(CallerTrace(1, 2, False), model="auto", at_ns=1) is None
    every.tracing.close()


def test_the_ratio_is_a_share() -> None:
    lab = Lab(0.25)
    begun = []
    for n in range(100):
        lab.drawn = n / 100
        trace = lab.tracing.begin(None, model="auto", at_ns=lab.clock.now_ns)
        if trace is not None:
            trace.end()
            begun.append(n)
    assert begun == list(range(25))
    lab.tracing.close()


def test_a_request_that_is_not_sampled_costs_next_to_nothing(lab: Lab) -> None:
    lab = Lab(0.0)
    value = f"00-{CALLER.trace_id:032x}-{CALLER.span_id:016x}-00".encode()
    cost = in_references(lambda: lab.tracing.begin(read_traceparent(value), model="auto", at_ns=1), 500)
    lab.tracing.close()
    assert cost < 0.3, f"{cost:.2f} reference loops of about 46 µs; the budget is 30 µs"
