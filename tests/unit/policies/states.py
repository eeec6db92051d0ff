"""Where the tests of this folder keep the overlay, and the policy they start from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weighbridge.observability.metrics import Metrics
from weighbridge.policies.store import PolicyStore
from weighbridge.state.store import OverlayEntry

TEXT = "version: 1\nname: p\negress: masked\nbounds:\n  local_8b: 0.45\n  local_70b: 0.55\n"


class FixedClock:
    def monotonic(self) -> float:
        return 0.0

    def wall_ns(self) -> int:
        return 1_700_000_000_000_000_000


class MemoryState:
    """The state store's twin for what no disk is needed for."""

    def __init__(self) -> None:
        self.entries: list[OverlayEntry] = []
        self.fails: Exception | None = None

    def overlay(self) -> Mapping[str, Any] | None:
        return (self.entries[-1].values or None) if self.entries else None

    def set_overlay(
        self, values: Mapping[str, Any], who: str, why: str, *, base_policy_version: str = ""
    ) -> OverlayEntry:
        if self.fails is not None:
            raise self.fails
        entry = OverlayEntry(len(self.entries) + 1, 5, who, why, dict(values), base_policy_version)
        self.entries.append(entry)
        return entry

    def history(self) -> list[OverlayEntry]:
        return self.entries


def failures(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("weighbridge_policy_reload_failures_total") or 0.0


def road(store: PolicyStore, score: float) -> str:
    return store.current.place("chat", score, "t").road
