"""Opening a SQLite file that belongs to us: private modes, WAL, and a schema that moves forward only."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from weighbridge.config.errors import ConfigError

Statement = str | Callable[[sqlite3.Connection], None]
"""A part of a migration: SQL, or a function that does what SQL cannot, in the same transaction."""

BUSY_TIMEOUT_S = 2.0
"""Seconds a statement waits for another process (a backup, a `sqlite3` shell) that holds the file."""


class DatabaseUnusable(ConfigError):
    """The file cannot be opened, is not ours, or is newer than this program. `str()` is one line."""


def open_database(
    path: Path, migrations: Sequence[Sequence[Statement]], *, synchronous: str
) -> sqlite3.Connection:
    """Open `path` for writing, create it if need be, and bring its schema up to date.

    The file and SQLite's side files get mode 0600; missing folders get 0700. The connection is in autocommit
    mode and may be used by any one thread at a time.

    Args:
        migrations: step `n` holds the statements that lead from `PRAGMA user_version` n to n + 1. A step is
            applied whole or not at all, so a kill in the middle leaves the old schema.
        synchronous: SQLite's `PRAGMA synchronous`, `NORMAL` or `FULL`.

    Raises:
        DatabaseUnusable: see there.
    """
    try:
        _make_private(path)
        conn = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as exc:
        raise DatabaseUnusable(f"{path}: cannot be opened ({_why(exc)})") from exc
    try:
        conn.execute("PRAGMA journal_mode=WAL")
        conn.execute(f"PRAGMA synchronous={synchronous}")
        conn.execute("PRAGMA journal_size_limit=67108864")
        conn.execute("PRAGMA temp_store=MEMORY")
        _migrate(conn, path, migrations)
    except sqlite3.Error as exc:
        conn.close()
        raise DatabaseUnusable(f"{path}: cannot be used ({_why(exc)})") from exc
    except DatabaseUnusable:
        conn.close()
        raise
    return conn


@contextlib.contextmanager
def transaction(conn: sqlite3.Connection) -> Iterator[None]:
    """One write transaction: committed at the end, rolled back when anything is raised, the commit included."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        conn.execute("COMMIT")
    except BaseException:
        # SQLite rolls back by itself after some errors; then there is nothing left to roll back.
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise


def _make_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite gives its -wal and -shm files the mode of the main file.
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _migrate(conn: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[Statement]]) -> None:
    version = _user_version(conn)
    if version > len(migrations):
        raise DatabaseUnusable(
            f"{path}: was written by a newer version (schema {version}; this one knows {len(migrations)})"
        )
    if version == 0 and conn.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise DatabaseUnusable(f"{path}: is the database of another program")
    for step in range(version, len(migrations)):
        with transaction(conn):
            for statement in migrations[step]:
                if isinstance(statement, str):
                    conn.execute(statement)
                else:
                    statement(conn)
            conn.execute(f"PRAGMA user_version={step + 1}")


def _user_version(conn: sqlite3.Connection) -> int:
    return int(conn.execute("PRAGMA user_version").fetchone()[0])


def _why(exc: Exception) -> str:
    return (exc.strerror or type(exc).__name__) if isinstance(exc, OSError) else str(exc)
