"""The ledger with a disk that refuses, rows that cannot be held, and faults of its own."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import ledger_rows as rows
from weighbridge.config.clock import SystemClock
from weighbridge.observability import ledger_inbox
from weighbridge.observability.egress_chain import ChainedEgress
from weighbridge.observability.ledger import Ledger, LedgerUnavailable
from weighbridge.observability.metrics import Metrics


async def fails(future: asyncio.Future[None]) -> None:
    with pytest.raises(LedgerUnavailable):
        async with asyncio.timeout(30):
            await future


async def test_rows_a_broken_disk_refused_are_written_later(
    ledger: Ledger, spool: Path, metrics: Metrics
) -> None:
    await ledger.intent(rows.intent("before"))
    with rows.broken_disk():
        await fails(ledger.intent(rows.intent("r1")))
        assert not ledger.healthy
        assert metrics.ledger_healthy.value == 0
        ledger.progress(rows.progress("before", completion=128))
        ledger.attempt(rows.attempt("before"))
        await fails(ledger.completion(rows.completion("r1")))
        assert ledger.backlog == 4
        assert metrics.records_at_risk_total.value == 3
    await ledger.intent(rows.intent("after"))
    assert ledger.healthy
    assert metrics.ledger_healthy.value == 1
    await ledger.close()
    stored = rows.requests(spool)
    assert set(stored) == {"before", "r1", "after"}
    assert (stored["r1"]["outcome"], stored["r1"]["tenant"], stored["r1"]["completion_tokens"]) == (
        "ok",
        "acme",
        20,
    )
    assert stored["before"]["completion_tokens"] == 128
    assert [row["request_id"] for row in rows.attempts(spool)] == ["before"]
    assert metrics.records_dropped_total.value == 0


async def test_a_completion_that_overtakes_its_intent_makes_the_same_row(ledger: Ledger, spool: Path) -> None:
    with rows.broken_disk():
        await fails(ledger.intent(rows.intent("r1")))
    # The disk is back: this row goes alone and first, the intent follows from memory.
    await ledger.completion(rows.completion("r1"))
    await ledger.completion(rows.completion("r1", outcome="error"))
    await ledger.close()
    stored = rows.requests(spool)["r1"]
    assert (stored["outcome"], stored["tenant"], stored["road_decided"]) == (
        "ok",
        "acme",
        "local-8b",
    )


async def test_the_first_completion_wins_although_it_waited_in_memory(ledger: Ledger, spool: Path) -> None:
    await ledger.intent(rows.intent("r1"))
    with rows.broken_disk():
        await fails(ledger.completion(rows.completion("r1", completion_tokens=1)))
    await ledger.completion(rows.completion("r1", completion_tokens=2))
    await ledger.close()
    assert rows.requests(spool)["r1"]["completion_tokens"] == 1


async def test_an_egress_that_failed_is_never_written(ledger: Ledger, spool: Path) -> None:
    with rows.broken_disk():
        await fails(ledger.intent(rows.intent("r1")))
        with pytest.raises(LedgerUnavailable):
            await ledger.record_egress(rows.egress("e1", "r1"))
        assert ledger.backlog == 1
    await ledger.completion(rows.completion("r1"))
    await ledger.close()
    assert rows.egresses(spool) == []
    assert rows.requests(spool)["r1"]["outcome"] == "ok"


async def test_an_egress_takes_its_waiting_intent_along(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rows.broken_disk():
        await fails(ledger.intent(rows.intent("r1")))
        await fails(ledger.intent(rows.intent("r2")))
    commits: list[list[Any]] = []
    put = ledger_inbox.put

    def seen(conn: sqlite3.Connection, group: Sequence[Any]) -> None:
        commits.append(list(group))
        put(conn, group)

    monkeypatch.setattr(ledger_inbox, "put", seen)
    await ledger.record_egress(rows.egress("e1", "r1"))
    # One commit: a kill right after it must not leave an egress row without its request.
    (first, _), (second, _) = commits[0]
    assert first == rows.intent("r1")
    assert (type(second), second.egress_id) == (ChainedEgress, "e1")


async def test_a_full_disk(ledger: Ledger, spool: Path, metrics: Metrics) -> None:
    await ledger.intent(rows.intent("before"))
    conn = ledger._writer._conn
    pages = conn.execute("PRAGMA page_count").fetchone()[0]
    conn.execute(f"PRAGMA max_page_count={pages}")
    results = await asyncio.gather(
        *(ledger.intent(rows.intent(f"r{n:03d}")) for n in range(300)), return_exceptions=True
    )
    assert any(isinstance(result, LedgerUnavailable) for result in results)
    assert not ledger.healthy
    assert metrics.records_at_risk_total.value == ledger.backlog > 0
    conn.execute("PRAGMA max_page_count=1000000")
    await ledger.intent(rows.intent("after"))
    await ledger.close()
    assert len(rows.requests(spool)) == 302


async def test_the_backlog_drops_its_oldest_rows_and_counts_them(spool: Path, metrics: Metrics) -> None:
    ledger = Ledger.open(
        spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY, max_pending=3, retry_s=3600, metrics=metrics
    )
    with rows.broken_disk():
        for n in range(5):
            await fails(ledger.intent(rows.intent(f"r{n}")))
        assert ledger.backlog == 3
        assert metrics.records_dropped_total.value == 2
    await ledger.close()
    assert list(rows.requests(spool)) == ["r2", "r3", "r4"]


async def test_a_disk_that_hangs_does_not_fill_the_memory(spool: Path, metrics: Metrics) -> None:
    ledger = Ledger.open(
        spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY, max_pending=3, busy_s=30, metrics=metrics
    )
    with rows.held_by_another(spool):
        under_way = ledger.intent(rows.intent("r0"))
        while ledger._writer._queue.qsize():
            await asyncio.sleep(0)
        futures = [ledger.intent(rows.intent(f"r{n}")) for n in range(1, 6)]
        await fails(futures[0])
        await fails(futures[1])
        assert metrics.records_dropped_total.value == 2
    await asyncio.gather(under_way, *futures[2:])
    await ledger.close()
    assert list(rows.requests(spool)) == ["r0", "r3", "r4", "r5"]


async def test_the_ledger_finds_out_by_itself_that_the_disk_is_back(spool: Path, metrics: Metrics) -> None:
    back = threading.Event()
    set_gauge = metrics.ledger_healthy.set

    class Watched:
        def set(self, value: float) -> None:
            set_gauge(value)
            if value:
                back.set()

    metrics.ledger_healthy = Watched()  # type: ignore[assignment]
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY, retry_s=0.01, metrics=metrics)
    back.clear()
    with rows.broken_disk():
        with pytest.raises(LedgerUnavailable):
            await ledger.record_egress(rows.egress())
        assert not ledger.healthy
        assert not back.wait(0.05)  # tries meanwhile do not count as working
    assert await asyncio.to_thread(back.wait, 10)
    assert ledger.healthy
    await ledger.close()


async def test_what_never_reaches_the_disk_is_counted_at_close(ledger: Ledger, metrics: Metrics) -> None:
    with rows.broken_disk():
        await fails(ledger.intent(rows.intent("r1")))
        await fails(ledger.completion(rows.completion("r1")))
        await ledger.close()
    assert metrics.records_dropped_total.value == 2


async def test_a_row_no_table_can_hold_does_not_harm_the_others(
    ledger: Ledger, spool: Path, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    with rows.held_by_another(spool):
        ledger.intent(rows.intent("r0"))
        while ledger._writer._queue.qsize():
            await asyncio.sleep(0)
        good = ledger.intent(rows.intent("r1"))
        bad = ledger.intent(rows.intent("r2", tenant="secret-\ud800"))
        ledger.attempt(rows.attempt("r1"))
    await good
    await fails(bad)
    assert ledger.healthy
    assert metrics.records_dropped_total.value == 1
    assert list(rows.requests(spool)) == ["r0", "r1"]
    assert len(rows.attempts(spool)) == 1
    assert "UnicodeEncodeError" in caplog.text
    assert "secret" not in caplog.text


async def test_a_fault_in_the_thread_does_not_end_it(
    ledger: Ledger, spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def faulty(*_: Any) -> None:
        raise RuntimeError("secret words")

    monkeypatch.setattr(ledger._writer, "_merge", faulty)
    await fails(ledger.intent(rows.intent("r1")))
    assert not ledger.healthy
    monkeypatch.undo()
    await ledger.completion(rows.completion("r1"))
    assert ledger.healthy
    await ledger.close()
    assert rows.requests(spool)["r1"]["tenant"] == "acme"
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


async def test_a_fault_that_stays_does_not_keep_the_ledger_from_closing(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY)

    def faulty(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(ledger._writer, "_merge", faulty)
    await fails(ledger.intent(rows.intent("r1")))
    await ledger.close(timeout_s=10)
    Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY).close_sync()


async def test_the_break_is_logged_once(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with rows.broken_disk():
        for n in range(3):
            await fails(ledger.intent(rows.intent(f"r{n}")))
    await ledger.intent(rows.intent("after"))
    assert caplog.text.count("cannot write") == 1
    assert caplog.text.count("writes again") == 1
