"""Where the tests of this folder keep the overlay, and the policy they start from."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from weighbridge.observability.metrics import Metrics
from weighbridge.policies.store import PolicyStore
from weighbridge.state.store import _MIGRATIONS, StateStore

TEXT = "version: 1\nname: p\negress: masked\nbounds:\n  local_8b: 0.45\n  local_70b: 0.55\n"


class FixedClock:
    def monotonic(self) -> float:
        return 0.0

    def wall_ns(self) -> int:
        return 1_700_000_000_000_000_000


class MemoryState(StateStore):
    """The state store without a disk, for what none is needed for."""

    def __init__(self) -> None:
        conn = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        for step in _MIGRATIONS:
            for statement in step:
                conn.execute(statement)
        super().__init__(conn, FixedClock())
        self.fails: Exception | None = None

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        if self.fails is not None:
            raise self.fails
        with super().writing() as conn:
            yield conn


def failures(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("weighbridge_policy_reload_failures_total") or 0.0


def road(store: PolicyStore, score: float) -> str:
    return store.current.place("chat", score, "t").road
