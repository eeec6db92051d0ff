from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.ledger_rows import CHAIN_KEY
from weighbridge.config.clock import SystemClock
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.metrics import Metrics


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite3"


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def ledger(spool: Path, metrics: Metrics) -> AsyncIterator[Ledger]:
    """An open ledger that does not try again by itself within a test, and has patience with a lock."""
    opened = Ledger.open(
        spool, clock=SystemClock(), chain_key=CHAIN_KEY, retry_s=3600, busy_s=30, metrics=metrics
    )
    yield opened
    await opened.close()
