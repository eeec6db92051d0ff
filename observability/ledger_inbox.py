"""How a group of rows gets into the tables: as one JSON text, in one statement.

Python's sqlite3 gives up the interpreter lock several times for every statement and row, and each time has to win
it back from the event loop; when the loop is busy, that costs up to five milliseconds a piece. A view takes the
whole group at once, and its triggers sort the rows into the tables without Python. Measured beside a loop that
never rests, 800 requests a second: `executemany` fell behind by seconds, this stayed at a p99 of 5 to 150 ms.

Each trigger can run twice for a row and gives the same table in any order: a row that waited in memory for a
broken disk may come after a later one of the same request.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

import msgspec

from weighbridge.observability import ledger_rollups
from weighbridge.observability.egress_chain import ChainedEgress
from weighbridge.observability.pricing import Priced
from weighbridge.observability.records import Attempt, Capacity, Completion, Egress, Intent, Progress, Shipped

Row = Intent | Progress | Attempt | Completion | Egress | Capacity | Shipped
"""What is handed over."""
Stored = Intent | Progress | Attempt | Completion | ChainedEgress | Capacity | Shipped
"""What the tables take."""
Price = int | Priced | None
"""An attempt's cost in 1e-9 of the currency, or what a completion's price stands on."""

_RENAMED: Final[dict[tuple[type[msgspec.Struct], str], str]] = {(Intent, "road"): "road_decided"}
"""Fields whose column has another name; a completion has a `road` too."""


_PRICES: Final[dict[type[msgspec.Struct], dict[str, str]]] = {
    Attempt: {"cost_nano": "NEW.price"},
    Completion: {
        field.name: f"json_extract(NEW.price, '$.{field.name}')" for field in msgspec.structs.fields(Priced)
    },
}
"""Columns that a row's price fills."""


def _insert(kind: type[msgspec.Struct], table: str) -> str:
    names = [field.name for field in msgspec.structs.fields(kind)]
    prices = _PRICES.get(kind, {})
    columns = ", ".join([*(_RENAMED.get((kind, name), name) for name in names), *prices])
    values = ", ".join([*(f"json_extract(NEW.doc, '$.{name}')" for name in names), *prices.values()])
    return f"INSERT INTO {table} ({columns}) SELECT {values} WHERE true"


def _upsert(kind: type[msgspec.Struct], *, unless: str) -> str:
    """Insert the request, or fill in this part of it unless the column `unless` says it is there already."""
    names = [field.name for field in msgspec.structs.fields(kind)][1:]
    columns = [*(_RENAMED.get((kind, name), name) for name in names), *_PRICES.get(kind, ())]
    return (
        f"{_insert(kind, 'requests')} ON CONFLICT (request_id) DO UPDATE SET "
        f"{', '.join(f'{column} = excluded.{column}' for column in columns)} WHERE requests.{unless} IS NULL"
    )


_KINDS: Final[dict[type[msgspec.Struct], int]] = {
    Intent: 1,
    Progress: 2,
    Attempt: 3,
    Completion: 4,
    ChainedEgress: 5,
    Capacity: 6,
    Shipped: 10,
}
_AFTER_END: Final = 7
_ATTEMPT_AFTER_END: Final = 8
_ROLL: Final = 9
"""Not handed over: what the rows of such a kind stand for is in `_ACTIONS`."""

_ID: Final = "request_id = json_extract(NEW.doc, '$.request_id')"


def _number(which: str) -> str:
    """Give the request the next number, and the sums of its attempts, if it is as `which` says."""
    return (
        f"UPDATE shipping SET taken = taken + 1 WHERE EXISTS (SELECT 1 FROM requests WHERE {_ID} AND {which}); "  # noqa: S608
        f"UPDATE requests SET seq = (SELECT taken FROM shipping), {ledger_rollups.OF_ATTEMPTS} "
        f"WHERE {_ID} AND {which}"
    )


_LATE_INTENT: Final = "outcome IS NOT NULL AND admitted_ns IS NULL"
_LATE_ATTEMPT: Final = (
    "outcome IS NOT NULL AND NOT EXISTS (SELECT 1 FROM attempts AS a "
    "WHERE a.request_id = requests.request_id AND a.n = json_extract(NEW.doc, '$.n'))"
)
_ADD_ATTEMPT: Final = f"{_insert(Attempt, 'attempts')} ON CONFLICT (request_id, n) DO NOTHING"


