"""The chain over the egress rows: how it is written, and that it goes on after every setback."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import ledger_rows as rows
from tests.support.old_ledger import old_ledger
from weighbridge.config.clock import SystemClock
from weighbridge.observability import ledger as ledger_module
from weighbridge.observability import ledger_inbox, ledger_schema
from weighbridge.observability.egress_verify import Verdict, verify_file
from weighbridge.observability.ledger import DatabaseUnusable, Ledger, LedgerUnavailable

OTHER_KEY = b"another key of thirty-two bytes."


def verdict(spool: Path) -> Verdict:
    return verify_file(spool, [rows.CHAIN_KEY])


def reopen(spool: Path, key: bytes = rows.CHAIN_KEY) -> Ledger:
    return Ledger.open(spool, clock=SystemClock(), chain_key=key, retry_s=3600)


async def test_the_chain_can_be_computed_from_its_description(ledger: Ledger, spool: Path) -> None:
    """With nothing but the standard library: what the documentation says is what is signed."""
    await ledger.record_egress(rows.egress("e1", entities={"PERSON": 2, "EMAIL": 1}))
    await ledger.record_egress(rows.egress("e2", endpoint='http://h/"\\\n\x7f/한국어', at_ns=2**62))
    link = bytes(32)
    with closing(sqlite3.connect(spool)) as conn:
        stored = conn.execute("SELECT * FROM egress ORDER BY seq").fetchall()
    for *values, chain in stored:
        signed = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
        link = hmac.digest(rows.CHAIN_KEY, link + signed, hashlib.sha256)
        assert chain == link.hex()
    assert stored[0][:4] == (1, 1, hashlib.sha256(rows.CHAIN_KEY).hexdigest()[:8], 0)
    assert stored[0][12] == '{"EMAIL":1,"PERSON":2}'


async def test_rows_of_one_commit_are_chained_in_the_order_they_were_handed_over(
    ledger: Ledger, spool: Path
) -> None:
    with rows.held_by_another(spool):
        ledger.intent(rows.intent("r0"))
        while ledger._writer._queue.qsize():
            await asyncio.sleep(0)
        sent = [asyncio.create_task(ledger.record_egress(rows.egress(f"e{n}"))) for n in range(50)]
        while ledger._writer._queue.qsize() < 50:
            await asyncio.sleep(0)
    await asyncio.gather(*sent)
    assert [row["egress_id"] for row in rows.egresses(spool)] == [f"e{n}" for n in range(50)]
    found = verdict(spool)
    assert (found.rows, found.bad_seq) == (50, None)


async def test_a_row_that_is_refused_leaves_no_gap(ledger: Ledger, spool: Path) -> None:
    """In the middle of a group: an id used twice, text no table can hold, text SQLite would cut."""
    await ledger.record_egress(rows.egress("used"))
    bad = (rows.egress("used"), rows.egress("e", reason="\ud800"), rows.egress("e", reason="a\0b"))
    with rows.held_by_another(spool):
        ledger.intent(rows.intent("r0"))
        while ledger._writer._queue.qsize():
            await asyncio.sleep(0)
        handed = [rows.egress("a"), bad[0], rows.egress("b"), bad[1], bad[2], rows.egress("c")]
        sent = [asyncio.create_task(ledger.record_egress(row)) for row in handed]
        while ledger._writer._queue.qsize() < len(handed):
            await asyncio.sleep(0)
    results = await asyncio.gather(*sent, return_exceptions=True)
    assert [type(result) for result in results] == [
        type(None),
        LedgerUnavailable,
        type(None),
        LedgerUnavailable,
        LedgerUnavailable,
        type(None),
    ]
    await ledger.record_egress(rows.egress("d"))
    assert [row["egress_id"] for row in rows.egresses(spool)] == ["used", "a", "b", "c", "d"]
    assert (verdict(spool).rows, verdict(spool).bad_seq) == (5, None)
    assert ledger.healthy


async def test_the_chain_goes_on_after_a_broken_disk_and_a_restart(ledger: Ledger, spool: Path) -> None:
    await ledger.record_egress(rows.egress("e1"))
    with rows.broken_disk():
        for _ in range(3):
            with pytest.raises(LedgerUnavailable):
                await ledger.record_egress(rows.egress("lost"))
    await ledger.record_egress(rows.egress("e2"))
    await ledger.close()
    again = reopen(spool)
    await again.record_egress(rows.egress("e3"))
    await again.close()
    assert [(row["seq"], row["egress_id"]) for row in rows.egresses(spool)] == [
        (1, "e1"),
        (2, "e2"),
        (3, "e3"),
    ]
    assert verdict(spool).bad_seq is None


async def test_a_commit_that_worked_and_was_reported_as_failed_leaves_no_gap(
    ledger: Ledger, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledger.record_egress(rows.egress("e1"))
    put = ledger_inbox.put

    def in_doubt(conn: sqlite3.Connection, stored: Sequence[ledger_inbox.Stored]) -> None:
        monkeypatch.undo()
        put(conn, stored)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(ledger_inbox, "put", in_doubt)
    with pytest.raises(LedgerUnavailable):
        await ledger.record_egress(rows.egress("in doubt"))
    await ledger.record_egress(rows.egress("e2"))
    assert [row["egress_id"] for row in rows.egresses(spool)] == ["e1", "in doubt", "e2"]
    assert (verdict(spool).rows, verdict(spool).bad_seq) == (3, None)


async def test_a_full_disk_leaves_a_whole_chain(ledger: Ledger, spool: Path) -> None:
    await ledger.record_egress(rows.egress("e0"))
    conn = ledger._writer._conn
    conn.execute(f"PRAGMA max_page_count={conn.execute('PRAGMA page_count').fetchone()[0]}")
    results = await asyncio.gather(
        *(ledger.record_egress(rows.egress(f"f{n}", endpoint="x" * 900)) for n in range(50)),
        return_exceptions=True,
    )
    assert any(isinstance(result, LedgerUnavailable) for result in results)
    held = sum(result is None for result in results)
    conn.execute("PRAGMA max_page_count=1000000")
    await ledger.record_egress(rows.egress("after"))
    found = verdict(spool)
    assert (found.rows, found.bad_seq) == (held + 2, None)


async def test_a_damaged_last_row_keeps_requests_in_and_records_going(spool: Path) -> None:
    ledger = reopen(spool)
    await ledger.record_egress(rows.egress("e1"))
    await ledger.close()
    with closing(sqlite3.connect(spool, isolation_level=None)) as conn:
        conn.execute("UPDATE egress SET chain = 'nonsense'")
    ledger = reopen(spool)
    with pytest.raises(LedgerUnavailable):
        await ledger.record_egress(rows.egress("e2"))
    await ledger.intent(rows.intent("local"))
    assert ledger.healthy
    await ledger.close()
    assert [row["egress_id"] for row in rows.egresses(spool)] == ["e1"]
    assert "local" in rows.requests(spool)


async def test_the_head_is_told_at_the_start(spool: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    ledger = reopen(spool)
    assert "egress record" not in caplog.text
    await ledger.record_egress(rows.egress("e1"))
    await ledger.close()
    reopen(spool).close_sync()
    assert f"egress record: 1 rows, head {verdict(spool).head}" in caplog.text


async def test_egress_rows_are_written_with_full_sync(ledger: Ledger, spool: Path) -> None:
    """Seen from SQLite: at the moment of each insert the connection syncs every commit to the disk itself."""
    conn = ledger._writer._conn
    statements: list[str] = []
    seen: dict[str, set[str]]
    conn.set_trace_callback(statements.append)
    await ledger.record_egress(rows.egress("e1"))
    await ledger.intent(rows.intent("r2"))
    await ledger.record_egress(rows.egress("e2"))
    conn.set_trace_callback(None)
    level, seen = "", {}
    for statement in statements:
        if statement.startswith("PRAGMA synchronous="):
            level = statement.removeprefix("PRAGMA synchronous=")
        for name in ("e1", "r2", "e2"):
            if statement.startswith("INSERT INTO inbox") and f'"{name}"' in statement:
                seen.setdefault(name, set()).add(level)
    assert seen == {"e1": {"FULL"}, "r2": {"NORMAL"}, "e2": {"FULL"}}
    assert conn.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


# ---- a file from before


def before(count: int) -> list[rows.Egress]:
    # Ids that do not run with time, to see which of the two the order follows.
    return [rows.egress(f"old-{count - n:03d}", f"r{n}", at_ns=1000 + n) for n in range(count)]


async def test_old_rows_are_adopted_in_order_of_time(spool: Path) -> None:
    old_ledger(spool, before(5))
    ledger = reopen(spool)
    assert ledger.recovered == 5
    await ledger.record_egress(rows.egress("new", at_ns=1))
    await ledger.close()
    stored = rows.egresses(spool)
    assert [row["egress_id"] for row in stored] == [*(f"old-{5 - n:03d}" for n in range(5)), "new"]
    assert [row["adopted"] for row in stored] == [True] * 5 + [False]
    assert stored[0]["entities"] == {"PERSON": 2}
    found = verdict(spool)
    assert (found.rows, found.adopted, found.bad_seq) == (6, 5, None)
    # The road of a request that was lost is found by the new table too.
    assert {row["road"] for row in rows.requests(spool).values()} == {"commercial"}


def test_a_migration_that_breaks_off_leaves_the_old_file(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_ledger(spool, before(3))
    first, second, *_ = ledger_schema.migrations(rows.CHAIN_KEY)
    monkeypatch.setattr(ledger_module, "migrations", lambda _: (first, (*second, "CREATE nonsense")))
    with pytest.raises(DatabaseUnusable):
        reopen(spool)
    monkeypatch.undo()
    with closing(sqlite3.connect(spool)) as conn:
        assert conn.execute("PRAGMA user_version").fetchone()[0] == 1
        assert conn.execute("SELECT count(*) FROM egress").fetchone()[0] == 3
    reopen(spool).close_sync()
    assert verdict(spool).adopted == 3


def test_an_empty_old_file_gets_an_empty_chain(spool: Path) -> None:
    old_ledger(spool, [])
    reopen(spool).close_sync()
    found = verdict(spool)
    assert (found.rows, found.head, found.bad_seq) == (0, "00" * 32, None)
