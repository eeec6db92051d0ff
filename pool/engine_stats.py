"""What an engine says of itself, put into the gateway's metrics."""

from __future__ import annotations

from typing import Any

from weighbridge.observability.metrics import Metrics


class EngineStats:
    """One engine's series: those of its own tier and worker, so engines in one process leave each other's alone.

    The numbers may be seconds old, so nothing is admitted by them.

    Args:
        road: the tier's name.
        worker: the worker's name, "0" and up.
        metrics: where the series are.
    """

    def __init__(self, road: str, worker: str, metrics: Metrics) -> None:
        self._labels = (road, worker)
        self._gauges = (metrics.engine_running, metrics.engine_waiting, metrics.engine_kv_cache_usage_ratio)
        self._preemptions = metrics.engine_preemptions_total.labels(road, worker)
        self._cache_queries = metrics.engine_prefix_cache_queries_total.labels(road, worker)
        self._cache_hits = metrics.engine_prefix_cache_hits_total.labels(road, worker)
        self._prompt_tokens = metrics.engine_prompt_tokens_total.labels(road, worker)
        self._generation_tokens = metrics.engine_generation_tokens_total.labels(road, worker)
        self._first_token = metrics.engine_time_to_first_token_seconds.labels(road, worker)
        self._next_token = metrics.engine_time_per_output_token_seconds.labels(road, worker)
        self._gone = False

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Take over vLLM's scheduler and iteration statistics; either may be None.

        Both count from the time before; only what is waiting, running and in use is as it stands.
        """
        if scheduler is not None:
            if not self._gone:
                self._show(scheduler.num_running_reqs, scheduler.num_waiting_reqs, scheduler.kv_cache_usage)
            # Tokens; requests that come back after a preemption are not in them.
            cache = scheduler.prefix_cache_stats
            if cache is not None:
                self._cache_queries.inc(cache.queries)
                self._cache_hits.inc(cache.hits)
        if iteration is not None:
            self._preemptions.inc(iteration.num_preempted_reqs)
            self._prompt_tokens.inc(iteration.num_prompt_tokens)
            self._generation_tokens.inc(iteration.num_generation_tokens)
            # From a clock that may be put back.
            for seconds in iteration.time_to_first_tokens_iter:
                self._first_token.observe(max(0.0, seconds))
            for seconds in iteration.inter_token_latencies_iter:
                self._next_token.observe(max(0.0, seconds))

    def gone(self) -> None:
        """Show the gauges no more: the engine has died or was closed. Its counters stay. Idempotent."""
        if not self._gone:
            self._gone = True
            for family in self._gauges:
                family.remove(*self._labels)

    def _show(self, *values: float) -> None:
        # Looked up each time: the engine that was here before may be taken away after this one has begun.
        for family, value in zip(self._gauges, values, strict=True):
            family.labels(*self._labels).set(value)
