"""How long the ledger lets its callers wait: for a file that another process holds, and for a disk that hangs."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import ledger_rows as rows
from weighbridge.config.clock import SystemClock
from weighbridge.observability import ledger_inbox
from weighbridge.observability.ledger import Ledger, LedgerUnavailable
from weighbridge.observability.ledger_limit import WaitLimit
from weighbridge.observability.metrics import Metrics

NEVER = 3600.0


async def fails(future: asyncio.Future[None]) -> None:
    with pytest.raises(LedgerUnavailable):
        async with asyncio.timeout(30):
            await future


# ---- a lock ----


async def test_a_locked_file_holds_callers_up_once_and_loses_nothing(spool: Path, metrics: Metrics) -> None:
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY, retry_s=NEVER, metrics=metrics)
    with rows.held_by_another(spool):
        began = time.monotonic()
        await fails(ledger.intent(rows.intent("r0")))
        assert time.monotonic() - began < 1.5
        assert not ledger.healthy
        began = time.monotonic()
        for n in range(1, 30):
            await fails(ledger.intent(rows.intent(f"r{n}")))
            await fails(ledger.completion(rows.completion(f"r{n}")))
            with pytest.raises(LedgerUnavailable):
                await ledger.record_egress(rows.egress(f"e{n}", f"r{n}"))
        assert time.monotonic() - began < 3  # not one wait of a healthy ledger each
        assert ledger.backlog == metrics.records_at_risk_total.value == 59
    await ledger.record_egress(rows.egress("e-after", "r1"))
    assert ledger.healthy
    await ledger.close()
    stored = rows.requests(spool)
    assert set(stored) == {f"r{n}" for n in range(30)}
    assert [request_id for request_id, row in stored.items() if row["outcome"] is None] == ["r0"]
    assert [row["egress_id"] for row in rows.egresses(spool)] == ["e-after"]
    assert metrics.records_dropped_total.value == 0


async def test_a_healthy_ledger_waits_for_a_short_lock(spool: Path) -> None:
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY, busy_s=30)
    with rows.held_by_another(spool):
        written = ledger.intent(rows.intent())
        while ledger._writer._queue.qsize():
            await asyncio.sleep(0)
    await written
    assert ledger.healthy
    await ledger.close()


async def test_rows_are_written_once_the_lock_is_gone_though_nothing_new_comes(
    spool: Path, metrics: Metrics
) -> None:
    ledger = Ledger.open(
        spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY, busy_s=0.01, retry_s=0.01, metrics=metrics
    )
    with rows.held_by_another(spool):
        await fails(ledger.intent(rows.intent()))
    async with asyncio.timeout(10):
        while metrics.ledger_healthy.value == 0:
            await asyncio.sleep(0.01)
    assert list(rows.requests(spool)) == ["r1"]
    assert ledger.backlog == 0
    await ledger.close()


async def test_closing_waits_a_while_for_the_lock(spool: Path, metrics: Metrics) -> None:
    ledger = Ledger.open(
        spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY, busy_s=0.01, retry_s=NEVER, metrics=metrics
    )
    tried = threading.Event()
    with rows.held_by_another(spool):
        await fails(ledger.intent(rows.intent()))
        ledger._writer._conn.set_trace_callback(lambda _: tried.set())
        closing = asyncio.create_task(ledger.close())
        assert await asyncio.to_thread(tried.wait, 10)
        await asyncio.sleep(0.1)  # the time a lock needs to outlast the waits of a serving ledger
    await closing
    assert list(rows.requests(spool)) == ["r1"]
    assert metrics.records_dropped_total.value == 0


# ---- a disk that hangs ----


class HangingDisk:
    """Commits go through until `hold`; then each waits for `release`, and fails if there is an `error`."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._free = threading.Event()
        self._free.set()
        self.error: Exception | None = None

    def hold(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    def put(self, conn: sqlite3.Connection, group: Sequence[Any]) -> None:
        self.reached.set()
        self._free.wait(30)
        if self.error is not None:
            raise self.error
        _put(conn, group)


_put = ledger_inbox.put


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingDisk]:
    hanging = HangingDisk()
    monkeypatch.setattr(ledger_inbox, "put", hanging.put)
    yield hanging
    hanging.release()


def opened(spool: Path, metrics: Metrics) -> Ledger:
    return Ledger.open(
        spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY, retry_s=NEVER, hang_s=0.1, metrics=metrics
    )


