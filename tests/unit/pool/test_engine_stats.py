"""What engines say of themselves, in the metrics of their workers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from tests.unit.observability.test_metrics import series
from weighbridge.observability.metrics import Metrics
from weighbridge.pool.engine_stats import EngineStats


def scheduler(running: int, waiting: int, usage: float, queries: int = 0, hits: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        num_running_reqs=running,
        num_waiting_reqs=waiting,
        kv_cache_usage=usage,
        prefix_cache_stats=SimpleNamespace(queries=queries, hits=hits),
    )


def iteration(
    preempted: int = 0,
    prompt: int = 0,
    made: int = 0,
    first: Sequence[float] = (),
    following: Sequence[float] = (),
) -> SimpleNamespace:
    return SimpleNamespace(
        num_preempted_reqs=preempted,
        num_prompt_tokens=prompt,
        num_generation_tokens=made,
        time_to_first_tokens_iter=list(first),
        inter_token_latencies_iter=list(following),
    )


def shown(metrics: Metrics, road: str, worker: str) -> dict[str, float]:
    """The worker's own series as Prometheus reads them, without buckets."""
    labels = frozenset({("tier", road), ("worker", worker)})
    return {
        name.removeprefix("weighbridge_engine_"): value
        for (name, held), value in series(metrics).items()
        if held == labels and name.startswith("weighbridge_engine_")
    }


def gauges(metrics: Metrics, road: str, worker: str) -> tuple[float | None, ...]:
    values = shown(metrics, road, worker)
    return tuple(values.get(name) for name in ("running", "waiting", "kv_cache_usage_ratio"))


def test_everything_an_engine_says_is_there_under_its_worker() -> None:
    metrics = Metrics()
    stats = EngineStats("local-8b", "1", metrics)
    stats.record(scheduler(3, 2, 0.5, queries=100, hits=32), iteration(1, 100, 2, [0.25], [0.5, 0.25]))
    stats.record(scheduler(2, 0, 0.25, queries=10, hits=0), iteration(2, 10, 3, [0.5, -1.0], [1.0, -1.0]))
    assert shown(metrics, "local-8b", "1") == {
        "running": 2,
        "waiting": 0,
        "kv_cache_usage_ratio": 0.25,
        "preemptions_total": 3,
        "prefix_cache_queries_total": 110,
        "prefix_cache_hits_total": 32,
        "prompt_tokens_total": 110,
        "generation_tokens_total": 5,
        "time_to_first_token_seconds_count": 3,
        "time_to_first_token_seconds_sum": 0.75,
        "time_per_output_token_seconds_count": 4,
        "time_per_output_token_seconds_sum": 1.75,
    }


def test_engines_leave_each_others_numbers_alone() -> None:
    metrics = Metrics()
    engines = [EngineStats(road, worker, metrics) for road, worker in WHERE]
    for number, engine in enumerate(engines, start=1):
        engine.record(scheduler(number, 0, 0.5), iteration(preempted=number))
    engines[0].record(scheduler(9, 0, 0.5), iteration(preempted=1))
    assert [gauges(metrics, *where)[0] for where in WHERE] == [9, 2, 3]
    assert [shown(metrics, *where)["preemptions_total"] for where in WHERE] == [2, 2, 3]


WHERE = (("local-8b", "0"), ("local-8b", "1"), ("local-70b", "0"))


def test_either_half_may_be_missing() -> None:
    metrics = Metrics()
    stats = EngineStats("local-8b", "0", metrics)
    stats.record(scheduler(3, 2, 0.5), None)
    stats.record(None, iteration(preempted=2))
    stats.record(None, None)
    assert gauges(metrics, "local-8b", "0") == (3, 2, 0.5)
    assert shown(metrics, "local-8b", "0")["preemptions_total"] == 2


def test_an_engine_that_is_gone_shows_no_gauges_and_keeps_its_counters() -> None:
    metrics = Metrics()
    stats, other = EngineStats("local-8b", "0", metrics), EngineStats("local-8b", "1", metrics)
    stats.record(scheduler(3, 2, 0.5, queries=8), iteration(made=7))
    other.record(scheduler(1, 0, 0.1), None)
    stats.gone()
    assert gauges(metrics, "local-8b", "0") == (None, None, None)
    assert gauges(metrics, "local-8b", "1") == (1, 0, 0.1)
    stats.record(scheduler(4, 0, 0.6, queries=1), iteration(made=1))
    assert gauges(metrics, "local-8b", "0") == (None, None, None)
    assert shown(metrics, "local-8b", "0")["generation_tokens_total"] == 8
    assert shown(metrics, "local-8b", "0")["prefix_cache_queries_total"] == 9


def test_the_engine_that_takes_the_place_of_one_that_is_gone_counts_on() -> None:
    metrics = Metrics()
    old = EngineStats("local-8b", "0", metrics)
    old.record(scheduler(3, 2, 0.5), iteration(made=7))
    new = EngineStats("local-8b", "0", metrics)
    new.record(scheduler(1, 0, 0.1), iteration(made=1))
    old.gone()
    old.gone()
    new.record(scheduler(2, 0, 0.2), iteration(made=1))
    assert gauges(metrics, "local-8b", "0") == (2, 0, 0.2)
    assert shown(metrics, "local-8b", "0")["generation_tokens_total"] == 9
