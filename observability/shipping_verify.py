"""Proving that spool and sink agree: an export of the sink beside the spool it came from, record by record.

Takes as little memory for millions of records as for ten: what the sink holds is put into a table on disk first.
"""

from __future__ import annotations

import gzip
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from weighbridge.observability import otlp_records, shipping_read
from weighbridge.observability.ledger_schema import VERSION
from weighbridge.observability.otlp_records import EVENTS, IDS, INSTANCE, OURS, REVISION
from weighbridge.observability.shipping_read import EGRESS, REQUESTS, STREAMS

LISTED: Final = 20
"""Records of each kind of finding that are named; the others are counted."""

_STREAM_OF: Final = {event: stream for stream, event in EVENTS.items()}
_TIME: Final = {REQUESTS: "weighbridge.request.ended_ns", EGRESS: "weighbridge.egress.at_ns"}
_ZIPPED: Final = b"\x1f\x8b"

_SINK: Final = """CREATE TABLE sink (
    stream TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL, digest BLOB NOT NULL, at_ns INTEGER,
    copies INTEGER NOT NULL, differs INTEGER NOT NULL, known INTEGER NOT NULL,
    PRIMARY KEY (stream, id, revision)
) WITHOUT ROWID"""
_ADD: Final = """INSERT INTO sink VALUES (?, ?, ?, ?, ?, 1, 0, 0) ON CONFLICT DO UPDATE SET
    copies = copies + 1, differs = differs OR digest != excluded.digest"""


class CannotTell(Exception):
    """Spool or export could not be read, so nothing is known. `str()` is one line."""


@dataclass(slots=True)
class Agreement:
    """What a comparison found.

    Args:
        spool: name of the spool, `service.instance.id` of what it ships.
        agreeing: records of the spool, of both streams, that the sink has as they are.
        waiting: records that are not shipped yet.
        older_revisions: copies in the sink that a later revision has taken the place of.
        duplicates: copies beyond the first, which at-least-once brings.
        retired: records in the sink that are older than all that the spool still keeps, but for those that it never
            lets go, or that it had shipped before it let all of them go.
        elsewhere: records in the export that other gateways shipped.
        faults: how many records `missing`, `differing`, `unknown` or `rejected`.
        named: the first of them, stream and id.
    """

    spool: str = ""
    agreeing: int = 0
    waiting: int = 0
    older_revisions: int = 0
    duplicates: int = 0
    retired: int = 0
    elsewhere: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    named: dict[str, list[str]] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        return not self.faults

    def fault(self, kind: str, stream: str, id_: str, more: str = "") -> None:
        self.faults[kind] += 1
        named = self.named.setdefault(kind, [])
        if len(named) < LISTED:
            named.append(f"{stream} {id_}{more}")


def verify(spool: Path, exports: Iterable[Path]) -> Agreement:
    """Compare the spool with what its sink holds, as the standard collector's file exporter writes it: one JSON
    document of OTLP a line, plain or gzip. The spool is only read, beside a running gateway or without one.

    Raises:
        CannotTell: see there.
    """
    found = Agreement()
    with closing(
        sqlite3.connect("", isolation_level=None)
    ) as sink:  # an empty name: a file that goes with us
        sink.execute(_SINK)
        try:
            conn = shipping_read.open_spool(spool)
        except sqlite3.Error as exc:
            raise CannotTell(f"{spool}: cannot be read ({exc})") from None
        with closing(conn):
            try:
                _require_version(conn, spool)
                found.spool = shipping_read.spool_name(conn)
                # How far the spool had come before the export was read: what ended since may be in neither.
                at = shipping_read.cursors(conn)
                for path in exports:
                    _load(sink, path, found)
                _compare(conn, sink, at, found)
            except sqlite3.Error as exc:
                raise CannotTell(f"{spool}: cannot be read ({exc})") from None
    return found


def _require_version(conn: sqlite3.Connection, spool: Path) -> None:
    (version,) = conn.execute("PRAGMA user_version").fetchone()
    if version < VERSION:
        raise CannotTell(
            f"{spool}: was written by an older version; the next start of the gateway brings it up to date"
        )
    if version > VERSION:
        raise CannotTell(f"{spool}: was written by a newer version (schema {version})")


