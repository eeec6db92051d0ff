"""The chain over the egress rows: what is signed of a row, and how one row is tied to the one before.

A row's link is HMAC-SHA256(chain key, link of the row before || signed bytes), in hex in the column `chain`. Before
the first row stand 32 zero bytes. The signed bytes of form 1 are a JSON array in UTF-8 without spaces that holds the
columns of `SIGNED` in that order, numbers as numbers and text as text; `entities` is the text of the column, not the
object in it. Whoever has the key can compute it with any language's JSON (characters beyond ASCII unescaped).

`key_id` names the key, so that an old key proves old rows after a rotation.
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from weighbridge.observability.records import Egress

FORM: Final = 1
"""The form of the signed bytes that is written; rows say theirs."""

START: Final = bytes(32)
"""What the first row is tied to."""


class ChainBroken(Exception):
    """The last row is not one that another can be tied to."""


class ChainedEgress(msgspec.Struct, frozen=True):
    """An egress row as it stands in the table. All columns but the last are signed, in this order."""

    seq: int
    """Counts from 1 without gaps, in the order of writing."""
    form: int
    key_id: str
    adopted: int
    """1 for a row from before there was a chain, tied in afterwards: it proves nothing about the time before."""
    egress_id: str
    request_id: str
    attempt: int
    at_ns: int
    endpoint: str
    reason: str
    body_hash: str
    body_bytes: int
    entities: str
    policy_version: str
    detector_version: str
    chain: str


COLUMNS: Final = tuple(field.name for field in msgspec.structs.fields(ChainedEgress))
SIGNED: Final = COLUMNS[:-1]
TYPES: Final = tuple(
    int if field.type is int else str for field in msgspec.structs.fields(ChainedEgress)
)  # of COLUMNS


class Tip(NamedTuple):
    """The last row of a chain: its number and its link."""

    seq: int
    link: bytes


def key_id(key: bytes) -> str:
    """The name of a chain key: eight hex digits of its hash."""
    return hashlib.sha256(key).hexdigest()[:8]


_encode = msgspec.json.Encoder(order="sorted").encode


def signed_bytes(values: tuple[Any, ...]) -> bytes:
    """The signed bytes of a row of form 1, from the values of `SIGNED`."""
    return _encode(values)


def link_after(link: bytes, key: bytes, signed: bytes) -> bytes:
    """The link of a row: 32 bytes."""
    return hmac.digest(key, link + signed, hashlib.sha256)


def read_tip(conn: sqlite3.Connection, table: str = "egress") -> Tip:
    """Where the chain in a table of the file ends.

    Raises:
        ChainBroken: the last row's link is damaged.
    """
    row = conn.execute(f"SELECT seq, chain FROM {table} ORDER BY seq DESC LIMIT 1").fetchone()  # noqa: S608
    if row is None:
        return Tip(0, START)
    try:
        link = bytes.fromhex(row[1])
    except (TypeError, ValueError):
        raise ChainBroken from None
    if len(link) != len(START):
        raise ChainBroken
    return Tip(row[0], link)


def seal(row: Egress, tip: Tip, key: bytes) -> tuple[ChainedEgress, Tip]:
    """`row` tied to `tip`, and the tip after it.

    Raises:
        ValueError: the row holds text that SQLite cannot take over unchanged.
    """
    held = (
        row.egress_id,
        row.request_id,
        row.attempt,
        row.at_ns,
        row.endpoint,
        row.reason,
        row.body_hash,
        row.body_bytes,
        _encode(row.entities).decode(),
        row.policy_version,
        row.detector_version,
    )
    return _tie(held, tip, key, adopted=False)


def adopt(conn: sqlite3.Connection, key: bytes) -> None:
    """Tie the rows of the table `egress_before`, which had no chain, into `egress` by time and id."""
    held = ", ".join(COLUMNS[4:-1])
    rows = conn.execute(f"SELECT {held} FROM egress_before ORDER BY at_ns, egress_id")  # noqa: S608

    def tied() -> Iterator[tuple[Any, ...]]:
        tip = Tip(0, START)
        for row in rows:
            chained, tip = _tie(tuple(row), tip, key, adopted=True)
            yield msgspec.structs.astuple(chained)

    marks = ", ".join("?" * len(COLUMNS))
    conn.executemany(f"INSERT INTO egress ({', '.join(COLUMNS)}) VALUES ({marks})", tied())  # noqa: S608


def _tie(held: tuple[Any, ...], tip: Tip, key: bytes, *, adopted: bool) -> tuple[ChainedEgress, Tip]:
    values = (tip.seq + 1, FORM, key_id(key), int(adopted), *held)
    signed = signed_bytes(values)
    if b"\\u0000" in signed:
        raise ValueError("SQLite would cut this text short")
    link = link_after(tip.link, key, signed)
    columns: list[Any] = [*values, link.hex()]
    return ChainedEgress(*columns), Tip(tip.seq + 1, link)
