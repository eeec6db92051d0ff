"""The sums beside the rows: always what adding the rows up would give."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import ledger_rows as rows
from weighbridge.config.clock import SystemClock
from weighbridge.observability import ledger_inbox, ledger_read, ledger_rollups
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.ledger_inbox import Price, Stored
from weighbridge.observability.ledger_schema import migrations, recover
from weighbridge.observability.pricing import Priced, Pricing
from weighbridge.observability.records import Capacity, Progress
from weighbridge.observability.sqlite_file import open_database
from weighbridge.observability.usage_read import attempt_usage, capacity, usage

DAY_NS = 86_400_000_000_000
MIDNIGHT_NS = 20_454 * DAY_NS
EVER = ("0000-01-01", "9999-12-31")


@contextmanager
def tables() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        for step in migrations(rows.CHAIN_KEY):
            for statement in step:
                conn.execute(statement) if isinstance(statement, str) else statement(conn)
        ledger_inbox.prepare(conn)
        conn.row_factory = sqlite3.Row
        yield conn


def day(ns: int) -> str:
    return datetime.fromtimestamp(ns // 1_000_000_000, UTC).date().isoformat()


def us(ms: float | None) -> int:
    return round((ms or 0) * 1000)


def added_up(conn: sqlite3.Connection) -> tuple[dict[tuple[str, ...], Any], dict[tuple[str, ...], Any]]:
    """Both tables, from the rows, without SQL's help."""
    requests = {row["request_id"]: row for row in ledger_read.requests(conn) if row["outcome"] is not None}
    whole: dict[tuple[str, ...], Counter[str]] = {}
    for row in requests.values():
        admitted = row["admitted_ns"]
        if admitted is None:
            admitted = row["ended_ns"] - int((row["total_ms"] or 0) * 1_000_000)
        named = (
            row["tenant"],
            row["road"],
            row["task"],
            row["outcome"],
            row["currency"],
            row["price_version"],
        )
        found = whole.setdefault((day(admitted), *(name or "" for name in named)), Counter())
        found["requests"] += 1
        found["estimated"] += row["tokens_exact"] is False
        for name in ("attempts", "prompt_tokens", "cached_tokens", "completion_tokens", "worker_us"):
            found[name] += row[name] or 0
        for name in ("cost_nano", "counterfactual_nano"):
            found[name] += row[name] or 0
        found["with_ttft"] += row["ttft_ms"] is not None
        for name in ("queue", "ttft", "total"):
            found[f"{name}_us"] += us(row[f"{name}_ms"])
    tried: dict[tuple[str, ...], Counter[str]] = {}
    for row in ledger_read.attempts(conn):
        request = requests.get(row["request_id"])
        if request is None:
            continue
        named = (
            request["tenant"],
            row["road"],
            row["backend"],
            row["model"],
            row["outcome"],
            request["currency"],
        )
        found = tried.setdefault((day(row["started_ns"]), *(name or "" for name in named)), Counter())
        found["attempts"] += 1
        found["unpriced"] += row["cost_nano"] is None
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens", "worker_us", "cost_nano"):
            found[name] += row[name] or 0
    return tuple({key: sums for key, sums in table.items()} for table in (whole, tried))  # type: ignore[return-value]


def kept(conn: sqlite3.Connection) -> tuple[dict[tuple[str, ...], Any], dict[tuple[str, ...], Any]]:
    tables = []
    for table, read in (("rollups", usage), ("attempt_rollups", attempt_usage)):
        keys = ledger_rollups.KEYS[table]
        tables.append(
            {
                tuple(row[key] for key in keys): Counter(
                    {name: row[name] for name in ledger_rollups.SUMS[table]}
                )
                for row in read(conn, *EVER, keys)
            }
        )
    return tuple(tables)  # type: ignore[return-value]


def agree(conn: sqlite3.Connection) -> None:
    for kept_table, added in zip(kept(conn), added_up(conn), strict=True):
        assert {key: +sums for key, sums in kept_table.items()} == {key: +sums for key, sums in added.items()}
    wrong = """SELECT count(*) FROM requests AS r WHERE outcome IS NOT NULL AND (worker_us, cost_nano) IS NOT (
        SELECT coalesce(sum(worker_us), 0), coalesce(sum(cost_nano), CASE WHEN r.currency IS NOT NULL AND
        count(*) = 0 THEN 0 END) FROM attempts AS a WHERE a.request_id = r.request_id)"""
    assert conn.execute(wrong).fetchone()[0] == 0


