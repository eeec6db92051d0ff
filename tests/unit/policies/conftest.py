"""A policy file, and the overlay kept in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.policies.states import TEXT, FixedClock, MemoryState
from weighbridge.state.store import StateStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture(params=["memory", "sqlite"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield MemoryState()
    else:
        store = StateStore.open(tmp_path / "state.sqlite3", FixedClock())
        yield store
        store.close()
