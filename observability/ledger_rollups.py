"""Sums over finished requests, kept in the commit that ends them, so that nobody has to read ten million rows.

`rollups` holds the requests by day, tenant, road, task, outcome, currency and price version; `attempt_rollups` their
attempts by day, tenant, road, backend, model, outcome and currency. A request's day is the UTC day of its admission, an
attempt's the UTC day it began. Durations are summed in whole microseconds: floating sums depend on their order, and
could not be taken back.

`shipping.rolled` is the number up to which requests are in the sums. Every end of a request takes the next number, and
a part that comes late takes one anew: so what a commit has to add is all above `rolled`, and before a late part
changes a request that is in the sums already, it is taken out of them (`take_out`).
"""

from __future__ import annotations

import sqlite3
from typing import Final

_MOST_MS: Final = "1e9"
"""Eleven days; a longer duration is nonsense, and must not overflow a sum."""


def _us(column: str) -> str:
    return f"coalesce(CAST(round(min(max({column}, 0), {_MOST_MS}) * 1000) AS INTEGER), 0)"


def _day(ns: str) -> str:
    return f"coalesce(strftime('%Y-%m-%d', {ns} / 1000000000, 'unixepoch'), '')"


_ADMITTED: Final = (
    "coalesce(r.admitted_ns, r.ended_ns - CAST(coalesce(r.total_ms, 0) * 1000000 AS INTEGER), 0)"
)

_TABLES: Final[dict[str, tuple[str, dict[str, str], dict[str, str]]]] = {
    "rollups": (
        "requests AS r",
        {
            "day": _day(_ADMITTED),
            "tenant": "coalesce(r.tenant, '')",
            "road": "coalesce(r.road, '')",
            "task": "coalesce(r.task, '')",
            "outcome": "coalesce(r.outcome, '')",
            "currency": "coalesce(r.currency, '')",
            "price_version": "coalesce(r.price_version, '')",
        },
        {
            "requests": "1",
            "estimated": "coalesce(r.tokens_exact = 0, 0)",
            "attempts": "coalesce(r.attempts, 0)",
            "prompt_tokens": "coalesce(r.prompt_tokens, 0)",
            "cached_tokens": "coalesce(r.cached_tokens, 0)",
            "completion_tokens": "coalesce(r.completion_tokens, 0)",
            "queue_us": _us("r.queue_ms"),
            "with_ttft": "r.ttft_ms IS NOT NULL",
            "ttft_us": _us("r.ttft_ms"),
            "total_us": _us("r.total_ms"),
            "worker_us": "coalesce(r.worker_us, 0)",
            "cost_nano": "coalesce(r.cost_nano, 0)",
            "counterfactual_nano": "coalesce(r.counterfactual_nano, 0)",
        },
    ),
    "attempt_rollups": (
        "requests AS r JOIN attempts AS a ON a.request_id = r.request_id",
        {
            "day": _day("coalesce(a.started_ns, 0)"),
            "tenant": "coalesce(r.tenant, '')",
            "road": "coalesce(a.road, '')",
            "backend": "coalesce(a.backend, '')",
            "model": "coalesce(a.model, '')",
            "outcome": "coalesce(a.outcome, '')",
            "currency": "coalesce(r.currency, '')",
        },
        {
            "attempts": "1",
            "unpriced": "a.cost_nano IS NULL",
            "prompt_tokens": "coalesce(a.prompt_tokens, 0)",
            "cached_tokens": "coalesce(a.cached_tokens, 0)",
            "completion_tokens": "coalesce(a.completion_tokens, 0)",
            "worker_us": "coalesce(a.worker_us, 0)",
            "cost_nano": "coalesce(a.cost_nano, 0)",
        },
    ),
}

KEYS: Final = {table: tuple(keys) for table, (_, keys, _) in _TABLES.items()}
"""What each table sums by: its primary key."""
SUMS: Final = {table: tuple(sums) for table, (_, _, sums) in _TABLES.items()}
"""What each table sums."""

CREATE: Final = (
    *(
        f"CREATE TABLE {table} ({', '.join(f'{key} TEXT NOT NULL' for key in KEYS[table])}, "
        f"{', '.join(f'{name} INTEGER NOT NULL' for name in SUMS[table])}, "
        f"PRIMARY KEY ({', '.join(KEYS[table])})) WITHOUT ROWID"
        for table in _TABLES
    ),
    "ALTER TABLE shipping ADD COLUMN rolled INTEGER NOT NULL DEFAULT 0",
)


def _add(table: str, which: str, sign: str = "") -> str:
    source, keys, sums = _TABLES[table]
    return (
        f"INSERT INTO {table} ({', '.join((*keys, *sums))}) "  # noqa: S608
        f"SELECT {', '.join(keys.values())}, {', '.join(f'{sign}sum({value})' for value in sums.values())} "
        f"FROM {source} WHERE {which} GROUP BY {', '.join(str(n) for n in range(1, len(keys) + 1))} "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(f'{n} = {n} + excluded.{n}' for n in sums)}"
    )


_NEW: Final = "seq > (SELECT rolled FROM shipping)"

_COST: Final = f"""UPDATE requests SET (worker_us, cost_nano) = (
    SELECT coalesce(sum(a.worker_us), 0), coalesce(sum(a.cost_nano), CASE WHEN requests.currency IS NOT NULL
        AND count(*) = 0 THEN 0 END) FROM attempts AS a WHERE a.request_id = requests.request_id
) WHERE {_NEW}"""  # noqa: S608

FILL: Final = (
    *(_add(table, f"r.{_NEW}") for table in _TABLES),
    "UPDATE shipping SET rolled = taken",
)
"""Adds what is not in the sums yet."""

ROLL: Final = (_COST, *FILL)
"""`FILL`, after each of those requests got the sum of its attempts' cost and worker time."""

ANY: Final = "(SELECT taken > rolled FROM shipping)"
"""Whether there is anything to add."""


def take_out(which: str) -> str:
    """SQL that takes requests out of the sums before they change.

    Args:
        which: an SQL condition on the table `requests`.
    """
    # By an id: SQLite must not look for it in the whole table.
    rolled = f"r.request_id IN (SELECT request_id FROM requests WHERE {which} AND NOT {_NEW})"  # noqa: S608
    return "; ".join(_add(table, rolled, "-") for table in _TABLES)


def roll(conn: sqlite3.Connection) -> None:
    """Add what is not in the sums yet, in the transaction that is open."""
    for statement in ROLL:
        conn.execute(statement)
