"""A spool that is damaged: nothing that can be read is lost, and nothing is done in silence."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import ledger_rows as rows
from weighbridge.config.clock import SystemClock
from weighbridge.observability import ledger_repair, shipping_read
from weighbridge.observability.egress_verify import verify_file
from weighbridge.observability.ledger import DatabaseUnusable, Ledger, SpoolBusy
from weighbridge.observability.metrics import Metrics
from weighbridge.observability.records import Shipped

PAGE = 4096


def reopen(spool: Path, metrics: Metrics | None = None) -> Ledger:
    return Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY, metrics=metrics)


async def filled(spool: Path, count: int = 400, *, shipped: int = 100) -> None:
    """Ended requests with an attempt each, every tenth with an egress row, and one that is under way."""
    ledger = reopen(spool)
    for n in range(count):
        key = f"r{n:05d}"
        await ledger.intent(rows.intent(key))
        ledger.attempt(rows.attempt(key))
        if n % 10 == 0:
            await ledger.record_egress(rows.egress(f"e{n:05d}", key))
        await ledger.completion(rows.completion(key))
    await ledger.close()
    ledger = reopen(spool)  # which adds up what was not
    await ledger.intent(rows.intent("open"))
    ledger.shipped(Shipped(shipped, 10))
    await ledger.intent(rows.intent("open"))
    await ledger.close()


def root_of(spool: Path, name: str) -> int:
    with closing(sqlite3.connect(spool)) as conn:
        return int(conn.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()[0])


def page_of(spool: Path, key: str, table: str = "requests") -> int:
    """The number of a page of `table`, not its root, that holds the row of `key`."""
    data = spool.read_bytes()
    root = root_of(spool, table)
    word = {"requests": b"summarization", "attempts": b"local-8b"}[table]
    pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]
    found = [
        number
        for number, page in enumerate(pages, start=1)
        if key.encode() in page and word in page and number != root and page[0] == 0x0A
    ]
    return found[0]


def damage(spool: Path, page: int) -> None:
    with spool.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(b"\xa5" * PAGE)


def aside_of(spool: Path) -> Path:
    (found,) = ledger_repair.set_aside(spool)
    return found


async def test_a_file_that_is_no_database_is_moved_aside(
    spool: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool.write_bytes(b"not a database " * 100)
    ledger = reopen(spool)
    await ledger.completion(rows.completion())
    assert ledger.damaged == [aside_of(spool).name]
    await ledger.close()
    assert aside_of(spool).read_bytes() == b"not a database " * 100
    assert list(rows.requests(spool)) == ["r1"]
    assert [record.levelname for record in caplog.records].count("ERROR") == 2
    assert str(aside_of(spool)) in caplog.text


async def test_rows_around_a_damaged_page_are_saved(spool: Path, caplog: pytest.LogCaptureFixture) -> None:
    await filled(spool)
    before = rows.requests(spool)
    page = page_of(spool, "r00203")
    raw = spool.read_bytes()[(page - 1) * PAGE : page * PAGE]
    damage(spool, page)
    ledger = reopen(spool)
    assert ledger.recovered == 1, "what was under way is lost, as after any death"
    await ledger.completion(rows.completion("after"))
    await ledger.close()
    after = rows.requests(spool)
    gone = before.keys() - after.keys()
    assert gone
    assert all(key.encode() in raw for key in gone), "only what was on the page is gone"
    for key in (before.keys() & after.keys()) - {"open"}:
        assert after[key] == before[key]
    assert "could not be read" in caplog.text
    # New numbers lie beyond any that may have been given out.
    assert after["after"]["seq"] > 1_000_000
    with closing(shipping_read.open_spool(spool)) as conn:
        assert shipping_read.cursors(conn) == {"requests": 100, "egress": 10}


async def test_the_sums_are_kept_and_new_ends_are_added_once(spool: Path) -> None:
    await filled(spool, 60)
    with closing(sqlite3.connect(spool)) as conn:
        sums = conn.execute("SELECT sum(requests) FROM rollups").fetchone()[0]
    damage(spool, page_of(spool, "r00030"))
    await reopen(spool).close()
    with closing(sqlite3.connect(spool)) as conn:
        # What is lost stays in the sums, and the request that was open has ended.
        assert conn.execute("SELECT sum(requests) FROM rollups").fetchone()[0] == sums + 1 == 61
        assert conn.execute("SELECT count(*) FROM requests").fetchone()[0] < 61


async def test_sums_that_are_damaged_are_made_anew(spool: Path) -> None:
    await filled(spool, 60)
    damage(spool, root_of(spool, "rolled_requests"))
    await reopen(spool).close()
    with closing(sqlite3.connect(spool)) as conn:
        assert conn.execute("SELECT sum(requests) FROM rollups").fetchone()[0] == 61


async def test_without_the_record_of_what_arrived_all_is_sent_again(spool: Path) -> None:
    await filled(spool, 60)
    damage(spool, root_of(spool, "shipping"))
    await reopen(spool).close()
    with closing(shipping_read.open_spool(spool)) as conn:
        assert shipping_read.cursors(conn) == {"requests": 0, "egress": 0}
        assert len(shipping_read.spool_name(conn)) == 36
        assert conn.execute("SELECT sum(requests) FROM rollups").fetchone()[0] == 61
    assert len(rows.requests(spool)) == 61


async def test_sums_over_records_that_are_gone_outlive_the_record_of_how_far_they_go(spool: Path) -> None:
    await filled(spool, 60)
    with closing(sqlite3.connect(spool)) as conn:
        conn.execute("DELETE FROM requests WHERE request_id < 'r00040' AND request_id != 'open'")
        conn.commit()
    damage(spool, root_of(spool, "shipping"))
    await reopen(spool).close()
    with closing(sqlite3.connect(spool)) as conn:
        assert conn.execute("SELECT sum(requests) FROM rollups").fetchone()[0] == 61


async def test_the_chain_of_egress_rows_goes_on(spool: Path) -> None:
    """And attempts from both sides of a damaged page are saved."""
    await filled(spool)
    damage(spool, page_of(spool, "r00203", "attempts"))
    ledger = reopen(spool)
    await ledger.intent(rows.intent("after"))
    await ledger.record_egress(rows.egress("after", "after"))
    await ledger.close()
    verdict = verify_file(spool, [rows.CHAIN_KEY])
    assert (verdict.rows, verdict.bad_seq) == (41, None)
    kept = [row["request_id"] for row in rows.attempts(spool)]
    assert 300 < len(kept) < 400
    assert {"r00000", "r00399"} <= set(kept)


async def test_egress_rows_behind_a_torn_end_are_shipped(spool: Path) -> None:
    """The numbers of rows that were shipped and are gone are given out again, as the chain has no gaps."""
    await filled(spool, 60)
    with closing(sqlite3.connect(spool)) as conn:
        conn.execute("DELETE FROM egress WHERE seq > 4")
        conn.execute("UPDATE shipping SET egress_shipped = 6")
        conn.commit()
    damage(spool, root_of(spool, "capacity"))
    ledger = reopen(spool)
    await ledger.record_egress(rows.egress("after", "r00001"))
    await ledger.close()
    with closing(shipping_read.open_spool(spool)) as conn:
        at = shipping_read.cursors(conn)["egress"]
        assert [record.id for record in shipping_read.batch(conn, "egress", at, 10)] == ["after"]


async def test_what_only_the_log_beside_it_holds_is_saved(spool: Path, tmp_path: Path) -> None:
    """A gateway that was killed leaves rows in the `-wal` file alone."""
    await filled(spool, 50)
    ledger = reopen(spool)
    await ledger.completion(rows.completion("in-the-log"))
    there = tmp_path / "copy" / spool.name
    there.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(f"{spool}{suffix}", f"{there}{suffix}")
    await ledger.close()
    damage(there, root_of(there, "capacity"))
    await reopen(there).close()
    assert "in-the-log" in rows.requests(there)
    assert len(ledger_repair.set_aside(there)) == 1


async def test_damage_seen_while_running_is_repaired_at_the_next_start(
    spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        ledger_repair, "_CHECKED_BYTES", 0
    )  # as with a file too large to be read at each start
    await filled(spool)
    damage(spool, page_of(spool, "r00203"))
    ledger = reopen(spool)
    assert ledger.damaged == [], "nobody has seen it"
    with pytest.raises(Exception, match="malformed") as caught, closing(sqlite3.connect(spool)) as conn:
        conn.execute("SELECT count(tenant) FROM requests").fetchone()
    ledger_repair.suspect(spool, caught.value)
    assert "the next start repairs it" in caplog.text
    await ledger.close()
    again = reopen(spool)
    assert len(again.damaged) == 1
    await again.close()
    assert not spool.with_name(spool.name + ".suspect").exists()
    # It is looked at again only when there is another reason.
    last = reopen(spool)
    assert len(last.damaged) == 1
    await last.close()


async def test_a_commit_that_meets_damage_marks_the_spool(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(spool)
    monkeypatch.setattr(ledger_repair, "_CHECKED_BYTES", 0)
    damage(spool, page_of(spool, "r00399"))
    ledger = reopen(spool)
    results = await asyncio.gather(
        *(ledger.completion(rows.completion(f"r{n:05d}x")) for n in range(390, 400)), return_exceptions=True
    )
    assert any(isinstance(result, Exception) for result in results)
    assert not ledger.healthy
    assert spool.with_name(spool.name + ".suspect").exists()
    await ledger.close()


@pytest.mark.parametrize("step", range(5))
async def test_a_repair_may_be_killed_at_any_moment(
    spool: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(spool, 60)
    damage(spool, page_of(spool, "r00030"))

    class Killed(BaseException):
        pass

    steps = 0
    replace = Path.replace

    def counted(self: Path, target: Path) -> Path:
        nonlocal steps
        steps += 1
        if steps == step + 1:
            raise Killed
        return replace(self, target)

    with monkeypatch.context() as inside:
        inside.setattr(Path, "replace", counted)
        if step < 4:
            with pytest.raises(Killed):
                reopen(spool)
        else:
            await reopen(spool).close()
    ledger = reopen(spool)
    assert len(ledger.damaged) == 1
    await ledger.close()
    assert {"r00000", "r00059", "open"} <= rows.requests(spool).keys()
    left = {path.name for path in spool.parent.iterdir()}
    assert not {name for name in left if name.endswith((".salvaged", ".salvaging", ".suspect"))}


async def test_a_whole_spool_is_left_alone(spool: Path, caplog: pytest.LogCaptureFixture) -> None:
    await filled(spool, 30)
    ledger_repair.suspect(spool, _corrupt())
    caplog.clear()
    caplog.set_level(logging.ERROR)
    ledger = reopen(spool)
    assert ledger.damaged == []
    await ledger.close()
    assert caplog.text == ""
    assert not spool.with_name(spool.name + ".suspect").exists()


def _corrupt() -> sqlite3.DatabaseError:
    exc = sqlite3.DatabaseError("malformed")
    exc.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return exc


def test_a_full_disk_is_no_damage(spool: Path) -> None:
    exc = sqlite3.OperationalError("full")
    exc.sqlite_errorcode = sqlite3.SQLITE_FULL
    ledger_repair.suspect(spool, exc)
    assert not spool.with_name(spool.name + ".suspect").exists()


async def test_what_lies_aside_is_told_until_it_is_taken_away(spool: Path) -> None:
    spool.write_bytes(b"\x00" * 5000 + b"x")
    ledger = reopen(spool)
    assert len(ledger.damaged) == 1
    await ledger.close()
    again = reopen(spool)
    assert len(again.damaged) == 1
    aside_of(spool).unlink()
    assert again.damaged == []
    await again.close()


async def test_a_spool_that_another_program_holds_is_busy_and_not_damaged(spool: Path) -> None:
    await reopen(spool).close()
    with closing(sqlite3.connect(spool, isolation_level=None)) as conn:
        conn.execute("BEGIN IMMEDIATE")
        with pytest.raises(SpoolBusy, match="another program holds"):
            reopen(spool)
        conn.execute("ROLLBACK")
    await reopen(spool).close()
    assert ledger_repair.set_aside(spool) == []


def test_a_disk_without_room_for_the_repair_says_so(spool: Path) -> None:
    spool.write_bytes(b"not a database " * 100)
    with rows.broken_disk(), pytest.raises(DatabaseUnusable) as caught:
        reopen(spool)
    assert "\n" not in str(caught.value)
    assert spool.read_bytes() == b"not a database " * 100
