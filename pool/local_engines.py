"""How the gateway gets the local engines without knowing which they are. Heavy parts are imported when called."""

from __future__ import annotations

import logging

from weighbridge.config.clock import Clock
from weighbridge.config.roads import Road
from weighbridge.config.settings import TierSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.pool.engine import Engine

log = logging.getLogger("weighbridge.pool")


def make_engine(road: Road, settings: TierSettings, worker: str, clock: Clock, metrics: Metrics) -> Engine:
    """Make a worker's engine; loads nothing yet.

    Args:
        settings: the tier's, narrowed to this worker.
        worker: its name.

    Raises:
        ConfigError: something is wrong that can be seen without loading anything.
    """
    if settings.endpoints:
        from weighbridge.pool.http_engine import HttpEngine

        return HttpEngine(settings, road, settings.endpoints[0], clock)
    from weighbridge.pool.vllm_engine import VllmEngine

    return VllmEngine(settings, road, clock, metrics=metrics, worker=worker)


def preload() -> None:
    """Import what the engines need. It holds the interpreter for some 12 s, so do it before listening.

    Raises:
        ConfigError: vLLM is not installed or cannot be imported.
    """
    from weighbridge.pool.vllm_loading import compat

    log.info("importing vLLM, which takes some seconds")
    compat()