def _if_late(kind: int, which: str) -> str:
    """A part that comes after the end, for a broken disk, makes it a record to be sent and summed up again.

    Few do: all there is to that hangs on one look, by way of a row of another kind.
    """
    late = f"EXISTS (SELECT 1 FROM requests WHERE {_ID} AND {which})"  # noqa: S608
    return f"INSERT INTO inbox SELECT {kind}, NEW.doc, NEW.price WHERE {late}"


_ACTIONS: Final[dict[int, str]] = {
    _KINDS[Intent]: f"{_if_late(_AFTER_END, _LATE_INTENT)}; {_upsert(Intent, unless='admitted_ns')}",
    _KINDS[Progress]: "UPDATE requests SET prompt_tokens = json_extract(NEW.doc, '$.prompt_tokens'), "
    "completion_tokens = json_extract(NEW.doc, '$.completion_tokens') "
    "WHERE request_id = json_extract(NEW.doc, '$.request_id') AND outcome IS NULL",
    _KINDS[Attempt]: f"{_if_late(_ATTEMPT_AFTER_END, _LATE_ATTEMPT)}; {_ADD_ATTEMPT}",
    _KINDS[
        Completion
    ]: f"{_upsert(Completion, unless='outcome')}; {_number('outcome IS NOT NULL AND seq IS NULL')}",
    # No conflict clause: an id that is already there is refused, and then nothing leaves under it.
    _KINDS[ChainedEgress]: _insert(ChainedEgress, "egress"),
    _KINDS[Shipped]: "UPDATE shipping SET shipped = max(shipped, json_extract(NEW.doc, '$.requests')), "
    "egress_shipped = max(egress_shipped, json_extract(NEW.doc, '$.egress')); "
    "INSERT INTO rejected SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), "
    "json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]') "
    "FROM json_each(NEW.doc, '$.rejected') WHERE true ON CONFLICT DO NOTHING",
    _KINDS[Capacity]: f"{_insert(Capacity, 'capacity')} ON CONFLICT (road, worker, from_ns) "
    "DO UPDATE SET to_ns = max(to_ns, excluded.to_ns)",
    _AFTER_END: f"{ledger_rollups.take_out(_ID)}; {_number('outcome IS NOT NULL')}",
    _ATTEMPT_AFTER_END: f"{ledger_rollups.take_out(_ID)}; {_ADD_ATTEMPT}; {_number('outcome IS NOT NULL')}",
    _ROLL: "; ".join(ledger_rollups.ROLL),
}

_PUT: Final = (
    "INSERT INTO inbox SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') "
    "FROM json_each(?)"
)

_encode = msgspec.json.Encoder().encode


def prepare(conn: sqlite3.Connection) -> None:
    """Give `conn` its inbox. It is temporary: the connection's own, no part of the file."""
    conn.execute("CREATE TEMP VIEW inbox AS SELECT 0 AS kind, '' AS doc, NULL AS price")
    for kind, action in _ACTIONS.items():
        conn.execute(
            f"CREATE TEMP TRIGGER inbox_{kind} INSTEAD OF INSERT ON inbox WHEN NEW.kind = {kind} BEGIN {action}; END"
        )


def put(conn: sqlite3.Connection, rows: Iterable[tuple[Stored, Price]]) -> None:
    """Write rows with their prices in their order, all or none; a transaction of its own unless one is open.

    Raises:
        sqlite3.OperationalError, sqlite3.DatabaseError: the file cannot be written.
        sqlite3.IntegrityError, UnicodeEncodeError: a row that no table can hold.
    """
    conn.execute(_PUT, (_encode([(_KINDS[type(row)], row, price) for row, price in rows]).decode(),))


def roll(conn: sqlite3.Connection) -> None:
    """Add to the sums what is not in them yet, in one statement as well.

    Raises:
        sqlite3.Error: nothing was added.
    """
    conn.execute("INSERT INTO inbox VALUES (?, NULL, NULL)", (_ROLL,))
