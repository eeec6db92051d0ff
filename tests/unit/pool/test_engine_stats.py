"""What engines say of themselves, in the metrics of their tiers."""

from __future__ import annotations

from types import SimpleNamespace

from weighbridge.observability.metrics import Metrics
from weighbridge.pool.engine_stats import EngineStats


def scheduler(running: int, waiting: int, usage: float) -> SimpleNamespace:
    return SimpleNamespace(num_running_reqs=running, num_waiting_reqs=waiting, kv_cache_usage=usage)


def shown(metrics: Metrics, road: str) -> tuple[float, ...]:
    families = (
        metrics.engine_running,
        metrics.engine_waiting,
        metrics.kv_cache_usage,
        metrics.preemptions_total,
    )
    return tuple(family.labels(road).value for family in families)


def test_two_engines_leave_each_others_numbers_alone() -> None:
    metrics = Metrics()
    small = EngineStats("local-8b", metrics)
    small.record(scheduler(3, 2, 0.5), SimpleNamespace(num_preempted_reqs=1))
    large = EngineStats("local-70b", metrics)
    large.record(scheduler(1, 0, 0.25), SimpleNamespace(num_preempted_reqs=4))
    small.record(scheduler(2, 0, 0.4), SimpleNamespace(num_preempted_reqs=1))
    assert shown(metrics, "local-8b") == (2, 0, 0.4, 2)
    assert shown(metrics, "local-70b") == (1, 0, 0.25, 4)


def test_either_half_may_be_missing() -> None:
    metrics = Metrics()
    stats = EngineStats("local-8b", metrics)
    stats.record(scheduler(3, 2, 0.5), None)
    stats.record(None, SimpleNamespace(num_preempted_reqs=2))
    stats.record(None, None)
    assert shown(metrics, "local-8b") == (3, 2, 0.5, 2)
