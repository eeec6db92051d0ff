"""Reading the ledger, beside a gateway that writes it or after one that died."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

LEDGER_FILE = "ledger.sqlite3"
"""The spool's name in the state folder."""

_FLAGS = ("stream", "tokens_exact", "adopted")
_JSON = ("reasons", "entities")


def open_readonly(path: Path) -> sqlite3.Connection:
    """A connection that cannot write.

    Raises:
        sqlite3.OperationalError: there is no such file.
    """
    conn = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, isolation_level=None)
    conn.row_factory = sqlite3.Row
    return conn


def requests(conn: sqlite3.Connection, request_id: str | None = None) -> list[dict[str, Any]]:
    """Request records in order of admission, or the one of `request_id`.

    `outcome` is None while a request is under way. `road_decided` is the first decision, `road` what served.
    """
    return _rows(conn, "SELECT * FROM requests", request_id, "request_id")


def attempts(conn: sqlite3.Connection, request_id: str | None = None) -> list[dict[str, Any]]:
    """The backends tried, in order; of one request or of all."""
    return _rows(conn, "SELECT * FROM attempts", request_id, "request_id, n")


def egress(conn: sqlite3.Connection, request_id: str | None = None) -> list[dict[str, Any]]:
    """What was sent outwards, in the order of writing; for one request or for all."""
    return _rows(conn, "SELECT * FROM egress", request_id, "seq")


def egress_page(
    conn: sqlite3.Connection, after: int, limit: int
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """At most `limit` egress rows from the one after number `after`, and the last of all; None without rows.

    Both are of one moment. Takes as long at a million rows as at ten.
    """
    conn.execute("BEGIN")
    page = conn.execute("SELECT * FROM egress WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit)).fetchall()
    last = conn.execute("SELECT * FROM egress ORDER BY seq DESC LIMIT 1").fetchone()
    conn.execute("COMMIT")
    return [_row(row) for row in page], None if last is None else _row(last)


def _rows(conn: sqlite3.Connection, select: str, request_id: str | None, order: str) -> list[dict[str, Any]]:
    where, values = ("", ()) if request_id is None else (" WHERE request_id = ?", (request_id,))
    return [_row(row) for row in conn.execute(f"{select}{where} ORDER BY {order}", values)]


def _row(row: sqlite3.Row) -> dict[str, Any]:
    values = dict(row)
    for name in values.keys() & set(_FLAGS):
        values[name] = None if values[name] is None else bool(values[name])
    for name in values.keys() & set(_JSON):
        values[name] = None if values[name] is None else msgspec.json.decode(values[name])
    return values
