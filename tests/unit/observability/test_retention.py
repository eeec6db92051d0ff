"""Old records go, a little at a time, and nothing goes that is still needed."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import ledger_rows as rows
from tests.unit.observability.test_ledger_rollups import EVER, kept, tables
from weighbridge.config.clock import SystemClock
from weighbridge.observability import ledger_inbox, ledger_read
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.ledger_retention import LOOK, PAUSE_S, REST_S, STEP, Retention, prune
from weighbridge.observability.usage_read import usage

DAY_NS = 86_400_000_000_000
NOW_NS = 1_800_000_000_000_000_000


class FixedClock(SystemClock):
    def wall_ns(self) -> int:
        return NOW_NS


def write(conn: sqlite3.Connection, *ended: tuple[str, int]) -> None:
    for name, ended_ns in ended:
        parts: Sequence[Any] = (
            rows.intent(name),
            rows.attempt(name),
            rows.attempt(name, 2),
            rows.completion(name, ended_ns=ended_ns),
        )
        ledger_inbox.put(conn, [(part, None) for part in parts])


def left(conn: sqlite3.Connection) -> list[str]:
    names = [row["request_id"] for row in ledger_read.requests(conn)]
    tried = [row["request_id"] for row in ledger_read.attempts(conn)]
    assert tried == [name for name in names if name != "open" for _ in range(2)]
    return names


def test_what_ended_long_ago_goes_with_its_attempts() -> None:
    with tables() as conn:
        write(conn, ("a", 10), ("b", 20), ("c", 30))
        ledger_inbox.put(conn, [(rows.intent("open", admitted_ns=1), None)])
        ledger_inbox.roll(conn)
        sums = kept(conn)
        assert prune(conn, 30, keep_unshipped=False) == 2
        assert left(conn) == ["c", "open"]
        assert kept(conn) == sums
        assert prune(conn, 30, keep_unshipped=False) == 0
        assert prune(conn, 31, keep_unshipped=False) == 1
        # A number is not given out twice.
        write(conn, ("d", 40))
        assert ledger_read.requests(conn, "d")[0]["seq"] == 4


def test_a_step_is_bounded_and_begins_with_the_oldest() -> None:
    with tables() as conn:
        write(conn, ("c", 10), ("a", 20), ("b", 30))
        ledger_inbox.roll(conn)
        assert prune(conn, 100, keep_unshipped=False, most=2) == 2
        assert left(conn) == ["b"]


def test_what_is_not_added_up_yet_stays() -> None:
    with tables() as conn:
        write(conn, ("a", 10))
        ledger_inbox.roll(conn)
        write(conn, ("b", 10))
        assert prune(conn, 100, keep_unshipped=False) == 1
        assert left(conn) == ["b"]
        assert [row["requests"] for row in usage(conn, *EVER, [])] == [2]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 50), max_size=12),
    st.integers(0, 12),
    st.integers(0, 60),
    st.integers(1, 5),
    st.lists(st.integers(0, 11), max_size=4),
)
def test_nothing_unshipped_and_nothing_young_goes(
    ended: list[int], shipped: int, before: int, most: int, late: list[int]
) -> None:
    with tables() as conn:
        write(conn, *((f"r{n:02}", at) for n, at in enumerate(ended)))
        for n in late:
            if n < len(ended):
                # A part that comes late makes it a record to be sent again.
                ledger_inbox.put(conn, [(rows.attempt(f"r{n:02}", 3), None)])
        ledger_inbox.roll(conn)
        conn.execute("UPDATE shipping SET shipped = min(taken, ?)", (shipped,))
        stay = {
            row["request_id"]
            for row in ledger_read.requests(conn)
            if row["seq"] > shipped or row["ended_ns"] >= before
        }
        sums = kept(conn)
        while prune(conn, before, keep_unshipped=True, most=most):
            pass
        names = {row["request_id"] for row in ledger_read.requests(conn)}
        assert stay <= names
        assert {row["request_id"] for row in ledger_read.attempts(conn)} == names
        assert kept(conn) == sums


async def test_the_ledger_lets_old_records_go_by_itself_and_keeps_the_egress_record(spool: Path) -> None:
    clock = FixedClock()
    ledger = Ledger.open(spool, clock=clock, chain_key=rows.CHAIN_KEY)
    for n in range(STEP + 50):
        age = 40 if n < STEP + 20 else 5
        name = f"r{n:03}"
        ledger.attempt(rows.attempt(name))
        written = ledger.completion(rows.completion(name, ended_ns=NOW_NS - age * DAY_NS))
    await written
    await ledger.intent(rows.intent("r000"))
    await ledger.record_egress(rows.egress(request_id="r000"))
    await ledger.close()
    ledger = Ledger.open(spool, clock=clock, chain_key=rows.CHAIN_KEY, retention_days=30)
    async with asyncio.timeout(10):
        while len(rows.requests(spool)) > 30:
            await asyncio.sleep(0.01)
    # Rows are written meanwhile, and young ones stay.
    await ledger.completion(rows.completion("new", ended_ns=NOW_NS))
    await ledger.close()
    assert len(rows.requests(spool)) == 31 and len(rows.attempts(spool)) == 30
    assert len(rows.egresses(spool)) == 1
    with closing(ledger_read.open_readonly(spool)) as conn:
        assert [row["requests"] for row in usage(conn, *EVER, [])] == [STEP + 51]


def test_steps_follow_each_other_while_there_is_more() -> None:
    with tables() as conn:
        write(conn, *((f"r{n:03}", 10) for n in range(STEP + 1)))
        ledger_inbox.roll(conn)
        retention = Retention(1, lambda: 2 * DAY_NS, keep_unshipped=False)
        assert retention.due_in_s(5.0) == 0
        retention.step(conn, 5.0)
        assert retention.due_in_s(5.0) == pytest.approx(PAUSE_S)
        retention.step(conn, 6.0)
        assert retention.due_in_s(6.0) == REST_S
        assert left(conn) == []


@pytest.mark.parametrize("shut_out", [STEP, 2 * LOOK + 1])
def test_those_that_stay_at_the_front_do_not_keep_the_others(shut_out: int) -> None:
    """A clock that was wrong for a while, and records that the collector would not take."""
    with tables() as conn:
        write(conn, *((f"ahead{n:05}", NOW_NS if n % 2 else 10) for n in range(shut_out)))
        write(conn, *((f"old{n:03}", 10) for n in range(STEP + 1)), ("new", 3 * DAY_NS))
        ledger_inbox.roll(conn)
        conn.execute(
            "INSERT INTO rejected SELECT 'requests', request_id, seq, 1, 'refused' FROM requests "
            "WHERE request_id LIKE 'ahead%' AND ended_ns = 10"
        )
        retention = Retention(1, lambda: 2 * DAY_NS, keep_unshipped=False)
        for _ in range(shut_out // LOOK + 3):
            retention.step(conn, 5.0)
        names = left(conn)
        assert len(names) == shut_out + 1 and "new" in names
        # It begins at the front again, and finds what has grown old there.
        conn.execute("UPDATE requests SET ended_ns = 10 WHERE request_id = 'ahead00001'")
        retention.step(conn, 6.0)
        assert "ahead00001" not in left(conn)


def test_a_step_reads_a_bounded_number_of_requests_by_their_numbers() -> None:
    with tables() as conn:
        asked: list[str] = []
        conn.set_trace_callback(asked.append)
        prune(conn, 30, keep_unshipped=True)
        conn.set_trace_callback(None)
        (select,) = [sql for sql in asked if sql.startswith("SELECT request_id")]
        plan = " ".join(row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {select}"))
        assert "requests_by_seq" in plan and "TEMP B-TREE" not in plan
        assert f"LIMIT {LOOK})" in select


def test_a_file_that_cannot_be_written_is_no_harm(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.INFO)
    with closing(sqlite3.connect(tmp_path / "x.sqlite3", isolation_level=None)) as conn:
        retention = Retention(1, lambda: NOW_NS, keep_unshipped=False)
        retention.step(conn, 5.0)
        retention.step(conn, 65.0)
        assert retention.due_in_s(65.0) == REST_S and not conn.in_transaction
    assert [record.message for record in caplog.records] == [
        "old usage records cannot be deleted at the moment (OperationalError)"
    ]


async def test_a_fault_in_the_sums_keeps_no_row_off_the_disk(
    ledger: Ledger, spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    failed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def fails(conn: sqlite3.Connection) -> None:
        loop.call_soon_threadsafe(failed.set)
        raise sqlite3.OperationalError("integer overflow")

    monkeypatch.setattr(ledger_inbox, "roll", fails)
    await ledger.completion(rows.completion())
    async with asyncio.timeout(10):
        await failed.wait()
        await ledger.completion(rows.completion("next"))
    assert ledger.healthy and ledger.backlog == 0
    with closing(ledger_read.open_readonly(spool)) as conn:
        assert [row["requests"] for row in usage(conn, *EVER, [])] == [2]
    assert "could not look after its records (OperationalError)" in caplog.text


async def test_many_requests_are_added_up_without_waiting_for_a_pause(ledger: Ledger, spool: Path) -> None:
    def rolled() -> tuple[int, int]:
        with closing(ledger_read.open_readonly(spool)) as conn:
            return tuple(conn.execute("SELECT rolled, taken FROM shipping").fetchone())  # type: ignore[return-value]

    async with asyncio.timeout(20):
        n = 0
        while not 0 < rolled()[0] < rolled()[1]:
            n += 1
            await ledger.completion(rows.completion(f"r{n}"))
        # And those that are left when nothing comes any more.
        while rolled()[0] < rolled()[1]:
            await asyncio.sleep(0.05)
