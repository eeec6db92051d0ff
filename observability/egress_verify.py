"""Proving the chain over the egress rows, beside a gateway that writes them or without one."""

from __future__ import annotations

import hmac
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from weighbridge.observability.egress_chain import (
    COLUMNS,
    FORM,
    START,
    TYPES,
    key_id,
    link_after,
    signed_bytes,
)
from weighbridge.observability.ledger_read import open_readonly
from weighbridge.observability.ledger_schema import CHAINED, VERSION

_KEY_ID, _ADOPTED, _AT_NS = (COLUMNS.index(name) for name in ("key_id", "adopted", "at_ns"))
_SELECT: Final = f"SELECT {', '.join(COLUMNS)} FROM egress ORDER BY seq"  # noqa: S608


class CannotTell(Exception):
    """The record could not be read, so nothing is known about it. `str()` is one line."""


@dataclass(slots=True)
class Verdict:
    """What a look at the whole chain found; with a `fault`, up to the row before it.

    Args:
        rows: rows that are as they were written.
        adopted: those of them that are older than the chain.
        first_ns, last_ns: when the first and the last of them were written, UTC nanoseconds; None without rows.
        head: link of the last of them, hex.
        keys: how many rows each key signed, by its id.
        pinned_at: the row whose link is the pinned head; 0 is the start of the chain; None when not found.
        bad_seq: number of the first row that is wrong or missing; None when there is none.
        fault: what is wrong with it, in words; empty when nothing is.
    """

    rows: int = 0
    adopted: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    head: str = START.hex()
    keys: Counter[str] = field(default_factory=Counter)
    pinned_at: int | None = None
    bad_seq: int | None = None
    fault: str = ""


def verify_file(path: Path, keys: Iterable[bytes], pinned: str | None = None) -> Verdict:
    """Go through the chain in the ledger at `path`, which is only read.

    Args:
        keys: chain keys that rows may be signed with.
        pinned: the head of an earlier look, hex; the chain must run through it.

    Raises:
        CannotTell: no ledger can be read there.
    """
    try:
        with closing(open_readonly(path)) as conn:
            (version,) = conn.execute("PRAGMA user_version").fetchone()
            if version < CHAINED:
                raise CannotTell(
                    f"{path}: was written before there was a chain; the next start of the gateway adds it"
                )
            if version > VERSION:
                raise CannotTell(f"{path}: was written by a newer version (schema {version})")
            return _verify(conn, {key_id(key): key for key in keys}, pinned)
    except sqlite3.Error as exc:
        raise CannotTell(f"{path}: cannot be read ({exc})") from None


def _verify(conn: sqlite3.Connection, keys: dict[str, bytes], pinned: str | None) -> Verdict:
    found, link = Verdict(), START
    if pinned == found.head:
        found.pinned_at = 0
    rows = conn.cursor()
    rows.row_factory = None
    # Text that is no UTF-8 must show as a changed row, not as a file that cannot be read.
    conn.text_factory = _as_written
    try:
        for row in rows.execute(_SELECT):
            fault = _fault(row, found, keys)
            if not fault:
                made = link_after(link, keys[row[_KEY_ID]], signed_bytes(row[:-1]))
                if hmac.compare_digest(made.hex().encode(), row[-1].encode()):
                    link = made
                    _count(found, row, pinned)
                    continue
                fault = "was changed, moved or put in, or the row before it was taken out"
            found.bad_seq, found.fault = found.rows + 1, fault
            return found
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as exc:
        found.bad_seq, found.fault = found.rows + 1, f"cannot be read: the file is damaged ({exc})"
        return found
    if pinned is not None and found.pinned_at is None:
        found.bad_seq = found.rows + 1
        found.fault = (
            "is missing: no row has the pinned head, so the end was taken off or the chain made anew"
        )
    return found


def _fault(row: tuple[Any, ...], found: Verdict, keys: dict[str, bytes]) -> str:
    """What is wrong with a row by itself."""
    if row[0] != found.rows + 1:
        return "is missing" if isinstance(row[0], int) and row[0] > found.rows else "has a wrong number"
    # SQLite keeps what it is given: a value of another type may look the same once it is signed.
    if any(type(value) is not kind for value, kind in zip(row, TYPES, strict=True)) or not _plain(row):
        return "was changed: a value is not of its type"
    if row[1] != FORM:
        return f"is of form {row[1]}, which this version does not know"
    if row[_ADOPTED] not in (0, 1) or (row[_ADOPTED] and found.adopted < found.rows):
        return "says that it is older than the chain, and stands behind rows that are not"
    if row[_KEY_ID] not in keys:
        return f"was signed with the key {row[_KEY_ID]!r}, which is not among the secrets given"
    return ""


def _plain(row: tuple[Any, ...]) -> bool:
    try:
        for value in row:
            if isinstance(value, str):
                value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _count(found: Verdict, row: tuple[Any, ...], pinned: str | None) -> None:
    found.rows += 1
    found.adopted += row[_ADOPTED]
    found.head = row[-1]
    found.keys[row[_KEY_ID]] += 1
    found.last_ns = row[_AT_NS]
    if found.first_ns is None:
        found.first_ns = found.last_ns
    if pinned == found.head:
        found.pinned_at = found.rows


def _as_written(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
