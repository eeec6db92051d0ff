"""The numbers by which the shipper knows what it has yet to send."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import ledger_rows as rows
from weighbridge.config.clock import SystemClock
from weighbridge.observability import ledger_inbox
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.ledger_schema import migrations
from weighbridge.observability.records import Attempt, Completion, Intent
from weighbridge.observability.sqlite_file import open_database


def numbers(spool: Path) -> dict[str, int | None]:
    return {name: row["seq"] for name, row in rows.requests(spool).items()}


def taken(spool: Path) -> int:
    with closing(sqlite3.connect(spool)) as conn:
        (count,) = conn.execute("SELECT taken FROM shipping").fetchone()
        return int(count)


async def test_requests_are_numbered_as_they_end(ledger: Ledger, spool: Path) -> None:
    for name in ("a", "b", "c"):
        await ledger.intent(rows.intent(name))
    assert numbers(spool) == {"a": None, "b": None, "c": None}
    for name in ("c", "a"):
        await ledger.completion(rows.completion(name))
    assert numbers(spool) == {"a": 2, "b": None, "c": 1}
    assert taken(spool) == 2


async def test_a_row_that_was_there_already_takes_no_number(ledger: Ledger, spool: Path) -> None:
    await ledger.intent(rows.intent())
    ledger.attempt(rows.attempt())
    await ledger.completion(rows.completion())
    ledger.attempt(rows.attempt())
    await ledger.completion(rows.completion())
    await ledger.intent(rows.intent())
    assert (numbers(spool), taken(spool)) == ({"r1": 1}, 1)


@pytest.mark.parametrize("late", [rows.intent(), rows.attempt()], ids=["intent", "attempt"])
async def test_a_part_that_comes_late_is_numbered_anew(
    ledger: Ledger, spool: Path, late: Intent | Attempt
) -> None:
    await ledger.completion(rows.completion())
    await ledger.completion(rows.completion("other"))
    if isinstance(late, Attempt):
        ledger.attempt(late)
        await ledger.intent(rows.intent("next"))
    else:
        await ledger.intent(late)
    assert numbers(spool)["r1"] == 3
    assert numbers(spool)["other"] == 2


async def test_lost_requests_get_numbers_too(spool: Path) -> None:
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY)
    await ledger.completion(rows.completion("done"))
    await ledger.intent(rows.intent("left"))
    await ledger.intent(rows.intent("open"))
    await ledger.close()
    Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY).close_sync()
    assert numbers(spool) == {"done": 1, "left": 2, "open": 3}
    assert taken(spool) == 3


def test_what_an_older_program_wrote_is_numbered_in_the_order_it_ended(spool: Path) -> None:
    before = migrations(rows.CHAIN_KEY)[:2]
    with closing(open_database(spool, before, synchronous="NORMAL")) as conn:
        for name, ended in (("a", 30), ("b", 10), ("open", None), ("c", 20)):
            conn.execute(
                "INSERT INTO requests (request_id, ended_ns, outcome) VALUES (?, ?, ?)",
                (name, ended, None if ended is None else "ok"),
            )
    Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY).close_sync()
    assert numbers(spool) == {"a": 3, "b": 1, "c": 2, "open": 4}


PARTS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from([Intent, Attempt, Completion])), max_size=20
)


@settings(deadline=None)
@given(PARTS)
def test_in_any_order_a_number_is_used_once_and_the_latest_covers_the_latest_part(
    parts: list[tuple[str, type]],
) -> None:
    make = {Intent: rows.intent, Attempt: rows.attempt, Completion: rows.completion}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
        for step in migrations(rows.CHAIN_KEY):
            for statement in step:
                conn.execute(statement) if isinstance(statement, str) else statement(conn)
        ledger_inbox.prepare(conn)
        seen: dict[str, dict[type, msgspec.Struct]] = {"a": {}, "b": {}, "c": {}}
        expected: dict[str, int] = {}
        count = 0
        for name, kind in parts:
            ledger_inbox.put(conn, [(make[kind](name), None)])
            news = kind not in seen[name]
            seen[name].setdefault(kind, make[kind](name))
            if news and Completion in seen[name]:
                count += 1
                expected[name] = count
        found = dict(conn.execute("SELECT request_id, seq FROM requests WHERE seq IS NOT NULL").fetchall())
        assert found == expected
        assert conn.execute("SELECT taken FROM shipping").fetchone() == (count,)
