"""A ledger, a shipper and a collector together, without a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import ledger_rows as rows
from weighbridge.config.clock import SystemClock
from weighbridge.config.collector_section import CollectorSettings
from weighbridge.observability import shipping_read
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.metrics import Metrics
from weighbridge.observability.otlp_post import Poster
from weighbridge.observability.shipper import Shipper

QUICK: Mapping[str, Any] = {
    "timeout_s": 2.0,
    "interval_s": 0.05,
    "batch_size": 50,
    "metrics_interval_s": None,
}


def settings(url: str, **changes: Any) -> CollectorSettings:
    return CollectorSettings.model_validate({"endpoint": url, **QUICK, **changes})


def make_shipper(
    spool: Path,
    url: str,
    ledger: Ledger,
    metrics: Metrics,
    *,
    clock: SystemClock | None = None,
    **changes: Any,
) -> Shipper:
    given = settings(url, **changes)
    return Shipper(
        spool,
        given,
        poster=Poster(given, "1.2.3"),
        hand_over=ledger.shipped,
        metrics=metrics,
        clock=clock or SystemClock(),
        version="1.2.3",
        started_ns=1_700_000_000_000_000_000,
        jitter=lambda: 1.0,
    )


@dataclass
class Shipping:
    spool: Path
    ledger: Ledger
    shipper: Shipper
    metrics: Metrics

    async def fill(self, count: int, prefix: str = "r", **changes: Any) -> list[str]:
        """`count` requests that have ended, with an attempt each."""
        ids = [f"{prefix}{n:05d}" for n in range(count)]
        for request_id in ids:
            self.ledger.intent(rows.intent(request_id))
            self.ledger.attempt(rows.attempt(request_id))
            last = self.ledger.completion(rows.completion(request_id, **changes))
        await last
        return ids

    def on_disk(self) -> dict[str, int]:
        """The cursors as a restart would find them."""
        conn = shipping_read.open_spool(self.spool)
        try:
            return shipping_read.cursors(conn)
        finally:
            conn.close()

    def rejected(self) -> list[tuple[str, str, str]]:
        conn = shipping_read.open_spool(self.spool)
        try:
            return [(stream, id_, why) for stream, id_, _, _, why in shipping_read.rejected(conn)]
        finally:
            conn.close()


@asynccontextmanager
async def shipping(spool: Path, url: str, *, start: bool = True, **changes: Any) -> AsyncIterator[Shipping]:
    metrics = Metrics()
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY, retry_s=0.05, metrics=metrics)
    shipper = make_shipper(spool, url, ledger, metrics, **changes)
    if start:
        shipper.start()
    try:
        yield Shipping(spool, ledger, shipper, metrics)
    finally:
        await asyncio.to_thread(shipper.stop)
        await ledger.close()
