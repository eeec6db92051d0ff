"""The usage report: what was asked and what was booked for it, out of the sums that the ledger's writer keeps."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Any, Final, Literal, NamedTuple

import msgspec

from weighbridge.config.exact import instant
from weighbridge.observability.savings_report import NS_PER_DAY, day_text
from weighbridge.observability.usage_read import attempt_usage, usage

Key = Literal["day", "tenant", "road", "task"]
KEYS: Final[tuple[Key, ...]] = ("day", "tenant", "road", "task")


class Days(NamedTuple):
    """Whole UTC days, as `2026-01-31`; the last one is not in it. None: no bound."""

    since: str | None = None
    until: str | None = None


class UsageRow(msgspec.Struct, frozen=True):
    """Finished requests of one kind. Keys that were not asked for are None."""

    day: str | None
    """UTC day of the admission."""
    tenant: str | None
    road: str | None
    """The road that answered, or the last one tried."""
    task: str | None
    currency: str
    """Empty for requests that were never priced."""
    requests: int
    answered: int
    """With a whole answer."""
    attempts: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_nano: int
    """Booked cost of all their attempts, in 1e-9 of the currency."""
    counterfactual_nano: int
    """What the whole answers would have cost at the model the book compares with."""


class UsageReport(msgspec.Struct, frozen=True):
    """Sums by what was asked for."""

    by: tuple[Key, ...]
    since: str | None
    until: str | None
    rows: list[UsageRow]
    total: list[UsageRow]
    """One for each currency."""
    price_versions: list[str]
    """The price books that the costs were booked by."""
    unpriced_attempts: int
    """Attempts of those days without a cost: they are not in the sums."""


def read_usage(conn: sqlite3.Connection, by: tuple[Key, ...], days: Days = Days()) -> UsageReport:  # noqa: B008
    """The sums of some days, of one moment of the ledger.

    Raises:
        sqlite3.Error: the file cannot be read, or is of a version before sums were kept.
    """
    if days.since is not None and days.until is not None and days.since >= days.until:
        return UsageReport(by, days.since, days.until, [], [], [], 0)
    first, last = days.since or "", "~" if days.until is None else _day_before(days.until)
    conn.execute("BEGIN")
    try:
        found = usage(conn, first, last, (*by, "outcome", "price_version"))
        tried = attempt_usage(conn, first, last, ())
    finally:
        conn.execute("COMMIT")
    return UsageReport(
        by=by,
        since=days.since,
        until=days.until,
        rows=_rows(found, by),
        total=_rows(found, ()),
        price_versions=sorted({row["price_version"] for row in found} - {""}),
        unpriced_attempts=sum(row["unpriced"] for row in tried),
    )


def _day_before(day: str) -> str:
    return day_text(instant(day) // NS_PER_DAY - 1)


def _rows(found: list[dict[str, Any]], by: tuple[Key, ...]) -> list[UsageRow]:
    """The sums without outcome and price version."""
    sums: dict[tuple[str, ...], Counter[str]] = {}
    for row in found:
        held = sums.setdefault((*(row[key] for key in by), row["currency"]), Counter())
        held.update({name: row[name] for name in _SUMS})
        held["answered"] += row["requests"] if row["outcome"] == "ok" else 0
    made = []
    for key, held in sorted(sums.items()):
        # Sums that went back to nothing stay in the ledger.
        if held["requests"]:
            names = dict(zip(by, key, strict=False))
            made.append(
                UsageRow(
                    day=names.get("day"),
                    tenant=names.get("tenant"),
                    road=names.get("road"),
                    task=names.get("task"),
                    currency=key[-1],
                    answered=held["answered"],
                    **{name: held[name] for name in _SUMS},
                )
            )
    return made


_SUMS: Final = (
    "requests",
    "attempts",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "cost_nano",
    "counterfactual_nano",
)
