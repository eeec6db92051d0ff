"""Reading the audit log, and recording what was refused without letting anybody fill the disk with it."""

from __future__ import annotations

import threading
from typing import Any, Final

import msgspec

from weighbridge.observability.egress_chain import START, Tip
from weighbridge.state.audit_chain import COLUMNS, AuditRow, Deed
from weighbridge.state.store import StateStore

REFUSALS_A_KEY: Final = 10
"""Refused attempts of one admin key that are recorded in an hour."""
REFUSALS_IN_ALL: Final = 100
"""The same for all keys together."""
_HOUR_NS: Final = 3_600 * 1_000_000_000

_COLUMNS: Final = ", ".join(f'"{name}"' for name in COLUMNS)
_SELECT: Final = (
    f"SELECT {_COLUMNS} FROM audit WHERE seq > ?1 AND (?3 IS NULL OR who = ?3) "  # noqa: S608
    "AND (?4 IS NULL OR action = ?4) AND at_ns >= ?5 AND at_ns < ?6 ORDER BY seq LIMIT ?2"
)
EVER: Final = (0, 2**63 - 1)
"""UTC nanoseconds that no row lies outside of."""


class AuditLog:
    """Any thread may call it.

    Args:
        store: the state file; the rows of changes are written there, with the changes themselves.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._hour = 0
        self._recorded: dict[str, int] = {}
        """Refusals of this hour that were recorded, by key."""
        self._left_out: dict[str, int] = {}
        """Refusals since the last one that was recorded, by key."""

    def page(
        self,
        after: int,
        limit: int,
        *,
        who: str | None = None,
        action: str | None = None,
        between_ns: tuple[int, int] = EVER,
    ) -> list[AuditRow]:
        """Rows above a number, in order, at most `limit`.

        Args:
            who: id of the admin key.
            between_ns: from, and before; UTC nanoseconds.

        Raises:
            StateUnavailable.
        """
        rows = self._store.rows(_SELECT, (after, limit, who, action, *between_ns))
        return [AuditRow(*row) for row in rows]

    def head(self) -> Tip:
        """The number and the link of the last row.

        Raises:
            StateUnavailable.
            ValueError: the link is damaged.
        """
        rows = self._store.rows("SELECT seq, chain FROM audit ORDER BY seq DESC LIMIT 1")
        return Tip(rows[0][0], bytes.fromhex(rows[0][1])) if rows else Tip(0, START)

    def counts(self, who: str) -> bool:
        """Whether a refusal of this key is one to be recorded. Costs no look at the disk."""
        with self._lock:
            hour = self._store.clock.wall_ns() // _HOUR_NS
            if hour != self._hour:
                self._hour = hour
                self._recorded.clear()
            of_key = self._recorded.get(who, 0)
            if of_key >= REFUSALS_A_KEY or sum(self._recorded.values()) >= REFUSALS_IN_ALL:
                self._left_out[who] = self._left_out.get(who, 0) + 1
                return False
            self._recorded[who] = of_key + 1
            return True

    def refused(self, who: str, target: str, needs: str) -> None:
        """Record an attempt that `counts`, with the number of those before it that did not.

        Args:
            target: what the attempt was made at.
            needs: the role that it takes.

        Raises:
            StateUnavailable.
        """
        with self._lock:
            left_out = self._left_out.pop(who, 0)
        told: dict[str, Any] = {"needs": needs}
        if left_out:
            told["not_recorded_before"] = left_out
        at_ns = self._store.clock.wall_ns()
        with self._store.writing() as conn:
            self._store.audited(conn, at_ns, Deed(who, target, None, told, outcome="refused"))


def value_of(text: str) -> Any:
    """What a row's `before` or `after` holds."""
    return msgspec.json.decode(text)
