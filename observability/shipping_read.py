"""Reading the spool for whoever ships it: what is to be sent next, and how much waits."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from weighbridge.observability.ledger_read import open_readonly

REQUESTS: Final = "requests"
EGRESS: Final = "egress"
STREAMS: Final = (REQUESTS, EGRESS)
"""What is shipped: request records by `requests.seq`, and egress rows by their number in the chain."""

BUSY_S: Final = 2.0
"""Seconds a read waits for another process that holds the file."""

_COUNTED: Final = 1_000_000
_ID: Final = {REQUESTS: "request_id", EGRESS: "egress_id"}
_TIME: Final = {REQUESTS: "ended_ns", EGRESS: "at_ns"}
_CURSOR: Final = {REQUESTS: "shipped", EGRESS: "egress_shipped"}


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it stands in the spool.

    Args:
        id: of the request or egress row.
        seq: its number in its stream, which is also its revision.
        at_ns: when the request ended or the egress was recorded, UTC nanoseconds; 0 where that is no number.
        row: the columns.
        attempts: of a request, in order.
    """

    id: str
    seq: int
    at_ns: int
    row: Mapping[str, Any] = field(repr=False)
    attempts: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What one stream has not shipped yet.

    Args:
        records: how many.
        oldest_ns: time of the one that has waited longest; None when there is none.
    """

    records: int
    oldest_ns: int | None


def open_spool(path: Path) -> sqlite3.Connection:
    """A connection that only reads; for any one thread at a time.

    Raises:
        sqlite3.Error: there is no such file, or it cannot be read.
    """
    conn = open_readonly(path)
    conn.execute(f"PRAGMA busy_timeout={round(BUSY_S * 1000)}")
    conn.execute("PRAGMA cache_size=-2000")
    conn.text_factory = _text
    return conn


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


@contextmanager
def one_moment(conn: sqlite3.Connection) -> Iterator[None]:
    """Everything read meanwhile is of one moment. Short: the spool's log cannot be emptied past it."""
    conn.execute("BEGIN")
    try:
        yield
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")


def spool_name(conn: sqlite3.Connection) -> str:
    """What this spool is called in everything that is shipped: the form of a UUID."""
    (raw,) = conn.execute("SELECT spool FROM shipping").fetchone()
    text = str(raw)
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def cursors(conn: sqlite3.Connection) -> dict[str, int]:
    """The last number of each stream that has arrived."""
    row = conn.execute("SELECT shipped, egress_shipped FROM shipping").fetchone()
    return {REQUESTS: int(row[0]), EGRESS: int(row[1])}


def batch(conn: sqlite3.Connection, stream: str, after: int, limit: int) -> list[Record]:
    """At most `limit` records of `stream` behind number `after`, in order, each whole."""
    with one_moment(conn):
        rows = conn.execute(
            f"SELECT * FROM {stream} WHERE seq > ? ORDER BY seq LIMIT ?",  # noqa: S608  (a name of ours)
            (after, limit),
        ).fetchall()
        return [_record(conn, stream, row) for row in rows]


def every(conn: sqlite3.Connection, stream: str) -> Iterator[Record]:
    """All finished records of `stream` in order, a page at a time."""
    after, page = -(2**63), 500
    while found := batch(conn, stream, after, page):
        yield from found
        after = found[-1].seq


def _record(conn: sqlite3.Connection, stream: str, row: sqlite3.Row) -> Record:
    held = dict(row)
    tried: tuple[Mapping[str, Any], ...] = ()
    if stream == REQUESTS:
        tried = tuple(
            dict(attempt)
            for attempt in conn.execute(
                "SELECT * FROM attempts WHERE request_id = ? ORDER BY n", (held["request_id"],)
            )
        )
    at_ns = held[_TIME[stream]]
    return Record(str(held[_ID[stream]]), held["seq"], at_ns if type(at_ns) is int else 0, held, tried)


def waiting(conn: sqlite3.Connection, stream: str, after: int) -> Waiting:
    """How much of `stream` waits behind number `after`: counted up to a million, which takes some 70 ms; more than that
    is told by the numbers, some of which are left out."""
    (count,) = conn.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {stream} WHERE seq > ? LIMIT {_COUNTED + 1})",  # noqa: S608
        (after,),
    ).fetchone()
    if count > _COUNTED:
        (last,) = conn.execute(f"SELECT max(seq) FROM {stream}").fetchone()  # noqa: S608
        count = last - after
    oldest = conn.execute(
        f"SELECT {_TIME[stream]} FROM {stream} WHERE seq > ? ORDER BY seq LIMIT 1",  # noqa: S608
        (after,),
    ).fetchone()
    at_ns = None if oldest is None else oldest[0] if type(oldest[0]) is int else 0
    return Waiting(count, at_ns)


def why_rejected(conn: sqlite3.Connection, stream: str, id_: str, seq: int) -> str | None:
    """Why the collector would not take a record; None for one that it did not say this of."""
    row = conn.execute(
        "SELECT reason FROM rejected WHERE stream = ? AND id = ? AND seq = ?", (stream, id_, seq)
    ).fetchone()
    return None if row is None else str(row[0])


def rejected(conn: sqlite3.Connection) -> Iterator[tuple[str, str, int, int, str]]:
    """What the collector would not take: stream, id, number, when it said so (UTC nanoseconds) and why."""
    for row in conn.execute(
        "SELECT stream, id, seq, at_ns, reason FROM rejected ORDER BY at_ns, stream, seq"
    ):
        yield (str(row[0]), str(row[1]), int(row[2]), int(row[3]), str(row[4]))
