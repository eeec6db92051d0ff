"""Durable state that is not usage: the file it is kept in, and what administrators have laid over the policy file.

`state.policy_record`, `state.switch`, `state.keys`, `state.audit` and `state.pins` keep theirs in the same file.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from weighbridge.config.clock import Clock
from weighbridge.observability.sqlite_file import open_database, transaction
from weighbridge.state import audit_chain
from weighbridge.state.audit_chain import ChainBroken, Deed, brief

log = logging.getLogger(__name__)

_MIGRATIONS: Final = (
    (
        # AUTOINCREMENT: an id is never used twice, so an audit can tell that nothing was taken out.
        """CREATE TABLE overlays (
            id INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL,
            "values" TEXT NOT NULL, base_policy_version TEXT NOT NULL
        )""",
    ),
    (
        """CREATE TABLE egress_switch (
            id INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL,
            egress TEXT NOT NULL
        )""",
        """CREATE TABLE pins (
            conversation BLOB PRIMARY KEY, local INTEGER NOT NULL, seen_ns INTEGER NOT NULL
        ) WITHOUT ROWID""",
        # One row: what the conversations' names are hashed with.
        "CREATE TABLE pins_secret (id INTEGER PRIMARY KEY CHECK (id = 1), secret BLOB NOT NULL)",
        "CREATE INDEX pins_open_by_age ON pins (seen_ns) WHERE local = 0",
    ),
    (
        """CREATE TABLE policy_proposals (
            id INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, who TEXT NOT NULL, why TEXT NOT NULL,
            form TEXT NOT NULL, base_version TEXT NOT NULL, version TEXT NOT NULL, patch TEXT NOT NULL,
            content TEXT NOT NULL
        )""",
        """CREATE TABLE policy_versions (
            id INTEGER PRIMARY KEY AUTOINCREMENT, at_ns INTEGER NOT NULL, version TEXT NOT NULL, source TEXT NOT NULL,
            who TEXT NOT NULL, why TEXT NOT NULL, base_version TEXT NOT NULL, proposal INTEGER, back_to INTEGER,
            base TEXT NOT NULL, overlay TEXT NOT NULL, content TEXT NOT NULL
        )""",
        "CREATE INDEX policy_versions_by_version ON policy_versions (version, id)",
        "CREATE INDEX policy_versions_by_proposal ON policy_versions (proposal) WHERE proposal IS NOT NULL",
    ),
    (
        # API keys and admin keys. A row is never taken out: an id in a record goes on to mean one key.
        """CREATE TABLE keys (
            seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
            kind TEXT NOT NULL CHECK (kind IN ('api', 'admin')), name TEXT NOT NULL, tenant TEXT NOT NULL,
            role TEXT CHECK ((kind = 'api') = (role IS NULL)), roads TEXT, parallel INTEGER,
            created_ns INTEGER NOT NULL, created_by TEXT NOT NULL, expires_ns INTEGER, revoked_ns INTEGER
        )""",
        # Every hash a key has had, and until when it is good; null for the one in use.
        """CREATE TABLE key_hashes (
            digest BLOB PRIMARY KEY, key_id TEXT NOT NULL REFERENCES keys (id), until_ns INTEGER
        ) WITHOUT ROWID""",
        "CREATE INDEX key_hashes_by_key ON key_hashes (key_id)",
        audit_chain.TABLE,
    ),
)

VERSION: Final = len(_MIGRATIONS)
"""`PRAGMA user_version` of a file that is up to date."""


class StateUnavailable(Exception):
    """The state file cannot be read or written; what was asked for did not happen."""


@dataclass(frozen=True, slots=True)
class OverlayEntry:
    """One change by an administrator.

    Args:
        id: counts up from 1.
        at_ns: nanoseconds since 1970, UTC.
        who: the admin key's id.
        why: what the administrator gave as the reason.
        values: the whole overlay from then on, not the difference; empty means none.
        base_policy_version: the policy in force when it was made.
    """

    id: int
    at_ns: int
    who: str
    why: str
    values: dict[str, Any]
    base_policy_version: str


class StateStore:
    """A SQLite file with `synchronous=FULL`: what was set is on the disk itself. Any thread may call it."""

    def __init__(self, conn: sqlite3.Connection, clock: Clock, audit_key: bytes | None = None) -> None:
        self._conn = conn
        self._clock = clock
        self._audit_key = audit_key
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, clock: Clock, *, audit_key: bytes | None = None) -> StateStore:
        """Open or create the file at `path`.

        Args:
            audit_key: what the audit log is signed with; without one nothing is written into it.

        Raises:
            DatabaseUnusable (a ConfigError): it cannot be opened, is not ours, or is newer than this program.
        """
        opened = cls(open_database(path, _MIGRATIONS, synchronous="FULL"), clock, audit_key)
        if audit_key is not None:
            opened._tell_head()
        return opened

    def overlay(self) -> dict[str, Any] | None:
        """The values in force over the policy file; None when there are none.

        Raises:
            StateUnavailable.
        """
        last = self.last_change()
        return None if last is None else last.values or None

    def set_overlay(
        self,
        values: Mapping[str, Any],
        who: str,
        why: str,
        *,
        base_policy_version: str = "",
        beside: Callable[[sqlite3.Connection, int], None] | None = None,
    ) -> OverlayEntry:
        """Make `values` the overlay and keep the change for the record. An empty mapping takes the overlay off.

        Args:
            beside: writes what belongs to the change into the same transaction; gets its time.

        Raises:
            StateUnavailable: nothing was changed.
            ValueError: `who`, `why` or a value is not proper Unicode; nothing was changed.
        """
        at_ns = self._clock.wall_ns()
        text = msgspec.json.encode(values, order="sorted").decode()
        with self.writing() as conn:
            before = conn.execute('SELECT "values" FROM overlays ORDER BY id DESC LIMIT 1').fetchone()
            number = conn.execute(
                'INSERT INTO overlays (at_ns, who, why, "values", base_policy_version) VALUES (?, ?, ?, ?, ?)',
                (at_ns, who, why, text, base_policy_version),
            ).lastrowid
            if beside is not None:
                beside(conn, at_ns)
            else:
                held = msgspec.json.decode(before[0]) if before else {}
                self.audited(conn, at_ns, Deed(who, "overlay", *brief(held, values), why))
        return OverlayEntry(number or 0, at_ns, who, why, msgspec.json.decode(text), base_policy_version)

    def last_change(self) -> OverlayEntry | None:
        """The latest change, if there was one.

        Raises:
            StateUnavailable.
        """
        entries = self._read("SELECT * FROM overlays ORDER BY id DESC LIMIT 1")
        return entries[0] if entries else None

    def history(self, after: int = 0, limit: int = -1) -> list[OverlayEntry]:
        """The changes above an id, the oldest first, at most `limit`; all of them without one.

        Raises:
            StateUnavailable.
        """
        return self._read("SELECT * FROM overlays WHERE id > ? ORDER BY id LIMIT ?", (after, limit))

    # ---- for this room ----

    @property
    def clock(self) -> Clock:
        """The clock that entries are dated by."""
        return self._clock

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        """What a query finds.

        Raises:
            StateUnavailable.
        """
        with self._lock:
            try:
                return self._conn.execute(query, values).fetchall()
            except sqlite3.Error as exc:
                raise StateUnavailable(f"the state file cannot be read ({type(exc).__name__})") from exc

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, on the disk itself when the block has ended.

        Raises:
            StateUnavailable: nothing was changed.
        """
        with self._lock:
            try:
                with transaction(self._conn):
                    yield self._conn
            except sqlite3.Error as exc:
                raise StateUnavailable(f"the state file cannot be written ({type(exc).__name__})") from exc

    def audited(self, conn: sqlite3.Connection, at_ns: int, deed: Deed) -> None:
        """Write the row of a change into the change's own transaction, so that there is none without the other.

        Raises:
            StateUnavailable: the log's end is damaged.
            ValueError: a text is not proper Unicode.
        """
        if self._audit_key is None:
            return
        try:
            audit_chain.write(conn, at_ns, self._audit_key, deed)
        except ChainBroken:
            raise StateUnavailable(
                "the end of the audit log is damaged, so nothing can be recorded"
            ) from None

    def close(self) -> None:
        """Idempotent; later calls raise StateUnavailable."""
        with self._lock:
            self._conn.close()

    def _tell_head(self) -> None:
        """For the log: rows taken off the end later show against a head that was kept elsewhere."""
        try:
            tip = audit_chain.tip_of(self._conn)
        except ChainBroken:
            log.error(
                "the end of the audit log is damaged: no change can be recorded, so none is made; "
                "`weighbridge audit verify` tells where"
            )
        else:
            log.info("audit log: %d rows, head %s", tip.seq, tip.link.hex())

    def _read(self, query: str, values: Sequence[object] = ()) -> list[OverlayEntry]:
        return [
            OverlayEntry(number, at_ns, who, why, msgspec.json.decode(text), base)
            for number, at_ns, who, why, text, base in self.rows(query, values)
        ]
