"""Sets tracing up, where the settings ask for it."""

from __future__ import annotations

import random
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from weighbridge.config.clock import Clock
from weighbridge.config.settings import Settings
from weighbridge.observability.metrics import Metrics
from weighbridge.observability.otlp_post import Poster

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from weighbridge.observability.traces import Tracing


def tracing_of(
    settings: Settings, clock: Clock, metrics: Metrics, exporter: SpanExporter | None
) -> Tracing | None:
    """The gateway's tracing; None where no span would go anywhere.

    Args:
        exporter: takes the spans; None for the collector of the settings.

    Raises:
        ConfigError: the collector's certificates cannot be used.
    """
    if exporter is None and settings.collector.endpoint is None:
        return None
    # A tenth of a second, for those alone who trace.
    from weighbridge.observability.span_sender import SpanSender
    from weighbridge.observability.traces import Tracing

    program = version("weighbridge")
    make = partial(
        Tracing,
        ratio=settings.traces.ratio,
        clock=clock,
        draw=random.random,
        resource={"service.name": "weighbridge", "service.version": program},
    )
    if exporter is not None:
        return make(exporter)
    poster = Poster(settings.collector, program)
    sender = SpanSender(poster, limit_s=settings.collector.timeout_s, clock=clock, metrics=metrics)
    return make(sender, on_close=sender.hurry)
