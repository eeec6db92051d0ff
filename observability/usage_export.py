"""Raw records for whoever wants to reckon anew: one JSON object a line, ids and numbers only.

The first line says what the file holds. Then come the requests with their attempts, attempts whose request has no row,
the periods in which workers were up, and what was sent outwards (without address or content).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import msgspec

from weighbridge.observability.savings_report import Window

FORM: Final = 1
"""Of the lines; a change of their fields makes it higher."""

_REQUEST: Final = (
    "request_id",
    "admitted_ns",
    "ended_ns",
    "tenant",
    "key_id",
    "model_requested",
    "stream",
    "road_decided",
    "road",
    "score",
    "p_8b_fails",
    "p_70b_fails",
    "task",
    "policy_version",
    "calibration_version",
    "outcome",
    "status",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "tokens_exact",
    "queue_ms",
    "ttft_ms",
    "tpot_ms",
    "total_ms",
    "currency",
    "price_version",
    "cost_nano",
    "counterfactual_nano",
)
_ATTEMPT: Final = (
    "request_id",
    "n",
    "road",
    "backend",
    "model",
    "started_ns",
    "ended_ns",
    "outcome",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "queue_ms",
    "egress_id",
    "worker_us",
    "cost_nano",
)
_CAPACITY: Final = ("road", "worker", "from_ns", "to_ns", "slots")
_EGRESS: Final = ("egress_id", "request_id", "attempt", "at_ns", "reason", "body_bytes")

_AT: Final = "coalesce(r.admitted_ns, r.ended_ns, 0)"
_LARGEST: Final = 2**63 - 1


def _columns(table: str, names: tuple[str, ...]) -> str:
    return ", ".join(f"{table}.{name}" for name in names)


_REQUESTS: Final = f"""SELECT {_columns("r", _REQUEST)}, {_columns("a", _ATTEMPT)}
FROM requests AS r LEFT JOIN attempts AS a ON a.request_id = r.request_id
WHERE {_AT} >= ? AND {_AT} < ? ORDER BY r.request_id, a.n"""  # noqa: S608
_ORPHANS: Final = f"""SELECT {_columns("a", _ATTEMPT)} FROM attempts AS a
WHERE coalesce(a.started_ns, 0) >= ? AND coalesce(a.started_ns, 0) < ?
AND NOT EXISTS (SELECT 1 FROM requests AS r WHERE r.request_id = a.request_id)"""  # noqa: S608
_CAPACITIES: Final = f"SELECT {_columns('c', _CAPACITY)} FROM capacity AS c WHERE to_ns > ? AND from_ns < ?"  # noqa: S608
_SENT: Final = f"""SELECT {_columns("e", _EGRESS)} FROM egress AS e JOIN requests AS r ON r.request_id = e.request_id
WHERE {_AT} >= ? AND {_AT} < ? ORDER BY e.seq"""  # noqa: S608


def export(conn: sqlite3.Connection, window: Window) -> Iterator[bytes]:
    """The lines, each with its line end, of one moment of the ledger.

    Raises:
        sqlite3.Error: the file cannot be read, or is of a version before costs were recorded.
    """
    bounds = (window.since_ns or 0, _LARGEST if window.until_ns is None else window.until_ns)
    conn.execute("BEGIN")
    try:
        yield _line("export", {"form": FORM, "since_ns": window.since_ns, "until_ns": window.until_ns})
        for _, group in groupby(_rows(conn, _REQUESTS, bounds), key=itemgetter(0)):
            rows = list(group)
            tried = [row[len(_REQUEST) :] for row in rows]
            attempts = [_object(_ATTEMPT, row) for row in tried if row[0] is not None]
            yield _line("request", _object(_REQUEST, rows[0]) | {"attempts": attempts})
        for kind, statement, names in (
            ("attempt", _ORPHANS, _ATTEMPT),
            ("capacity", _CAPACITIES, _CAPACITY),
            ("egress", _SENT, _EGRESS),
        ):
            for row in _rows(conn, statement, bounds):
                yield _line(kind, _object(names, row))
    finally:
        conn.execute("COMMIT")


def _rows(conn: sqlite3.Connection, statement: str, bounds: tuple[int, int]) -> Iterator[tuple[Any, ...]]:
    cursor = conn.cursor()
    cursor.row_factory = None
    return cursor.execute(statement, bounds)


def _object(names: tuple[str, ...], row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(names, row, strict=False))


def _line(kind: str, fields: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"record": kind, **fields}) + b"\n"
