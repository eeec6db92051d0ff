"""The kill switch of egress: thrown by an administrator or by a file, it lets nothing leave from that moment on."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from weighbridge.observability.metrics import Metrics
from weighbridge.state.audit_chain import Deed
from weighbridge.state.store import StateStore, StateUnavailable

log = logging.getLogger(__name__)

Setting = Literal["never", "policy"]
"""`never`: nothing leaves. `policy`: what the policy says."""

By = Literal["admin", "file", "unreadable"]
"""What has thrown the switch. unreadable: whether it is thrown cannot be told, so it counts as thrown."""

WATCH_S: Final = 1.0
"""Seconds between two looks at the file for log and metrics; a request looks for itself."""


@dataclass(frozen=True, slots=True)
class SwitchEntry:
    """One setting by an administrator.

    Args:
        id: counts up from 1.
        at_ns: nanoseconds since 1970, UTC.
        who: the admin key's id.
        why: what the administrator gave as the reason.
        egress: `never` or `policy`.
    """

    id: int
    at_ns: int
    who: str
    why: str
    egress: str


class EgressSwitch:
    """What an administrator has set, durable, and a file that throws the switch by being there.

    Args:
        store: the state file.
        file: path of the file; None looks at none. A folder of it that is not there counts as thrown.
        metrics: shows whether it is thrown; None shows nothing.
    """

    def __init__(self, store: StateStore, file: Path | None, metrics: Metrics | None = None) -> None:
        self._store = store
        self._file = file
        self._metrics = metrics
        self._seen: By | None = None
        self._setting = threading.Lock()
        self._throws = 0
        """How often an administrator has thrown it since the start."""
        try:
            rows = store.rows("SELECT egress FROM egress_switch ORDER BY id DESC LIMIT 1")
        except StateUnavailable:
            self._admin: By | None = "unreadable"
        else:
            self._admin = "admin" if rows and rows[0][0] != "policy" else None
        self.by()

    def thrown(self) -> bool:
        """Whether nothing may leave at this moment. Looks at the file itself (one `lstat`)."""
        return self.by() is not None

    def by(self) -> By | None:
        """What has thrown it; None while the policy decides."""
        found = self._admin or self._by_file()
        if found != self._seen:
            self._told(found)
        return found

    def set(self, egress: Setting, who: str, why: str) -> SwitchEntry:
        """Throw or lift the switch, and keep that. Blocks while it is written to disk.

        Throwing works at once, whatever the disk does; lifting only once it is kept. The file goes on counting.

        Raises:
            StateUnavailable: it could not be kept. Nothing leaves if `egress` is `never`; else nothing has changed.
            ValueError: a text is not proper Unicode; as above.
        """
        if egress == "never":
            self._throws += 1
            self._admin = "admin"
            self.by()
        throws = self._throws
        with self._setting:
            entry = self._keep(egress, who, why)
            if egress == "never":
                # Again: the lock may have let somebody's lifting go first.
                self._admin = "admin"
            elif self._throws == throws:
                # Else somebody throws it meanwhile, and theirs will be the last entry.
                self._admin = None
        self.by()
        return entry

    def _keep(self, egress: Setting, who: str, why: str) -> SwitchEntry:
        at_ns = self._store.clock.wall_ns()
        with self._store.writing() as conn:
            before = conn.execute("SELECT egress FROM egress_switch ORDER BY id DESC LIMIT 1").fetchone()
            number = conn.execute(
                "INSERT INTO egress_switch (at_ns, who, why, egress) VALUES (?, ?, ?, ?)",
                (at_ns, who, why, egress),
            ).lastrowid
            was = {"egress": before[0] if before else "policy"}
            self._store.audited(conn, at_ns, Deed(who, "egress switch", was, {"egress": egress}, why))
        return SwitchEntry(number or 0, at_ns, who, why, egress)

    def history(self, after: int = 0, limit: int = -1) -> list[SwitchEntry]:
        """The settings by administrators above an id, the oldest first, at most `limit`; all of them without one.

        Raises:
            StateUnavailable.
        """
        rows = self._store.rows(
            "SELECT id, at_ns, who, why, egress FROM egress_switch WHERE id > ? ORDER BY id LIMIT ?",
            (after, limit),
        )
        return [SwitchEntry(*row) for row in rows]

    async def watch(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Look at the file each second, so that log and metrics tell of it without a request."""
        while True:
            self.by()
            await sleep(WATCH_S)

    def _by_file(self) -> By | None:
        if self._file is None:
            return None
        try:
            os.lstat(self._file)
        except FileNotFoundError:
            # Without its folder (a volume that is not mounted) nobody could throw it.
            return None if self._file.parent.is_dir() else "unreadable"
        except (OSError, ValueError):
            return "unreadable"
        return "file"

    def _told(self, found: By | None) -> None:
        self._seen = found
        if self._metrics is not None:
            self._metrics.egress_switched_off.set(0 if found is None else 1)
        if found is None:
            log.warning("egress is no longer switched off: the policy decides")
        else:
            log.warning("egress is switched off (%s): nothing leaves", found)
