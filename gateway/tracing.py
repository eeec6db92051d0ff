"""Sets tracing up, where the settings ask for it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from weighbridge.config.clock import Clock
from weighbridge.config.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from weighbridge.observability.traces import Tracing


def tracing_of(settings: Settings, clock: Clock, exporter: SpanExporter | None) -> Tracing | None:
    """The gateway's tracing; None where no span would go anywhere.

    Args:
        exporter: takes the spans; None for nowhere.
    """
    if exporter is None:
        return None
    from weighbridge.observability.traces import Tracing  # a tenth of a second, for those alone who trace

    return Tracing(
        exporter,
        ratio=settings.traces.ratio,
        clock=clock,
        draw=random.random,
        resource={"service.name": "weighbridge"},
    )