async def test_callers_of_a_hanging_disk_are_answered_and_their_rows_written_later(
    spool: Path, metrics: Metrics, disk: HangingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ledger = opened(spool, metrics)
    disk.hold()
    first = ledger.intent(rows.intent("r0"))
    assert await asyncio.to_thread(disk.reached.wait, 10)
    second = ledger.intent(rows.intent("r1"))
    await fails(first)
    await fails(second)
    assert not ledger.healthy
    assert metrics.ledger_healthy.value == 0
    third = ledger.intent(rows.intent("r2"))
    assert isinstance(third.exception(), LedgerUnavailable)  # at once
    assert metrics.records_at_risk_total.value == 3
    ledger._limit._limit_s = 30
    disk.release()
    async with asyncio.timeout(10):
        while not ledger.healthy:
            await asyncio.sleep(0.01)
    await ledger.completion(rows.completion("r2"))
    assert metrics.ledger_healthy.value == 1
    assert set(rows.requests(spool)) == {"r0", "r1", "r2"}
    assert (metrics.records_at_risk_total.value, metrics.records_dropped_total.value) == (3, 0)
    assert caplog.text.count("disk hangs") == caplog.text.count("answers again") == 1
    await ledger.close()


async def test_an_egress_refused_by_a_hanging_disk_is_withdrawn(
    spool: Path, metrics: Metrics, disk: HangingDisk
) -> None:
    ledger = opened(spool, metrics)
    disk.hold()
    first = ledger.intent(rows.intent())
    assert await asyncio.to_thread(disk.reached.wait, 10)
    with pytest.raises(LedgerUnavailable):  # handed over before anybody knows
        async with asyncio.timeout(10):
            await ledger.record_egress(rows.egress("e1"))
    await fails(first)
    with pytest.raises(LedgerUnavailable):  # and after
        await ledger.record_egress(rows.egress("e2"))
    disk.release()
    await ledger.close()
    assert list(rows.requests(spool)) == ["r1"]
    assert rows.egresses(spool) == []


async def test_rows_of_a_disk_that_hangs_and_then_fails_are_at_risk_once(
    spool: Path, metrics: Metrics, disk: HangingDisk
) -> None:
    ledger = opened(spool, metrics)
    disk.hold()
    await fails(ledger.intent(rows.intent("r0")))
    await fails(ledger.intent(rows.intent("r1")))
    ledger._limit._limit_s = 30
    disk.error = sqlite3.OperationalError("disk I/O error")
    disk.release()
    async with asyncio.timeout(10):
        while ledger.backlog < 2:
            await asyncio.sleep(0.01)
    await fails(ledger.intent(rows.intent("r2")))  # an ordinary failure
    assert not ledger.healthy
    assert ledger.backlog == metrics.records_at_risk_total.value == 3
    disk.error = None
    await ledger.intent(rows.intent("r3"))
    await ledger.close()
    assert set(rows.requests(spool)) == {"r0", "r1", "r2", "r3"}


# ---- the limit ----


async def test_each_row_has_its_own_limit_and_what_is_done_is_not_given_up() -> None:
    given_up: list[str] = []
    late = asyncio.Event()

    def give_up(row: Any, future: asyncio.Future[None]) -> None:
        given_up.append(row.request_id)
        future.cancel()
        if row.request_id == "late":
            late.set()

    limit = WaitLimit(0.05, give_up)
    loop = asyncio.get_running_loop()
    done, open_, cancelled = loop.create_future(), loop.create_future(), loop.create_future()
    for name, future in (("done", done), ("open", open_), ("cancelled", cancelled)):
        limit.watch(rows.intent(name), future)
    done.set_result(None)
    cancelled.cancel()
    await asyncio.sleep(0.03)
    began = loop.time()
    limit.watch(rows.intent("late"), loop.create_future())
    async with asyncio.timeout(10):
        await late.wait()
    assert given_up == ["open", "late"]
    assert loop.time() - began >= 0.05
    late.clear()
    limit.watch(rows.intent("late"), loop.create_future())  # after a time without any
    async with asyncio.timeout(10):
        await late.wait()


async def test_what_is_done_is_not_kept() -> None:
    limit = WaitLimit(NEVER, lambda *_: None)
    loop = asyncio.get_running_loop()
    for _ in range(100):
        future = loop.create_future()
        limit.watch(rows.intent(), future)
        future.set_result(None)
    assert len(limit._open) == 1


def test_the_limit_holds_in_a_loop_after_another() -> None:
    given_up: list[str] = []
    limit = WaitLimit(0.01, lambda row, future: (given_up.append(row.request_id), future.cancel()))

    async def leave(name: str) -> None:
        limit.watch(rows.intent(name), asyncio.get_running_loop().create_future())

    async def wait(name: str) -> None:
        future = asyncio.get_running_loop().create_future()
        limit.watch(rows.intent(name), future)
        async with asyncio.timeout(10):
            await asyncio.wait([future])

    asyncio.run(leave("first"))
    asyncio.run(wait("second"))
    assert given_up == ["second"]
