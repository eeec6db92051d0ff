"""Sums over finished requests, kept by the ledger's thread, so that nobody has to read ten million rows.

The view `rollups` has the requests by day, tenant, road, task, outcome, currency and price version; `attempt_rollups`
their attempts by day, tenant, road, backend, model, outcome and currency. A combination may have several rows, which
add up. A request's day is the UTC day of its admission, an attempt's the UTC day it began. Durations are whole
microseconds: floating sums depend on their order, and could not be taken back.

What is added up already stands in the tables `rolled_requests` and `rolled_attempts`, and `shipping.rolled` says up to
which number that is. Every end of a request takes the next number, and a part that comes late takes one anew: so what
is to be added is all above it, and before a late part changes a request that is in the sums, it is taken out of them
(`take_out`). They are added some hundreds at a time, which costs each a fraction of what it would alone; the views have
the few that are not, from the rows themselves, and so are exact at any moment.
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

_VIEWS: Final[dict[str, tuple[str, dict[str, str], dict[str, str]]]] = {
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

_HELD: Final = {"rollups": "rolled_requests", "attempt_rollups": "rolled_attempts"}
"""The table behind each view."""

KEYS: Final = {view: tuple(keys) for view, (_, keys, _) in _VIEWS.items()}
"""What each view sums by."""
SUMS: Final = {view: tuple(sums) for view, (_, _, sums) in _VIEWS.items()}
"""What each view sums; the first one counts."""

_NEW: Final = "seq > (SELECT rolled FROM shipping)"


def _since(view: str) -> str:
    source, keys, sums = _VIEWS[view]
    columns = ", ".join(f"{value} AS {name}" for name, value in (keys | sums).items())
    return f"SELECT {columns} FROM {source} WHERE r.{_NEW}"  # noqa: S608


CREATE: Final = (
    *(
        f"CREATE TABLE {_HELD[view]} ({', '.join(f'{key} TEXT NOT NULL' for key in KEYS[view])}, "
        f"{', '.join(f'{name} INTEGER NOT NULL' for name in SUMS[view])}, "
        f"PRIMARY KEY ({', '.join(KEYS[view])})) WITHOUT ROWID"
        for view in _VIEWS
    ),
    "ALTER TABLE shipping ADD COLUMN rolled INTEGER NOT NULL DEFAULT 0",
    *(
        f"CREATE VIEW {view} AS SELECT * FROM {_HELD[view]} WHERE {SUMS[view][0]} > 0 UNION ALL {_since(view)}"  # noqa: S608
        for view in _VIEWS
    ),
)


def _add(view: str, which: str, sign: str = "") -> str:
    source, keys, sums = _VIEWS[view]
    return (
        f"INSERT INTO {_HELD[view]} ({', '.join((*keys, *sums))}) "  # noqa: S608
        f"SELECT {', '.join(keys.values())}, {', '.join(f'{sign}sum({value})' for value in sums.values())} "
        f"FROM {source} WHERE {which} GROUP BY {', '.join(str(n) for n in range(1, len(keys) + 1))} "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(f'{n} = {n} + excluded.{n}' for n in sums)}"
    )


OF_ATTEMPTS: Final = """(worker_us, cost_nano) = (
    SELECT coalesce(sum(a.worker_us), 0),
        coalesce(sum(a.cost_nano), CASE WHEN requests.currency IS NOT NULL AND count(*) = 0 THEN 0 END)
    FROM attempts AS a WHERE a.request_id = requests.request_id
)"""
"""For an UPDATE of requests: the sums of their attempts. One whose attempts have no price has none either."""

_MOST: Final = 100_000
"""Requests added at a time at most: sorted in memory, whatever the number that an older program has left."""

ROLL: Final = (
    *(_add(view, f"r.{_NEW} AND r.seq <= (SELECT rolled + {_MOST} FROM shipping)") for view in _VIEWS),  # noqa: S608
    f"UPDATE shipping SET rolled = min(taken, rolled + {_MOST})",  # noqa: S608
)
"""Adds what is not in the sums yet, or the first of it."""


def take_out(which: str) -> str:
    """SQL that takes requests out of the sums before they change.

    Args:
        which: an SQL condition on the table `requests` that names one.
    """
    # By an id: SQLite must not look for it in the whole table.
    rolled = f"r.request_id IN (SELECT request_id FROM requests WHERE {which} AND NOT {_NEW})"  # noqa: S608
    return "; ".join(_add(view, rolled, "-") for view in _VIEWS)


def roll(conn: sqlite3.Connection) -> None:
    """Add all that is not in the sums yet, in the transaction that is open."""
    while conn.execute("SELECT rolled < taken FROM shipping").fetchone()[0]:
        for statement in ROLL:
            conn.execute(statement)
