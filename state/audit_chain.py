"""The rows of the audit log and their chain.

A row's link is made as in the egress record (`observability.egress_chain`), under a key of its own: HMAC-SHA256(key,
link of the row before || signed bytes). The signed bytes of form 1 are a JSON array in UTF-8 without spaces that holds
the columns of `SIGNED` in that order; `before` and `after` are the text of the column, not the value in it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from weighbridge.observability.egress_chain import (
    ChainBroken,
    Tip,
    key_id,
    link_after,
    read_tip,
    signed_bytes,
)
from weighbridge.state.acting import now_acting

__all__ = [
    "COLUMNS",
    "FORM",
    "SIGNED",
    "TABLE",
    "TYPES",
    "AuditRow",
    "ChainBroken",
    "Deed",
    "brief",
    "tip_of",
    "write",
]

FORM: Final = 1
"""The form of the signed bytes that is written; rows say theirs."""

MAX_VALUE: Final = 1_000
"""Bytes of a value's JSON above which its hash stands for it in `before` and `after`."""

Outcome = Literal["done", "refused"]


class AuditRow(msgspec.Struct, frozen=True):
    """A row as it stands in the table. All columns but the last are signed, in this order."""

    seq: int
    """Counts from 1 without gaps, in the order of writing."""
    form: int
    key_id: str
    """Which chain key signed it."""
    at_ns: int
    """UTC nanoseconds."""
    who: str
    """Id of the admin key; `loopback` while there is none, `command line`, or empty for the policy file."""
    role: str
    action: str
    target: str
    """What it was done to: an id or a plain word."""
    outcome: str
    why: str
    before: str
    """JSON; null where there was nothing."""
    after: str
    request_id: str
    chain: str


COLUMNS: Final = tuple(field.name for field in msgspec.structs.fields(AuditRow))
SIGNED: Final = COLUMNS[:-1]
TYPES: Final = tuple(int if field.type is int else str for field in msgspec.structs.fields(AuditRow))

TABLE: Final = """CREATE TABLE audit (
    seq INTEGER PRIMARY KEY NOT NULL, form INTEGER NOT NULL, key_id TEXT NOT NULL, at_ns INTEGER NOT NULL,
    who TEXT NOT NULL, role TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL, outcome TEXT NOT NULL,
    why TEXT NOT NULL, "before" TEXT NOT NULL, "after" TEXT NOT NULL, request_id TEXT NOT NULL, chain TEXT NOT NULL
)"""

_INSERT: Final = "INSERT INTO audit ({}) VALUES ({})".format(  # noqa: S608
    ", ".join(f'"{name}"' for name in COLUMNS), ", ".join("?" * len(COLUMNS))
)
_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class Deed:
    """What is to be recorded. Neither value may hold a key, a hash of one, or text of a request.

    Args:
        who: id of the admin key.
        target: what it was done to.
        before, after: plain data; None where there is nothing.
        why: the reason that was given.
    """

    who: str
    target: str
    before: Any
    after: Any
    why: str = ""
    outcome: Outcome = "done"


def write(conn: sqlite3.Connection, at_ns: int, key: bytes, deed: Deed) -> None:
    """Write the row of `deed` into the transaction under way.

    Raises:
        ChainBroken: the last row is damaged, so nothing can be tied to it.
        ValueError: a text is not proper Unicode, or SQLite would cut it short.
    """
    tip = read_tip(conn, "audit")
    doing = now_acting()
    values = (
        tip.seq + 1,
        FORM,
        key_id(key),
        at_ns,
        deed.who,
        doing.role,
        doing.action,
        deed.target,
        deed.outcome,
        deed.why,
        _encode(deed.before).decode(),
        _encode(deed.after).decode(),
        doing.request_id,
    )
    signed = signed_bytes(values)
    if b"\\u0000" in signed:
        raise ValueError("SQLite would cut this text short")
    link = link_after(tip.link, key, signed)
    conn.execute(_INSERT, (*values, link.hex()))


def tip_of(conn: sqlite3.Connection) -> Tip:
    """Where the log ends. Raises: ChainBroken."""
    return read_tip(conn, "audit")


def brief(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entries of two mappings in which they differ, long values by their hash."""
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return (
        {name: _short(before[name]) for name in changed if name in before},
        {name: _short(after[name]) for name in changed if name in after},
    )


def _short(value: Any) -> Any:
    text = _encode(value)
    return (
        value if len(text) <= MAX_VALUE else {"sha256": hashlib.sha256(text).hexdigest(), "bytes": len(text)}
    )
