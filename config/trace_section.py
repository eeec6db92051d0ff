"""The section of the settings about traces."""

from __future__ import annotations

from weighbridge.config.legal import Real
from weighbridge.config.section import Section
from weighbridge.config.shipped import shipped


class TraceSettings(Section):
    """Which requests are traced. Spans go where `collector.endpoint` points; without one there are none."""

    ratio: Real = shipped(
        "traces.ratio",
        "Share of the requests that is traced, of those whose callers bring no `traceparent`. A caller that brings one "
        "is followed: traced if it says sampled, else not.",
        ge=0,
        le=1,
    )
