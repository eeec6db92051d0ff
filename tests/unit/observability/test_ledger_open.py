"""Opening a spool: who may, what is refused, what a dead gateway left."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import ledger_rows as rows
from weighbridge.config.clock import SystemClock
from weighbridge.config.errors import ConfigError
from weighbridge.config.roads import ROADS
from weighbridge.observability import ledger as ledger_module
from weighbridge.observability import ledger_schema
from weighbridge.observability.ledger import DatabaseUnusable, Ledger, SpoolBusy
from weighbridge.observability.metrics import NO_ROAD, Metrics
from weighbridge.observability.records import Attempt, Completion, Egress, Intent, Progress

NOW_NS = 1_800_000_000_000_000_000


class FixedClock(SystemClock):
    def wall_ns(self) -> int:
        return NOW_NS


def reopen(spool: Path, metrics: Metrics | None = None) -> Ledger:
    return Ledger.open(spool, clock=FixedClock(), chain_key=rows.CHAIN_KEY, metrics=metrics)


async def leave_open(spool: Path, *left: Intent | Progress | Attempt | Egress | Completion) -> None:
    """What a killed gateway leaves: rows on disk and no completion."""
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY)
    for row in left:
        match row:
            case Intent():
                await ledger.intent(row)
            case Progress():
                ledger.progress(row)
            case Attempt():
                ledger.attempt(row)
            case Egress():
                await ledger.record_egress(row)
            case Completion():
                await ledger.completion(row)
    await ledger.close()


async def test_open_requests_become_lost_with_the_tokens_of_their_last_progress(spool: Path) -> None:
    await leave_open(
        spool,
        rows.intent("never-started"),
        rows.intent("under-way"),
        rows.progress("under-way", 10, 64),
        rows.progress("under-way", 10, 128),
        rows.intent("done"),
        rows.completion("done"),
    )
    ledger = reopen(spool)
    assert ledger.recovered == 2
    await ledger.close()
    stored = rows.requests(spool)
    assert stored["done"]["outcome"] == "ok"
    lost = stored["under-way"]
    assert (lost["outcome"], lost["prompt_tokens"], lost["completion_tokens"]) == ("lost", 10, 128)
    assert (lost["status"], lost["tokens_exact"], lost["error_code"]) == (0, False, "gateway_died")
    assert (lost["ended_ns"], lost["total_ms"], lost["ttft_ms"]) == (NOW_NS, None, None)
    lost = stored["never-started"]
    assert (lost["outcome"], lost["prompt_tokens"], lost["completion_tokens"]) == ("lost", 0, 0)
    again = reopen(spool)
    assert again.recovered == 0
    await again.close()


async def test_the_road_of_a_lost_request_is_the_last_one_known(spool: Path) -> None:
    await leave_open(
        spool,
        rows.intent("decided"),
        rows.intent("moved"),
        rows.attempt("moved", 1, outcome="not_ready"),
        rows.attempt("moved", 2, road="local-70b"),
        rows.intent("outward"),
        rows.attempt("outward", 1, outcome="queue_timeout"),
        rows.egress("e1", "outward", attempt=2),
        rows.intent("back"),
        rows.egress("e2", "back", attempt=1),
        rows.attempt("back", 1, road="commercial", outcome="upstream_cut"),
        rows.attempt("back", 2, road="local-8b"),
    )
    await reopen(spool).close()
    stored = {key: (row["road"], row["attempts"]) for key, row in rows.requests(spool).items()}
    assert stored == {
        "decided": ("local-8b", 0),
        "moved": ("local-70b", 2),
        "outward": ("commercial", 2),
        "back": ("local-8b", 2),
    }


async def test_lost_requests_are_counted_by_road(spool: Path, metrics: Metrics) -> None:
    await leave_open(
        spool,
        rows.intent("a"),
        rows.intent("b"),
        rows.intent("outward"),
        rows.egress("e1", "outward"),
        rows.intent("nowhere", road=""),
        rows.intent("done"),
        rows.completion("done"),
    )
    await reopen(spool, metrics).close()
    counted = {road: metrics.requests_total.labels(road, "lost").value for road in (*ROADS, NO_ROAD)}
    assert counted == {"local-8b": 2, "local-70b": 0, "commercial": 1, "none": 1}
    again = Metrics()
    await reopen(spool, again).close()
    assert sum(again.requests_total.labels(road, "lost").value for road in (*ROADS, NO_ROAD)) == 0


async def test_a_late_completion_does_not_change_a_lost_row(spool: Path) -> None:
    await leave_open(spool, rows.intent())
    ledger = reopen(spool)
    await ledger.completion(rows.completion())
    await ledger.close()
    assert rows.requests(spool)["r1"]["outcome"] == "lost"


async def test_the_same_process_cannot_open_it_twice(spool: Path) -> None:
    ledger = reopen(spool)
    with pytest.raises(SpoolBusy) as caught:
        reopen(spool)
    assert str(caught.value) == f"{spool}: the usage ledger is in use by process {os.getpid()}"
    assert isinstance(caught.value, ConfigError)
    await ledger.intent(rows.intent())  # the first one is not disturbed
    await ledger.close()
    await reopen(spool).close()


def test_another_process_cannot_open_it_until_the_owner_is_killed(spool: Path) -> None:
    code = (
        "import sys, pathlib; from weighbridge.config.clock import SystemClock\n"
        "from weighbridge.observability.ledger import Ledger\n"
        "ledger = Ledger.open(pathlib.Path(sys.argv[1]), clock=SystemClock(), chain_key=bytes(32))\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(spool)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"open\n"
        with pytest.raises(SpoolBusy, match=f"process {owner.pid}"):
            reopen(spool)
        owner.kill()
    reopen(spool).close_sync()


def test_the_owner_is_not_named_when_the_lock_file_says_nothing(spool: Path) -> None:
    ledger = reopen(spool)
    spool.with_name(spool.name + ".lock").write_bytes(b"\xff\xfe what is this\n second line")
    with pytest.raises(SpoolBusy) as caught:
        reopen(spool)
    assert str(caught.value) == f"{spool}: the usage ledger is in use by another process"
    ledger.close_sync()


def test_a_forked_child_does_not_keep_the_lock(spool: Path) -> None:
    # Forked from a process of its own, so that the test's threads are not.
    code = (
        "import os, sys, pathlib, time; from weighbridge.observability.spool_lock import SpoolLock\n"
        "lock = SpoolLock.take(pathlib.Path(sys.argv[1]))\n"
        "if os.fork() == 0: print('forked', flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(spool)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"forked\n"
        owner.kill()
        owner.wait()
        reopen(spool).close_sync()  # the child still lives: its stdin is open


async def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    spool = tmp_path / "new" / "folder" / "ledger.sqlite3"
    before = os.umask(0)
    try:
        ledger = reopen(spool)
        await ledger.intent(rows.intent())
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in spool.parent.iterdir()}
    assert modes == dict.fromkeys(
        ["ledger.sqlite3", "ledger.sqlite3-wal", "ledger.sqlite3-shm", "ledger.sqlite3.lock"], 0o600
    )
    assert stat.S_IMODE(spool.parent.stat().st_mode) == 0o700
    await ledger.close()


def test_a_file_open_to_others_is_closed_to_them(spool: Path) -> None:
    reopen(spool).close_sync()
    spool.chmod(0o644)
    reopen(spool).close_sync()
    assert stat.S_IMODE(spool.stat().st_mode) == 0o600


def one_line(spool: Path) -> str:
    with pytest.raises(DatabaseUnusable) as caught:
        reopen(spool)
    text = str(caught.value)
    assert text.startswith(str(spool))
    assert "\n" not in text
    return text


def test_a_newer_schema_is_refused_and_left_alone(spool: Path) -> None:
    reopen(spool).close_sync()
    with closing(sqlite3.connect(spool)) as conn:
        conn.execute("PRAGMA user_version=99")
    assert "newer version (schema 99" in one_line(spool)
    with closing(sqlite3.connect(spool)) as conn:
        assert conn.execute("PRAGMA user_version").fetchone()[0] == 99
        conn.execute(f"PRAGMA user_version={ledger_schema.VERSION}")
    reopen(spool).close_sync()  # the refusal let go of the lock


def test_another_programs_database_is_refused(spool: Path) -> None:
    with closing(sqlite3.connect(spool)) as conn:
        conn.execute("CREATE TABLE theirs (x)")
    assert "another program" in one_line(spool)
    with closing(sqlite3.connect(spool)) as conn:
        assert conn.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


def test_a_folder_in_its_place_is_refused(spool: Path) -> None:
    spool.mkdir()
    one_line(spool)


def test_a_step_that_breaks_off_leaves_the_old_schema(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = ledger_schema.migrations(rows.CHAIN_KEY)
    monkeypatch.setattr(ledger_module, "migrations", lambda _: ((*first, "CREATE TABLE nonsense ("),))
    one_line(spool)
    with closing(sqlite3.connect(spool)) as conn:
        assert conn.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        assert conn.execute("PRAGMA user_version").fetchone()[0] == 0
    monkeypatch.undo()
    reopen(spool).close_sync()
