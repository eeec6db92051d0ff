"""The ledger's rows as the savings report takes them, in one look at the file, beside a gateway that writes it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from weighbridge.observability.costs import CostTable
from weighbridge.observability.savings import Tally
from weighbridge.observability.savings_report import (
    NS_PER_DAY,
    AttemptRow,
    CapacityRow,
    RequestRow,
    SavingsReport,
    Window,
    day_text,
)
from weighbridge.observability.usage_read import usage

_AT: Final = "coalesce(r.admitted_ns, r.ended_ns, 0)"

_ATTEMPT: Final = """a.road, coalesce(a.backend, ''), coalesce(a.model, ''), coalesce(a.started_ns, 0),
    coalesce(a.outcome, ''), coalesce(a.egress_id, ''), coalesce(a.prompt_tokens, 0), coalesce(a.cached_tokens, 0),
    coalesce(a.completion_tokens, 0), a.worker_us"""

# Both tables lie in the order of their ids, so that this reads each once and sorts nothing.
_REQUESTS: Final = f"""SELECT r.request_id, {_AT}, coalesce(r.tenant, ''),
    coalesce(r.road, r.road_decided, ''), r.outcome, coalesce(r.prompt_tokens, 0), coalesce(r.cached_tokens, 0),
    coalesce(r.completion_tokens, 0), r.currency, r.price_version, r.cost_nano, {_ATTEMPT}
FROM requests AS r LEFT JOIN attempts AS a ON a.request_id = r.request_id
WHERE r.request_id >= ? AND {_AT} >= ? AND {_AT} < ? ORDER BY r.request_id, a.n"""  # noqa: S608
_REQUEST_COLUMNS: Final = 11

_ORPHANS: Final = f"""SELECT {_ATTEMPT} FROM attempts AS a
WHERE coalesce(a.started_ns, 0) >= ? AND coalesce(a.started_ns, 0) < ?
AND NOT EXISTS (SELECT 1 FROM requests AS r WHERE r.request_id = a.request_id)"""  # noqa: S608

_CAPACITY: Final = "SELECT road, worker, from_ns, to_ns FROM capacity WHERE to_ns > ? AND from_ns < ?"

# A request under way has no attempt row yet and will get one.
_SENT: Final = f"""SELECT e.request_id FROM egress AS e JOIN requests AS r ON r.request_id = e.request_id
WHERE {_AT} >= ? AND {_AT} < ? AND r.outcome IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM attempts AS a WHERE a.request_id = e.request_id AND a.n = e.attempt)"""  # noqa: S608

_LARGEST: Final = 2**63 - 1


def read_savings(conn: sqlite3.Connection, table: CostTable, window: Window) -> SavingsReport:
    """The report of a window, of one moment of the ledger.

    Raises:
        sqlite3.Error: the file cannot be read, or is of a version before costs were recorded.
    """
    since = window.since_ns or 0
    bounds = (since, _LARGEST if window.until_ns is None else window.until_ns)
    tally = Tally(table, window)
    conn.execute("BEGIN")
    try:
        # Few: one for each gateway that died at such a moment.
        forgotten = [request_id for (request_id,) in _rows(conn, _SENT, bounds)]
        tally.gaps.sent_without_record = len(forgotten)
        without_record = set(forgotten)
        for request_id, request, attempts in _requests(conn, (_first_id(since), *bounds)):
            tally.request(request, attempts, forgotten=request_id in without_record)
        for row in _rows(conn, _ORPHANS, bounds):
            tally.orphan(AttemptRow(*row))
        for row in _rows(conn, _CAPACITY, bounds):
            tally.capacity(CapacityRow(*row))
        tally.gaps.deleted = _deleted(conn, tally, window)
    finally:
        conn.execute("COMMIT")
    return tally.report()


def _requests(
    conn: sqlite3.Connection, bounds: tuple[str, int, int]
) -> Iterator[tuple[str, RequestRow, list[AttemptRow]]]:
    for request_id, group in groupby(_rows(conn, _REQUESTS, bounds), key=itemgetter(0)):
        rows = list(group)
        attempts = [AttemptRow(*row[_REQUEST_COLUMNS:]) for row in rows if row[_REQUEST_COLUMNS] is not None]
        yield request_id, RequestRow(*rows[0][1:_REQUEST_COLUMNS]), attempts


def _rows(conn: sqlite3.Connection, statement: str, bounds: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    cursor = conn.cursor()
    cursor.row_factory = None
    return cursor.execute(statement, bounds)


def _first_id(since_ns: int) -> str:
    """No request admitted since then has a lower id.

    Ids begin with the millisecond they were made in, at most a day (the longest a request may take) before admission.
    So the rows before need not be read.
    """
    ms = max(0, since_ns - 2 * NS_PER_DAY) // 1_000_000
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}"


def _deleted(conn: sqlite3.Connection, tally: Tally, window: Window) -> int:
    """How many requests the sums hold beyond those that were read; of whole days, since sums are kept by the day."""
    first = 0 if window.since_ns is None else -(-window.since_ns // NS_PER_DAY)
    after = _LARGEST // NS_PER_DAY if window.until_ns is None else window.until_ns // NS_PER_DAY
    last = "~" if window.until_ns is None else day_text(after - 1)
    if first >= after:
        return 0
    summed: int = sum(row["requests"] for row in usage(conn, day_text(first), last, ()))
    return max(0, summed - sum(count for day, count in tally.ended.items() if first <= day < after))
