"""Rows that a broken disk refused, kept in memory until it takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from weighbridge.observability.records import Attempt, Capacity, Completion, Intent, Progress, Shipped

UsageRow = Intent | Progress | Attempt | Completion | Capacity | Shipped
Key = tuple[type, str, int]

NOTES = (Progress, Capacity, Shipped)
"""Rows of which the last one of a key counts. They are no records of their own: the next one tells as much and more."""


def key_of(row: UsageRow) -> Key:
    """What makes a row one row: the same key twice is the same record."""
    if isinstance(row, Shipped):
        return (Shipped, "", 0)
    if isinstance(row, Capacity):
        return (Capacity, f"{row.road}/{row.worker}", row.from_ns)
    return (type(row), row.request_id, row.n if type(row) is Attempt else 0)


class Backlog:
    """At most `limit` rows in order of arrival; the oldest go first. Not thread-safe: the writer's own.

    Egress rows are never here: an egress that could not be recorded did not happen.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: dict[Key, UsageRow] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def first(self, count: int) -> dict[Key, UsageRow]:
        return dict(islice(self._rows.items(), count))

    @property
    def records(self) -> int:
        """How many of the rows are records of their own."""
        return sum(kind not in NOTES for kind, *_ in self._rows)

    def get(self, key: Key) -> UsageRow | None:
        return self._rows.get(key)

    def add(self, rows: Mapping[Key, UsageRow]) -> tuple[int, int]:
        """Keep `rows`; the first of a key stays, but for notes, where the last one counts.

        Returns how many records are newly at risk and how many were dropped to stay within the limit; notes count in
        neither.
        """
        at_risk = 0
        for key, row in rows.items():
            if type(row) is Progress:
                if (Completion, row.request_id, 0) not in self._rows:
                    self._rows[key] = row
                continue
            if type(row) in NOTES:
                self._rows[key] = row
                continue
            if key in self._rows:
                continue
            at_risk += 1
            self._rows[key] = row
            if type(row) is Completion:
                self._rows.pop((Progress, row.request_id, 0), None)
        dropped = 0
        while len(self._rows) > self._limit:
            oldest = next(iter(self._rows))
            del self._rows[oldest]
            dropped += oldest[0] not in NOTES
        return at_risk, dropped

    def discard(self, keys: Iterable[Key]) -> None:
        """Forget rows that are on disk now."""
        if not self._rows:
            return
        for key in keys:
            self._rows.pop(key, None)
