"""Proving a table whose rows are chained, whatever they hold; `observability.egress_chain` says how they are tied."""

from __future__ import annotations

import hmac
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from weighbridge.observability.egress_chain import START, key_id, link_after, signed_bytes


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
        fault: what is wrong with it, in words; empty when nothing is. Without a row, what else speaks against the
            record.
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


Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Chained:
    """A table to prove. Its columns begin with `seq`, `form` and `key_id` and end with `chain`; all before it are
    signed.

    Args:
        table: its name.
        columns, types: its columns in order, each with what it holds, `int` or `str`.
        form: the form of the signed bytes that is known.
        fault: what is wrong with a row by its own rules, in words; empty when nothing is.
        count: counts a sound row by its own rules.
    """

    table: str
    columns: tuple[str, ...]
    types: tuple[type, ...]
    form: int
    fault: Callable[[Row, Verdict], str] = lambda row, found: ""
    count: Callable[[Row, Verdict], None] = lambda row, found: None

    @property
    def select(self) -> str:
        columns = ", ".join(f'"{name}"' for name in self.columns)
        return f"SELECT {columns} FROM {self.table} ORDER BY seq"  # noqa: S608


_FORM, _KEY_ID = 1, 2


def verify_rows(
    conn: sqlite3.Connection, chained: Chained, given: Iterable[bytes], pinned: str | None
) -> Verdict:
    """Go through the chain.

    Args:
        conn: gives text as it is written from now on.
        given: chain keys that rows may be signed with.
        pinned: the head of an earlier look, hex; the chain must run through it.

    Raises:
        sqlite3.OperationalError: the file cannot be read.
    """
    keys = {key_id(key): key for key in given}
    at_ns = chained.columns.index("at_ns")
    found, link = Verdict(), START
    if pinned == found.head:
        found.pinned_at = 0
    rows = conn.cursor()
    rows.row_factory = None
    # Text that is no UTF-8 must show as a changed row, not as a file that cannot be read.
    conn.text_factory = _as_written
    try:
        for row in rows.execute(chained.select):
            fault = _fault(row, found, keys, chained)
            if not fault:
                made = link_after(link, keys[row[_KEY_ID]], signed_bytes(row[:-1]))
                if hmac.compare_digest(made.hex().encode(), row[-1].encode()):
                    link = made
                    _count(found, row, row[at_ns], pinned)
                    chained.count(row, found)
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


def _fault(row: Row, found: Verdict, keys: dict[str, bytes], chained: Chained) -> str:
    """What is wrong with a row by itself."""
    if row[0] != found.rows + 1:
        return "is missing" if isinstance(row[0], int) and row[0] > found.rows else "has a wrong number"
    # SQLite keeps what it is given: a value of another type may look the same once it is signed.
    if any(type(value) is not kind for value, kind in zip(row, chained.types, strict=True)) or not _plain(
        row
    ):
        return "was changed: a value is not of its type"
    if row[_FORM] != chained.form:
        return f"is of form {row[_FORM]}, which this version does not know"
    if own := chained.fault(row, found):
        return own
    if row[_KEY_ID] not in keys:
        return f"was signed with the key {row[_KEY_ID]!r}, which is not among the secrets given"
    return ""


def _plain(row: Row) -> bool:
    try:
        for value in row:
            if isinstance(value, str):
                value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _count(found: Verdict, row: Row, at_ns: int, pinned: str | None) -> None:
    found.rows += 1
    found.head = row[-1]
    found.keys[row[_KEY_ID]] += 1
    found.last_ns = at_ns
    if found.first_ns is None:
        found.first_ns = at_ns
    if pinned == found.head:
        found.pinned_at = found.rows


def _as_written(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
