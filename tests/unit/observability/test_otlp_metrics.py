"""The export of metrics says what the page says."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from prometheus_client.parser import text_string_to_metric_families

from tests.support.otlp_receiver import plain
from weighbridge.observability import otlp_metrics
from weighbridge.observability.metrics import Metrics
from weighbridge.observability.otlp_records import Source


def exported(metrics: Metrics) -> dict[str, Any]:
    body = otlp_metrics.encode(Source("0123", "9.9"), metrics, 5, 9)
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    (scope,) = resource.scope_metrics
    assert len({metric.name for metric in scope.metrics}) == len(scope.metrics)
    return {metric.name: metric for metric in scope.metrics}


def labels_of(point: Any) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((pair.key, plain(pair.value)) for pair in point.attributes))


def used() -> Metrics:
    metrics = Metrics(("main",))
    metrics.request_done(
        road="local-8b",
        outcome="ok",
        seconds=0.3,
        ttft_seconds=0.02,
        prompt_tokens=11,
        cached_tokens=4,
        completion_tokens=7,
    )
    metrics.request_done(
        road="commercial",
        outcome="error",
        seconds=9999.0,
        ttft_seconds=None,
        prompt_tokens=1,
        cached_tokens=0,
        completion_tokens=0,
    )
    metrics.policy_info.set("default@1")
    metrics.ship_backlog_records.labels("requests").set(17)
    metrics.records_dropped_total.inc(2)
    return metrics


def test_every_series_of_the_page_is_exported_with_its_value() -> None:
    metrics = used()
    sent = exported(metrics)
    seen = 0
    for family in text_string_to_metric_families(metrics.render()[0].decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            bound = labels.pop("le", None)
            key = tuple(sorted(labels.items()))
            if family.type == "histogram":
                (point,) = [p for p in sent[family.name].histogram.data_points if labels_of(p) == key]
                if sample.name.endswith("_sum"):
                    assert point.sum == sample.value
                elif sample.name.endswith("_count"):
                    assert point.count == sample.value == sum(point.bucket_counts)
                else:
                    at = [*point.explicit_bounds, float("inf")].index(float(bound or "nan"))
                    assert sum(point.bucket_counts[: at + 1]) == sample.value
                    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
            else:
                metric = sent[sample.name]
                data = metric.sum if family.type == "counter" else metric.gauge
                (point,) = [p for p in data.data_points if labels_of(p) == key]
                assert point.as_double == sample.value
            assert (point.start_time_unix_nano, point.time_unix_nano) == (5, 9)
            seen += 1
    assert seen > 300


def test_counters_are_cumulative_and_only_go_up() -> None:
    for metric in exported(used()).values():
        if metric.WhichOneof("data") == "sum":
            assert metric.name.endswith("_total")
            assert metric.sum.is_monotonic
            assert (
                metric.sum.aggregation_temporality
                == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
            )
        elif metric.WhichOneof("data") == "histogram":
            assert (
                metric.histogram.aggregation_temporality
                == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
            )


def test_requests_tokens_and_the_backlog_are_among_them() -> None:
    sent = exported(used())
    tokens = {labels_of(p): p.as_double for p in sent["weighbridge_tokens_total"].sum.data_points}
    assert tokens[(("kind", "prompt"), ("road", "local-8b"))] == 11
    backlog = {labels_of(p): p.as_double for p in sent["weighbridge_ship_backlog_records"].gauge.data_points}
    assert backlog == {(("stream", "requests"),): 17, (("stream", "egress"),): 0}
    assert {"weighbridge_requests_total", "weighbridge_records_dropped_total"} <= sent.keys()
    assert sent["weighbridge_request_seconds"].unit == "s"