NAMES = st.sampled_from(["a", "b", "c"])
EIGHTHS = st.integers(0, 80_000).map(lambda n: n / 8)
"""Milliseconds that are whole microseconds, so that the test's own sums need no rounding."""
TIMES = st.integers(0, 3 * DAY_NS).map(lambda ns: MIDNIGHT_NS + ns)
TOKENS = st.integers(0, 1_000)
NANO = st.none() | st.integers(0, 10**12)

INTENTS = st.builds(rows.intent, NAMES, admitted_ns=TIMES, tenant=st.sampled_from(["acme", "other"]))
PROGRESSES = st.builds(rows.progress, NAMES, TOKENS, TOKENS)
ATTEMPTS = st.builds(
    rows.attempt,
    NAMES,
    st.integers(1, 3),
    road=st.sampled_from(["local-8b", "commercial"]),
    started_ns=TIMES,
    backend=st.sampled_from(["", "0"]),
    outcome=st.sampled_from(["ok", "queue_timeout"]),
    prompt_tokens=TOKENS,
    worker_us=st.integers(0, 10**9),
)
COMPLETIONS = st.builds(
    rows.completion,
    NAMES,
    outcome=st.sampled_from(["ok", "error", "refused"]),
    road=st.sampled_from(["local-8b", "commercial", ""]),
    tokens_exact=st.booleans(),
    completion_tokens=TOKENS,
    queue_ms=EIGHTHS,
    ttft_ms=st.none() | EIGHTHS,
    total_ms=EIGHTHS,
)
PRICED = st.builds(Priced, st.sampled_from(["USD", "KRW"]), st.sampled_from(["p1", "p2"]), NANO)
PARTS = st.one_of(
    st.tuples(INTENTS | PROGRESSES, st.none()),
    st.tuples(ATTEMPTS, NANO),
    st.tuples(COMPLETIONS, PRICED | st.none()),
)
Part = tuple[Stored, Price]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.lists(PARTS, max_size=6), st.booleans()), max_size=8), st.integers(0, 9))
def test_sums_are_those_of_the_rows_after_parts_in_any_order(
    groups: list[tuple[list[Part], bool]], killed_after: int
) -> None:
    with tables() as conn:
        for n, (group, roll) in enumerate(groups):
            ledger_inbox.put(conn, group)
            if roll:
                ledger_inbox.roll(conn)
                assert conn.execute("SELECT taken - rolled FROM shipping").fetchone()[0] == 0
            agree(conn)
            if n == killed_after:
                conn.execute("BEGIN")
                conn.row_factory = None
                recover(conn, MIDNIGHT_NS + DAY_NS, Pricing(None))
                conn.row_factory = sqlite3.Row
                conn.execute("COMMIT")
                agree(conn)


def test_a_request_is_summed_by_the_day_of_its_admission_and_an_attempt_by_the_day_it_began() -> None:
    late = rows.intent(admitted_ns=MIDNIGHT_NS - 1)
    second = rows.attempt(n=2, started_ns=MIDNIGHT_NS)
    parts: Sequence[Stored] = (late, rows.attempt(started_ns=MIDNIGHT_NS - 1), second, rows.completion())
    with tables() as conn:
        ledger_inbox.put(conn, [(part, None) for part in parts])
        before, after = day(MIDNIGHT_NS - DAY_NS), day(MIDNIGHT_NS)
        assert [(row["day"], row["requests"]) for row in usage(conn, *EVER, ["day"])] == [(before, 1)]
        found = [(row["day"], row["attempts"]) for row in attempt_usage(conn, *EVER, ["day"])]
        assert found == [(before, 1), (after, 1)]
        assert usage(conn, after, after, []) == []
        assert [row["requests"] for row in usage(conn, before, before, [])] == [1]


def test_money_of_two_currencies_is_not_added_up_and_years_of_it_fit() -> None:
    with tables() as conn:
        for n in range(3):
            whole = 9_000_000_000 * 10**9 + n
            conn.execute(
                "INSERT INTO rolled_requests VALUES (?, 'acme', '', '', 'ok', 'KRW', '', 1"
                + ", 0" * 10
                + ", ?, ?)",
                (f"2026-11-0{n + 1}", whole, whole),
            )
        priced = [(rows.completion("u"), Priced("USD", "p1", 7)), (rows.completion("n"), None)]
        ledger_inbox.put(conn, priced)
        found = {row["currency"]: row["counterfactual_nano"] for row in usage(conn, *EVER, ["tenant"])}
        assert found == {"KRW": 27_000_000_000 * 10**9 + 3, "USD": 7, "": 0}
        with pytest.raises(ValueError, match="not kept by colour"):
            usage(conn, *EVER, ["day", "colour"])


