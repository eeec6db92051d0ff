"""A damaged spool: how it is known, and how a fresh one takes over what can still be read.

The damaged file is never changed: it is moved aside, and stays there until somebody has looked at it. What was seen
while a gateway ran is left to the next start by a mark beside the file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from weighbridge.observability import ledger_rollups
from weighbridge.observability.sqlite_file import DatabaseUnusable, Statement, open_database, transaction

log = logging.getLogger("weighbridge.ledger")

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_CHECKED_BYTES: Final = 64 << 20
"""A file up to this size is read whole at every start, in a quarter of a second; a larger one only for a reason."""
_SUMS: Final = ("rolled_requests", "rolled_attempts")
_NONE_GONE: Final = """SELECT (SELECT coalesce(sum(requests), 0) FROM rolled_requests)
    <= (SELECT count(*) FROM requests WHERE outcome IS NOT NULL)"""
_GAP: Final = 1_000_000
"""Numbers left out behind the last one that could be read: some of them may have been given out."""


@dataclass(slots=True)
class Repaired:
    """What became of a damaged spool.

    Args:
        aside: where it is now.
        rows: how many rows of each table are in the fresh one.
        whole: every row of it that SQLite lists could be read.
    """

    aside: Path
    rows: dict[str, int] = field(default_factory=dict)
    whole: bool = True


def is_damage(exc: BaseException | None) -> bool:
    """Whether SQLite says that the file itself is not right, as against a disk that refuses or a lock."""
    code = getattr(exc, "sqlite_errorcode", None)
    return isinstance(exc, sqlite3.DatabaseError) and code is not None and code & 0xFF in _DAMAGE


def suspect(path: Path, exc: BaseException) -> None:
    """Have the next start look at the whole spool at `path`, if `exc` is a reason to."""
    mark = _mark(path)
    if not is_damage(exc) or mark.exists():
        return
    log.error("%s is damaged; the next start repairs it", path)
    with contextlib.suppress(OSError):
        mark.touch(mode=0o600)


def set_aside(path: Path) -> list[Path]:
    """Damaged spools that lie beside `path`, the oldest first."""
    return sorted(found for found in path.parent.glob(f"{path.name}.damaged-*") if found.suffix != ".wal")


def repair(path: Path, migrations: Sequence[Sequence[Statement]], now_ns: int) -> Repaired | None:
    """Put a fresh spool in the place of a damaged one; None when `path` holds none, or one that is whole.

    May be killed at any moment: the next call takes up where this one was. The caller holds the spool's lock.

    Raises:
        DatabaseUnusable: there is not room enough, or the folder cannot be written.
    """
    salvaged = path.with_name(path.name + ".salvaged")
    try:
        if not salvaged.exists() and not _damaged(path):
            _mark(path).unlink(missing_ok=True)
            return None
        made = Repaired(_free_name(path, now_ns))
        if not salvaged.exists():
            log.error("%s is damaged: saving what can be read, which takes a while", path)
            _salvage(path, salvaged, migrations, made)
        _swap(path, salvaged, made.aside)
    except (OSError, sqlite3.Error) as exc:
        why = (exc.strerror if isinstance(exc, OSError) else str(exc)) or type(exc).__name__
        raise DatabaseUnusable(f"{path}: is damaged and cannot be repaired ({why})") from exc
    log.error(
        "%s was damaged and lies in %s now; saved from it: %s%s",
        path,
        made.aside,
        ", ".join(f"{count} {table}" for table, count in made.rows.items()) or "what an earlier start could",
        "" if made.whole else "; the rest could not be read",
    )
    return made


def _mark(path: Path) -> Path:
    return path.with_name(path.name + ".suspect")


def _free_name(path: Path, now_ns: int) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_ns // 1_000_000_000))
    for number in range(1, 1000):
        name = path.with_name(f"{path.name}.damaged-{stamp}" + (f"-{number}" if number > 1 else ""))
        if not name.exists():
            return name
    raise OSError("too many damaged spools lie beside it")


def _damaged(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size == 0:
        return False
    try:
        with closing(sqlite3.connect(path, timeout=2.0, isolation_level=None)) as conn:
            conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not _mark(path).exists() and path.stat().st_size > _CHECKED_BYTES:
                return False
            return bool(conn.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok")
    except sqlite3.DatabaseError as exc:
        if is_damage(exc):
            return True
        raise


def _salvage(path: Path, salvaged: Path, migrations: Sequence[Sequence[Statement]], made: Repaired) -> None:
    fresh_path = path.with_name(path.name + ".salvaging")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{fresh_path}{suffix}").unlink(missing_ok=True)
    with closing(open_database(fresh_path, migrations, synchronous="FULL")) as fresh:
        fresh.execute("PRAGMA journal_mode=DELETE")
        try:
            old = sqlite3.connect(path, timeout=2.0, isolation_level=None)
        except sqlite3.DatabaseError:
            made.whole = False
        else:
            with closing(old):
                old.text_factory = _as_written
                with transaction(fresh):
                    _copy(old, fresh, made)
    fresh_path.replace(salvaged)


def _as_written(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _copy(old: sqlite3.Connection, fresh: sqlite3.Connection, made: Repaired) -> None:
    (name,) = fresh.execute("SELECT spool FROM shipping").fetchone()
    fresh.execute("DELETE FROM shipping")
    tables = fresh.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid").fetchall()
    torn = {table for (table,) in tables if not table.startswith("sqlite_") and not _take(old, fresh, table)}
    _number(fresh, name, torn=not torn.isdisjoint(_SUMS))
    made.whole = not torn
    for table in ("requests", "attempts", "egress"):
        made.rows[table] = fresh.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608


def _take(old: sqlite3.Connection, fresh: sqlite3.Connection, table: str) -> bool:
    """Copy what can be read of a table; whether that is all of it."""
    about = fresh.execute(f"PRAGMA table_info({table})").fetchall()
    keys, held = [row[1] for row in about if row[5]], {row[1] for row in about}
    try:
        columns = [row[1] for row in old.execute(f"PRAGMA table_info({table})") if row[1] in held]
    except sqlite3.DatabaseError:
        return False
    names = ", ".join(columns)
    if not columns:
        return False
    put = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
    # From both ends towards what cannot be read, and then what an index still leads to.
    for order in ("", " DESC"):
        by = ", ".join(f"{key}{order}" for key in keys)
        rows = _Rows(old, f"SELECT {names} FROM {table} ORDER BY {by}")  # noqa: S608
        fresh.executemany(put, rows)
        if rows.whole:
            (taken,) = fresh.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
            return bool(taken >= rows.count)
    if table == "requests":
        fresh.executemany(put, _by_number(old, names))
    return False


class _Rows:
    """Rows up to the first that cannot be read."""

    def __init__(self, old: sqlite3.Connection, select: str) -> None:
        self._old = old
        self._select = select
        self.count = 0
        self.whole = False

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        try:
            for row in self._old.execute(self._select):
                self.count += 1
                yield row
            self.whole = True
        except sqlite3.DatabaseError:
            return


def _by_number(old: sqlite3.Connection, names: str) -> Iterator[tuple[Any, ...]]:
    try:
        ids = old.execute(
            "SELECT request_id FROM requests INDEXED BY requests_by_seq WHERE seq IS NOT NULL"
        ).fetchall()
    except sqlite3.DatabaseError:
        return
    for key in ids:
        # A row beside the damage may be found from one side only.
        for which in ("= ?", "<= ? ORDER BY request_id DESC LIMIT 1"):
            with contextlib.suppress(sqlite3.DatabaseError):
                yield from old.execute(f"SELECT {names} FROM requests WHERE request_id {which}", key)  # noqa: S608
                break


def _number(fresh: sqlite3.Connection, name: str, *, torn: bool) -> None:
    """Have new ends take numbers that none had before; without a record of what has arrived all is sent again.

    The sums hold what records that are gone have cost, so they stay. They are made anew from the records only if they
    are `torn`, or nobody knows how far they go and no record seems to be gone.
    """
    (last,) = fresh.execute("SELECT coalesce(max(seq), 0) FROM requests").fetchone()
    made = fresh.execute(
        "INSERT INTO shipping (id, taken, shipped, rolled, spool) VALUES (1, 0, 0, ?, ?) ON CONFLICT DO NOTHING",
        (last, name),
    ).rowcount
    fresh.execute("UPDATE shipping SET taken = max(taken, ?) + ?", (last, _GAP))
    # The chain goes on from the last row that was saved: what it takes next must not pass for shipped already.
    fresh.execute(
        "UPDATE shipping SET egress_shipped = min(egress_shipped, (SELECT coalesce(max(seq), 0) FROM egress))"
    )
    if torn or (made and fresh.execute(_NONE_GONE).fetchone()[0]):
        for table in _SUMS:
            fresh.execute(f"DELETE FROM {table}")  # noqa: S608
        fresh.execute("UPDATE shipping SET rolled = 0")
        ledger_rollups.roll(fresh)


def _swap(path: Path, salvaged: Path, aside: Path) -> None:
    for source, target in (
        # The log first: a database file must never be found beside the log of another.
        (Path(f"{path}-wal"), aside.with_name(aside.name + ".wal")),
        (path, aside),
    ):
        with contextlib.suppress(FileNotFoundError):
            source.replace(target)
    Path(f"{path}-shm").unlink(missing_ok=True)
    salvaged.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    _mark(path).unlink(missing_ok=True)
