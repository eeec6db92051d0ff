"""What an engine says of itself, put into the gateway's metrics."""

from __future__ import annotations

from typing import Any

from weighbridge.observability.metrics import Metrics


class EngineStats:
    """One engine's series: those of its own tier, so engines in one process leave each other's alone.

    The numbers may be seconds old, so nothing is admitted by them.
    """

    def __init__(self, road: str, metrics: Metrics) -> None:
        self._running = metrics.engine_running.labels(road)
        self._waiting = metrics.engine_waiting.labels(road)
        self._kv_cache_usage = metrics.kv_cache_usage.labels(road)
        self._preemptions = metrics.preemptions_total.labels(road)

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Take over vLLM's scheduler and iteration statistics; either may be None."""
        if scheduler is not None:
            self._running.set(scheduler.num_running_reqs)
            self._waiting.set(scheduler.num_waiting_reqs)
            self._kv_cache_usage.set(scheduler.kv_cache_usage)
        if iteration is not None:
            self._preemptions.inc(iteration.num_preempted_reqs)
