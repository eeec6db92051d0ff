"""What the settings name and the price book has no price for: it would serve, and its cost would be unknown."""

from __future__ import annotations

from weighbridge.config.commercial_section import MAIN
from weighbridge.config.exact import instant_text
from weighbridge.config.settings import Settings
from weighbridge.observability.costs import CostTable


def unpriced(settings: Settings, table: CostTable, now_ns: int) -> list[str]:
    """A sentence for each commercial model and each tier without a price at `now_ns` (UTC nanoseconds), the name of
    its setting first."""
    found = []
    for name, endpoint in settings.commercial.all_endpoints.items():
        if table.token_rate(endpoint.model, now_ns) is None:
            field = "commercial.model" if name == MAIN else f"commercial.endpoints.{name}.model"
            found.append(f"{field}: the price book has no price for {endpoint.model}")
    found += [
        f"tiers.{road}: the price book has no price for {road}"
        for road in settings.tiers
        if table.worker_rate(road, now_ns) is None
    ]
    day = instant_text(now_ns)[:10]
    return [
        f"{line} on {day}: its cost will be unknown, and its answers count as no saving" for line in found
    ]
