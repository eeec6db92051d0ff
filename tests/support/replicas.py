"""Gateways, as far as their queue locks go, that share one tier's slots by a real Redis, and a watch on the limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pydantic import SecretStr

from tests.support.waiting import until
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.config.settings import RedisSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.pool.shared_lock import SharedQueueLock
from weighbridge.pool.slot_lock import Ask, Priority, Slot
from weighbridge.state.redis_link import RedisLink
from weighbridge.state.slot_leases import SlotLeases

CLOCK = SystemClock()
PLACE = "worker"


def terms(
    seconds: float = 30,
    *,
    priority: Priority = Priority.INTERACTIVE,
    tenant: str = "",
    wait: bool = True,
) -> Ask:
    return Ask(Deadline.after(CLOCK, seconds), priority, tenant, wait=wait)


@dataclass
class Watch:
    """Counts the slots in use over all replicas, as the server behind them would."""

    in_use: int = 0
    peak: int = 0
    served: list[str] = field(default_factory=list)

    def began(self, name: str = "") -> None:
        self.in_use += 1
        self.peak = max(self.peak, self.in_use)
        self.served.append(name)

    def ended(self) -> None:
        self.in_use -= 1


@dataclass
class Replica:
    """One gateway's line and lock."""

    link: RedisLink
    lock: SharedQueueLock
    metrics: Metrics

    async def together(self, within_s: float = 10) -> None:
        """Wait until the slots are shared."""
        await until(lambda: not self.lock.on_own and self.lock._met, within_s)

    async def on_own(self, within_s: float = 10) -> None:
        await until(lambda: self.lock.on_own, within_s)

    async def work(
        self, watch: Watch, name: str, hold: asyncio.Event | float, ask: Ask | None = None
    ) -> Slot:
        """Take a slot, hold it for a time or until told, give it back."""
        slot = await self.lock.acquire(ask or terms())
        watch.began(name)
        try:
            if isinstance(hold, asyncio.Event):
                await hold.wait()
            else:
                await asyncio.sleep(hold)
        finally:
            watch.ended()
            slot.release()
        return slot


@asynccontextmanager
async def replica(
    url: str,
    *,
    slots: int = 2,
    lease_s: float = 2.0,
    operation_ms: int = 250,
    max_waiting: int = 1000,
    replicas: int = 1,
    start: bool = True,
    places: dict[str, int] | None = None,
    keys: dict[str, str] | None = None,
    password: str | None = None,
) -> AsyncIterator[Replica]:
    """A replica; on leaving it says good-bye."""
    settings = RedisSettings(
        url=url,
        password=None if password is None else SecretStr(password),
        lease_s=lease_s,
        operation_timeout_ms=operation_ms,
        connect_timeout_ms=500,
        replicas=replicas,
    )
    metrics = Metrics()
    link = RedisLink(settings, CLOCK, metrics)
    leases = SlotLeases(link, "local-8b", settings.lease_s, settings.replicas)
    lock = SharedQueueLock(max_waiting, CLOCK, leases, keys=keys, predict=False)
    for name, count in (places or {PLACE: slots}).items():
        lock.open(name, count)
    made = Replica(link, lock, metrics)
    if start:
        link.start()
        await made.together()
    try:
        yield made
    finally:
        lock.close()
        await link.close()