def _load(sink: sqlite3.Connection, path: Path, found: Agreement) -> None:
    sink.execute("BEGIN")
    try:
        for number, line in enumerate(_lines(path), start=1):
            if not line.strip():
                continue
            try:
                for stream, attributes in _records(line, found):
                    _add(sink, stream, attributes, found)
            except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
                raise CannotTell(f"{path}:{number}: is not a line of OTLP in JSON") from None
    except (OSError, EOFError) as exc:
        why = (exc.strerror if isinstance(exc, OSError) else None) or "it is cut short"
        raise CannotTell(f"{path}: cannot be read ({why})") from None
    sink.execute("COMMIT")


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        zipped = file.read(2) == _ZIPPED
        file.seek(0)
        with gzip.open(file) if zipped else nullcontext(file) as lines:
            yield from lines


def _records(line: bytes, found: Agreement) -> Iterator[tuple[str, dict[str, Any]]]:
    document: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    for per in document.get("resourceLogs") or ():
        about = otlp_records.read_attributes(per.get("resource", {}).get("attributes") or ())
        for scope in per.get("scopeLogs") or ():
            for record in scope.get("logRecords") or ():
                name = record.get("eventName") or record.get("body", {}).get("stringValue", "")
                stream = _STREAM_OF.get(name)
                if stream is None:
                    continue
                if about.get(INSTANCE) != found.spool:
                    found.elsewhere += 1
                    continue
                yield stream, otlp_records.read_attributes(record.get("attributes") or ())


def _add(sink: sqlite3.Connection, stream: str, attributes: Mapping[str, Any], found: Agreement) -> None:
    ours = {name: value for name, value in attributes.items() if name in OURS[stream]}
    key = (stream, str(ours[IDS[stream]]), int(ours[REVISION]))
    sink.execute(_ADD, (*key, otlp_records.digest(ours), ours.get(_TIME[stream])))


def _compare(
    conn: sqlite3.Connection, sink: sqlite3.Connection, at: Mapping[str, int], found: Agreement
) -> None:
    for stream in STREAMS:
        oldest_ns: int | None = None
        for record in shipping_read.every(conn, stream):
            why = shipping_read.why_rejected(conn, stream, record.id, record.seq)
            if why is None and (oldest_ns is None or record.at_ns < oldest_ns):
                oldest_ns = record.at_ns  # a rejected one is kept whatever its age, and says nothing about it
            held = sink.execute(
                "SELECT digest, differs FROM sink WHERE stream = ? AND id = ? AND revision = ?",
                (stream, record.id, record.seq),
            ).fetchone()
            # Whatever else the sink has under this id is older, or newer than the spool can be.
            sink.execute(
                "UPDATE sink SET known = 1 WHERE stream = ? AND id = ? AND revision <= ?",
                (stream, record.id, record.seq),
            )
            if held is not None:
                _judge(stream, record, held, found)
            elif why is not None:
                found.fault("rejected", stream, record.id, f" ({why})")
            elif record.seq > at[stream]:
                found.waiting += 1
            else:
                found.fault("missing", stream, record.id)
        # Egress rows are never let go.
        emptied_to = at[stream] if oldest_ns is None and stream == REQUESTS else 0
        _left_over(sink, stream, oldest_ns, emptied_to, found)
    (copies, revisions, ids) = sink.execute(
        "SELECT coalesce(sum(copies), 0), count(*), count(DISTINCT stream || ' ' || id) FROM sink"
    ).fetchone()
    found.duplicates, found.older_revisions = copies - revisions, revisions - ids


def _judge(stream: str, record: shipping_read.Record, held: tuple[bytes, int], found: Agreement) -> None:
    try:
        digest = otlp_records.digest(otlp_records.attributes_of(stream, record))
    except otlp_records.Unspeakable as exc:
        found.fault("differing", stream, record.id, f" ({exc})")
        return
    if held[0] != digest or held[1]:
        found.fault("differing", stream, record.id)
    else:
        found.agreeing += 1


def _left_over(
    sink: sqlite3.Connection, stream: str, oldest_ns: int | None, emptied_to: int, found: Agreement
) -> None:
    """What the sink has and the spool has not: gone by its age, or never this spool's to ship.

    Args:
        oldest_ns: when the oldest that can go by its age ended; None when there is none.
        emptied_to: up to this revision all have gone.
    """
    for id_, revision, at_ns in sink.execute(
        "SELECT id, revision, at_ns FROM sink WHERE stream = ? AND NOT known ORDER BY id", (stream,)
    ):
        older = oldest_ns is not None and isinstance(at_ns, int) and at_ns < oldest_ns
        if older or revision <= emptied_to:
            found.retired += 1
        else:
            found.fault("unknown", stream, id_)
