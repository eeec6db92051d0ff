"""Reading the ledger's sums: how much was used by whom, answered from the rollups whatever the number of requests."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from weighbridge.observability.ledger_rollups import KEYS, SUMS
from weighbridge.observability.records import Capacity

_WHOLE = 10**9
"""Amounts are added in two halves, units and billionths: years of them may be more than SQLite's 64 bits hold."""


def usage(
    conn: sqlite3.Connection, since_day: str, until_day: str, by: Sequence[str]
) -> list[dict[str, Any]]:
    """Finished requests, summed.

    Args:
        since_day, until_day: UTC days of admission as `2026-11-30`, both included.
        by: columns to sum by, out of day, tenant, road, task, outcome and price_version; the currency is always one.
            An empty one stands for what is not known.

    Returns:
        A row for each combination that there is, in the order of `by`: its columns, `currency` (empty where no prices
        applied), and the sums, all integers. Durations are microseconds (`ttft_us` over `with_ttft` requests),
        `estimated` is how many requests have tokens that no backend counted, money is in 1e-9 of the currency.

    Raises:
        ValueError: there is no such column.
    """
    return _sums(conn, "rollups", since_day, until_day, by)


def attempt_usage(
    conn: sqlite3.Connection, since_day: str, until_day: str, by: Sequence[str]
) -> list[dict[str, Any]]:
    """The attempts of finished requests, summed; as `usage`.

    A request that changed its road has attempts on several, and each counts where it ran: this is what fits a worker's
    time or a provider's bill.

    Args:
        since_day, until_day: UTC days on which attempts began.
        by: out of day, tenant, road, backend, model and outcome.
    """
    return _sums(conn, "attempt_rollups", since_day, until_day, by)


def capacity(conn: sqlite3.Connection, from_ns: int, to_ns: int) -> list[Capacity]:
    """The periods in which workers were up, cut to the one asked for; by road, worker and time."""
    rows = conn.execute(
        "SELECT road, worker, max(from_ns, :from_ns), min(to_ns, :to_ns), slots FROM capacity "
        "WHERE from_ns < :to_ns AND to_ns > :from_ns ORDER BY 1, 2, 3",
        {"from_ns": from_ns, "to_ns": to_ns},
    )
    return [Capacity(*row) for row in rows]


def _sums(
    conn: sqlite3.Connection, view: str, since_day: str, until_day: str, by: Sequence[str]
) -> list[dict[str, Any]]:
    unknown = [name for name in by if name not in KEYS[view]]
    if unknown:
        raise ValueError(f"usage is not kept by {', '.join(unknown)}")
    keys = [*by, *({"currency"} - {*by})]
    sums = SUMS[view]
    columns: list[str] = []
    for name in sums:
        halves = (f"{name} / {_WHOLE}", f"{name} % {_WHOLE}") if name.endswith("_nano") else (name,)
        columns += [f"sum({half})" for half in halves]
    named = ", ".join(keys)
    found = conn.execute(
        f"SELECT {named}, {', '.join(columns)} FROM {view} WHERE day BETWEEN ? AND ? "  # noqa: S608
        f"GROUP BY {named} ORDER BY {named}",
        (since_day, until_day),
    )
    return [_row(keys, sums, tuple(row)) for row in found]


def _row(keys: Sequence[str], sums: Sequence[str], values: tuple[Any, ...]) -> dict[str, Any]:
    left = iter(values)
    row = {name: next(left) for name in keys}
    for name in sums:
        row[name] = next(left) * _WHOLE + next(left) if name.endswith("_nano") else next(left)
    return row
