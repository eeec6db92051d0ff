"""Deleting usage records that are old enough, a little at a time."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable
from typing import Final

from weighbridge.observability.sqlite_file import transaction

log = logging.getLogger("weighbridge.ledger")

STEP: Final = 200
"""Requests deleted at a time: some milliseconds, for which nobody's row is written."""

LOOK: Final = 2_000
"""Requests looked at for that: some milliseconds as well."""

PAUSE_S: Final = 0.1
REST_S: Final = 60.0
"""Seconds between two steps while there is more to delete, and while there is not."""

_DAY_NS: Final = 86_400_000_000_000


def prune(
    conn: sqlite3.Connection, before_ns: int, *, keep_unshipped: bool, most: int = STEP, behind: int = 0
) -> int:
    """Delete requests that ended before `before_ns`, with their attempts; those that ended first go first.

    Not those that are not added up yet, nor those that the collector would not take: nobody else has them. Egress rows
    stay: each is tied to the one before it, and an auditor's record has no gaps. A request under way is never touched.

    Args:
        keep_unshipped: leave what has not arrived at the collector, however old.
        most: how many requests to delete.
        behind: look at the `LOOK` requests behind this number.

    Returns:
        How many were deleted; fewer than `most` when there are no more among those looked at.

    Raises:
        sqlite3.Error: nothing was deleted.
    """
    upto = "min(rolled, shipped)" if keep_unshipped else "rolled"
    with transaction(conn):
        # In the order of their numbers, which is that of their ends but for records that were sent again and clocks
        # that were set. The limit within bounds what is read where nothing is found.
        found = conn.execute(
            f"SELECT request_id FROM (SELECT request_id, ended_ns, seq FROM requests "  # noqa: S608
            f"WHERE seq > ? AND seq <= (SELECT {upto} FROM shipping) ORDER BY seq LIMIT {LOOK}) AS r "
            f"WHERE ended_ns < ? AND NOT EXISTS (SELECT 1 FROM rejected AS x "
            f"WHERE x.stream = 'requests' AND x.id = r.request_id AND x.seq = r.seq) LIMIT ?",
            (behind, before_ns, most),
        ).fetchall()
        if found:
            ids = json.dumps([row[0] for row in found])
            for table in ("attempts", "requests"):
                conn.execute(
                    f"DELETE FROM {table} WHERE request_id IN (SELECT value FROM json_each(?))",  # noqa: S608
                    (ids,),
                )
    return len(found)


def _further(conn: sqlite3.Connection, behind: int) -> int:
    """Behind which number to look after those that `prune` looks at behind `behind`; 0 when they are the last."""
    row = conn.execute(
        "SELECT seq FROM requests WHERE seq > ? ORDER BY seq LIMIT 1 OFFSET ?", (behind, LOOK - 1)
    ).fetchone()
    return 0 if row is None else int(row[0])


class Retention:
    """When the next step is due, and the step.

    What can go is nearly always among the first. Those may all have to stay, though: refused by the collector, or
    ended in the future by a clock that was wrong. So a second look goes through all the others, a part each step.

    Args:
        days: how long records are kept after their end.
        wall_ns: the time now, UTC nanoseconds.
        keep_unshipped: as `prune`.
    """

    def __init__(self, days: float, wall_ns: Callable[[], int], *, keep_unshipped: bool) -> None:
        self._kept_ns = round(days * _DAY_NS)
        self._wall_ns = wall_ns
        self._keep_unshipped = keep_unshipped
        self._behind = 0
        self._due = 0.0
        self._failing = False

    def due_in_s(self, now: float) -> float:
        """Seconds until the next step; `now` in monotonic seconds."""
        return max(0.0, self._due - now)

    def step(self, conn: sqlite3.Connection, now: float) -> None:
        """Delete some. A file that cannot be written is tried again later."""
        self._due = now + REST_S
        try:
            more = self._prune(conn, 0) or self._look_further(conn)
        except sqlite3.Error as exc:
            if not self._failing:
                log.warning("old usage records cannot be deleted at the moment (%s)", type(exc).__name__)
            self._failing = True
            return
        self._failing = False
        if more:
            self._due = now + PAUSE_S

    def _look_further(self, conn: sqlite3.Connection) -> bool:
        self._behind = self._behind or _further(conn, 0)
        if not self._behind:
            return False
        then = _further(conn, self._behind)
        more = self._prune(conn, self._behind)
        if not more:
            self._behind = then
        return more

    def _prune(self, conn: sqlite3.Connection, behind: int) -> bool:
        """Whether there is more to delete at once."""
        before_ns = self._wall_ns() - self._kept_ns
        return prune(conn, before_ns, keep_unshipped=self._keep_unshipped, behind=behind) == STEP