def test_what_an_older_program_wrote_is_in_the_sums(spool: Path) -> None:
    before = migrations(rows.CHAIN_KEY)[:2]
    with closing(open_database(spool, before, synchronous="NORMAL")) as conn:
        for name, outcome in (("a", "ok"), ("b", "ok"), ("c", None)):
            conn.execute(
                "INSERT INTO requests (request_id, admitted_ns, ended_ns, outcome, road, prompt_tokens, queue_ms) "
                "VALUES (?, ?, ?, ?, 'local-8b', 11, 1.5)",
                (name, MIDNIGHT_NS, None if outcome is None else MIDNIGHT_NS + 5, outcome),
            )
            conn.execute(
                "INSERT INTO attempts (request_id, n, road, started_ns) VALUES (?, 1, 'local-8b', 5)", name
            )
    Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY).close_sync()
    with closing(ledger_read.open_readonly(spool)) as conn:
        found = [(row["outcome"], row["requests"]) for row in usage(conn, *EVER, ["outcome"])]
        assert found == [("lost", 1), ("ok", 2)]
        assert [row["unpriced"] for row in attempt_usage(conn, *EVER, [])] == [3]
        for kept_table, added in zip(kept(conn), added_up(conn), strict=True):
            assert {key: +sums for key, sums in kept_table.items()} == {
                key: +sums for key, sums in added.items()
            }


def test_a_long_history_is_added_up_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(statement.replace("rolled + 100000", "rolled + 2") for statement in ledger_rollups.ROLL)
    assert few != ledger_rollups.ROLL
    with tables() as conn:
        ledger_inbox.put(conn, [(rows.completion(str(n)), None) for n in range(7)])
        monkeypatch.setattr(ledger_rollups, "ROLL", few)
        for statement in few:
            conn.execute(statement)
        agree(conn)
        assert conn.execute("SELECT rolled FROM shipping").fetchone()[0] == 2
        ledger_rollups.roll(conn)
        agree(conn)
        assert conn.execute("SELECT rolled FROM shipping").fetchone()[0] == 7


async def test_a_number_that_is_nonsense_does_not_stop_the_ledger(ledger: Ledger, spool: Path) -> None:
    for name in ("a", "b"):
        await ledger.completion(rows.completion(name, queue_ms=1e300, total_ms=1e300, ttft_ms=-1.0))
    with closing(ledger_read.open_readonly(spool)) as conn:
        (row,) = usage(conn, *EVER, ["day"])
    assert (row["requests"], row["queue_us"], row["ttft_us"]) == (2, 2 * 10**12, 0)


async def test_the_last_mark_of_a_period_counts(ledger: Ledger, spool: Path) -> None:
    for to_ns in (100, 200, 300):
        ledger.capacity(Capacity("local-8b", "0", 100, to_ns, 8))
    await ledger.intent(rows.intent())
    # One that had waited in memory.
    ledger.capacity(Capacity("local-8b", "0", 100, 250, 8))
    ledger.capacity(Capacity("local-8b", "0", 400, 500, 8))
    ledger.capacity(Capacity("local-70b", "0", 100, 900, 4))
    await ledger.close()
    with closing(ledger_read.open_readonly(spool)) as conn:
        assert capacity(conn, 0, 1000) == [
            Capacity("local-70b", "0", 100, 900, 4),
            Capacity("local-8b", "0", 100, 300, 8),
            Capacity("local-8b", "0", 400, 500, 8),
        ]
        assert capacity(conn, 150, 400) == [
            Capacity("local-70b", "0", 150, 400, 4),
            Capacity("local-8b", "0", 150, 300, 8),
        ]


async def test_marks_wait_for_a_broken_disk_and_are_no_records_at_risk(
    ledger: Ledger, spool: Path, metrics: Any
) -> None:
    with rows.broken_disk():
        for to_ns in (200, 300):
            ledger.capacity(Capacity("local-8b", "0", 100, to_ns, 8))
        while ledger.healthy or ledger._writer._queue.qsize():
            pass
        assert ledger.backlog == 1
    ledger.progress(Progress("r1", 1, 1))
    await ledger.intent(rows.intent())
    await ledger.close()
    with closing(ledger_read.open_readonly(spool)) as conn:
        assert capacity(conn, 0, 1000) == [Capacity("local-8b", "0", 100, 300, 8)]
    assert metrics.records_at_risk_total.value == 0
