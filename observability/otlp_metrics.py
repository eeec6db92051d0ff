"""What `/metrics` shows as an OTLP export: the same names, labels and values, cumulative since the start."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from weighbridge.observability.otlp_records import Source

SCOPE: Final = "weighbridge.metrics"
_CUMULATIVE: Final = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_UNITS: Final = (("_seconds", "s"), ("_seconds_total", "s"), ("_ratio", "1"), ("_tokens_total", "{token}"))


def encode(source: Source, collector: Collector, start_ns: int, now_ns: int) -> bytes:
    """The body of a request to `/v1/metrics`.

    Args:
        collector: what a registry of prometheus_client would ask at a scrape.
        start_ns: since when the counters count, UTC nanoseconds.
        now_ns: when they are read.
    """
    metrics = [_metric(family, start_ns, now_ns) for family in collector.collect()]
    scope = ScopeMetrics(scope=InstrumentationScope(name=SCOPE, version=source.version), metrics=metrics)
    made = ExportMetricsServiceRequest(
        resource_metrics=[ResourceMetrics(resource=source.resource(), scope_metrics=[scope])]
    )
    return bytes(made.SerializeToString())


def _metric(family: Family, start_ns: int, now_ns: int) -> Metric:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    name = f"{family.name}_info" if family.type == "info" else name
    made = Metric(name=name, description=family.documentation, unit=_unit(name))
    if family.type == "histogram":
        made.histogram.CopyFrom(
            Histogram(aggregation_temporality=_CUMULATIVE, data_points=_histograms(family, start_ns, now_ns))
        )
        return made
    points = [
        NumberDataPoint(
            attributes=_labels(sample.labels),
            start_time_unix_nano=start_ns,
            time_unix_nano=now_ns,
            as_double=sample.value,
        )
        for sample in family.samples
        if sample.name == name
    ]
    if family.type == "counter":
        made.sum.CopyFrom(Sum(aggregation_temporality=_CUMULATIVE, is_monotonic=True, data_points=points))
    else:
        made.gauge.CopyFrom(Gauge(data_points=points))
    return made


def _histograms(family: Family, start_ns: int, now_ns: int) -> Iterable[HistogramDataPoint]:
    found: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for sample in family.samples:
        labels = dict(sample.labels)
        bound = labels.pop("le", None)
        point = found.setdefault(tuple(labels.items()), {"bounds": [], "counts": [], "count": 0, "sum": 0.0})
        if sample.name.endswith("_bucket") and bound is not None:
            if not math.isinf(float(bound)):
                point["bounds"].append(float(bound))
            # Buckets count all below them here, and only their own there.
            point["counts"].append(int(sample.value) - sum(point["counts"]))
        elif sample.name.endswith("_count"):
            point["count"] = int(sample.value)
        elif sample.name.endswith("_sum"):
            point["sum"] = sample.value
    for label_items, point in found.items():
        yield HistogramDataPoint(
            attributes=_labels(dict(label_items)),
            explicit_bounds=point["bounds"],
            bucket_counts=point["counts"],
            count=point["count"],
            sum=point["sum"],
            start_time_unix_nano=start_ns,
            time_unix_nano=now_ns,
        )


def _labels(labels: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in labels.items()]


def _unit(name: str) -> str:
    return next((unit for ending, unit in _UNITS if name.endswith(ending)), "")
