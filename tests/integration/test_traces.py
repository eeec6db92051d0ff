"""Traces through a whole gateway: which requests have one, what local engines get of it, and that no word is in it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support.fake_engine import Script
from tests.support.model_server import MODEL, ModelServer, model_server
from tests.support.otlp_receiver import Mode, plain, receiving
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from weighbridge.config.clock import SystemClock
from weighbridge.pool.http_engine import HttpEngine

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
WINDOW = 512
BOTH = pytest.mark.parametrize("streamed", [False, True])


@asynccontextmanager
async def elsewhere(
    folder: Path, exporter: InMemorySpanExporter | None, ratio: float = 0.0
) -> AsyncIterator[tuple[Running, ModelServer]]:
    """A gateway whose 8B is served by another machine."""
    async with model_server(script=Script(token_s=0.001), window=WINDOW) as server:
        tiers = {"local-8b": {"endpoints": [server.url], "endpoint_model": MODEL, "max_model_len": WINDOW}}
        async with running_gateway(
            folder,
            tiers=tiers,
            factory=lambda road, settings, _: HttpEngine(settings, road, server.url, SystemClock()),
            span_exporter=exporter,
            traces={"ratio": ratio},
        ) as gateway:
            server.seen.clear()
            yield gateway, server


async def ask(gateway: Running, traceparent: str | None, **body: Any) -> None:
    body = {"model": "local-8b", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, **body}
    headers = {} if traceparent is None else {"traceparent": traceparent}
    answer = await gateway.client.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200


def passed_on(server: ModelServer) -> str | None:
    (seen,) = (seen for seen in server.seen if seen.path.endswith("/chat/completions"))
    return seen.headers.get("traceparent")


@BOTH
async def test_a_local_engines_spans_belong_to_the_attempt(tmp_path: Path, streamed: bool) -> None:
    exporter = InMemorySpanExporter()
    async with elsewhere(tmp_path, exporter) as (gateway, server):
        await ask(gateway, SAMPLED, stream=streamed)
        got = passed_on(server)
    named = [span for span in exporter.get_finished_spans() if span.name == "chat local-8b"]
    root = next(span for span in named if span.kind.name == "SERVER")
    attempt = next(span for span in named if span.kind.name == "CLIENT")
    assert root.parent is not None and f"{root.parent.span_id:016x}" == SPAN
    assert attempt.parent is not None and attempt.parent.span_id == root.get_span_context().span_id
    assert got == f"00-{TRACE}-{attempt.get_span_context().span_id:016x}-01"


@pytest.mark.parametrize("traced", [False, True])
async def test_a_trace_that_is_not_ours_is_passed_on_as_it_is(tmp_path: Path, traced: bool) -> None:
    exporter = InMemorySpanExporter() if traced else None
    async with elsewhere(tmp_path, exporter, ratio=1.0) as (gateway, server):
        await ask(gateway, UNSAMPLED)
        assert passed_on(server) == UNSAMPLED
    assert exporter is None or not exporter.get_finished_spans()


@pytest.mark.parametrize("value", [None, f"00-{TRACE}-{SPAN}", f"{SAMPLED}, {SAMPLED}", "00-0-0-01"])
async def test_no_trace_and_a_broken_one_start_none_elsewhere(tmp_path: Path, value: str | None) -> None:
    async with elsewhere(tmp_path, InMemorySpanExporter()) as (gateway, server):
        await ask(gateway, value)
        assert passed_on(server) is None


@BOTH
async def test_no_word_of_a_request_is_in_its_spans_and_no_trace_leaves(
    tmp_path: Path, streamed: bool
) -> None:
    exporter = InMemorySpanExporter()
    policy = policy_file(tmp_path)
    async with (
        recording() as upstream,
        running_gateway(
            tmp_path,
            upstream=upstream.base_url,
            policy=policy,
            span_exporter=exporter,
            traces={"ratio": 1.0},
        ) as gateway,
    ):
        for model in ("commercial", "auto"):
            answer = await gateway.client.post(
                "/v1/chat/completions",
                json={
                    "model": model,
                    "stream": streamed,
                    "messages": [{"role": "user", "content": "planted 4711: mail planted@example.com"}],
                },
                headers={"traceparent": SAMPLED},
            )
            assert answer.status_code == 200
        (sent,) = upstream.requests
        (row, _) = gateway.rows()
        egress = gateway.egress()
    headers = json.dumps([[str(part) for part in pair] for pair in sent.headers]).lower()
    assert TRACE not in headers and "traceparent" not in headers
    spans = exporter.get_finished_spans()
    assert "planted" not in _everything(spans) and "4711" not in _everything(spans)
    (out,) = (span for span in spans if span.name == "chat commercial" and span.kind.name == "CLIENT")
    assert out.attributes is not None and out.attributes["weighbridge.egress.id"] == egress[0]["egress_id"]
    assert "inspect" in {span.name for span in spans}
    roots = [span for span in spans if span.kind.name == "SERVER"]
    assert roots[0].attributes is not None
    assert roots[0].attributes["weighbridge.request.id"] == row["request_id"]


def _everything(spans: tuple[ReadableSpan, ...]) -> str:
    return "".join(span.to_json() for span in spans)


async def test_spans_get_to_the_collector_of_the_settings(tmp_path: Path) -> None:
    with receiving() as collector:
        async with running_gateway(
            tmp_path, collector={"endpoint": collector.url, "metrics_interval_s": None}, traces={"ratio": 1.0}
        ) as gateway:
            assert (await gateway.chat()).status_code == 200
            await asyncio.to_thread(
                collector.wait, lambda: any(span.name == "chat auto" for span in collector.spans)
            )
            (row,) = gateway.rows()
        (root,) = (span for span in collector.spans if span.name == "chat auto")
        held = {pair.key: plain(pair.value) for pair in root.attributes}
    assert held["weighbridge.request.id"] == row["request_id"]
    assert held["gen_ai.usage.output_tokens"] == row["completion_tokens"]
    assert root.kind == root.SPAN_KIND_SERVER


async def test_a_collector_that_hangs_costs_spans_and_two_seconds_at_the_end(tmp_path: Path) -> None:
    with receiving() as collector:
        collector.traces_mode = Mode(hang=True)
        async with running_gateway(
            tmp_path,
            collector={"endpoint": collector.url, "metrics_interval_s": None, "timeout_s": 60},
            traces={"ratio": 1.0},
        ) as gateway:
            assert (await gateway.chat()).status_code == 200
            await asyncio.to_thread(
                collector.wait, lambda: any(path == "/v1/traces" for path, *_ in collector.requests)
            )
            spans, began = gateway.parts.metrics.spans_total, time.monotonic()
        assert time.monotonic() - began < 15
        assert spans.labels("lost").value > 0 and spans.labels("sent").value == 0
        assert not collector.spans
