"""Which conversations stay local for good.

A conversation is kept by a keyed hash of its tenant and its name, never by the name itself. What is not known cannot
be told from what was forgotten: a conversation that has begun elsewhere counts as local.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import sqlite3
from collections import OrderedDict
from typing import Final, Literal, Protocol

from weighbridge.config.offload import Lane
from weighbridge.observability.sqlite_file import DatabaseUnusable
from weighbridge.state.store import StateStore, StateUnavailable

log = logging.getLogger(__name__)

PinState = Literal["open", "local", "lost", "unreadable"]
"""How a conversation stands.

open: nothing keeps it in. local: it stays local. lost: it has begun, and nobody here knows how it stood; it stays
local from now on. unreadable: that cannot be told at the moment, so this request stays local.
"""

UNSEEN_NS: Final = 30 * 86_400 * 1_000_000_000
"""An open conversation that was not seen for so long (nanoseconds) is forgotten; a local one never is."""
TOUCH_NS: Final = 86_400 * 1_000_000_000
"""It is noted that a conversation was seen at most so often (nanoseconds)."""
MAX_HELD: Final = 10_000
"""Conversations whose state is held in memory as well."""
MAX_UNWRITTEN: Final = 100_000
_SWEEP_NS: Final = 60 * 1_000_000_000
_SWEEP_ROWS: Final = 1_000


class ConversationPins(Protocol):
    """Where the pins are kept. Implementations share one contract test
    (`tests/contract/test_conversation_pins_contract.py`). None of the methods raises."""

    async def enter(self, tenant: str, conversation: str, *, begun: bool) -> PinState:
        """How a conversation stands for a request that has come.

        One that is not known is recorded before this returns: as open at its first turn, as local where it has begun.

        Args:
            conversation: the name the caller gave it.
            begun: the request holds an earlier answer, so this is not the first turn.
        """
        ...

    async def keep_local(self, tenant: str, conversation: str) -> None:
        """From the moment of this call on the conversation stays local; durably so when it returns.

        Where that cannot be written, no conversation counts as open until it was.
        """
        ...

    async def is_open(self, tenant: str, conversation: str) -> bool:
        """Whether a conversation that was entered before may leave still; the last look before it does."""
        ...


class StoredPins:
    """Pins in the state file of this gateway, which no other process uses.

    Args:
        store: the state file.

    Raises:
        DatabaseUnusable (a ConfigError): the file cannot be read or written.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._lane = Lane("pins")
        try:
            self._secret = _secret(store)
        except StateUnavailable as exc:
            raise DatabaseUnusable(f"conversation pins: {exc}") from exc
        self._held: OrderedDict[bytes, tuple[bool, int]] = OrderedDict()
        """Whether it is local and when it was last noted as seen, by conversation."""
        self._unwritten: set[bytes] = set()
        self._overrun = False
        """So many could not be written that some were forgotten: nothing counts as open before the next start."""
        self._swept_ns = 0

    async def enter(self, tenant: str, conversation: str, *, begun: bool) -> PinState:
        key, now = self._key(tenant, conversation), self._store.clock.wall_ns()
        known = self._known(key, now)
        if known is not None:
            return known
        try:
            state, seen_ns = await self._lane.run(self._enter, key, begun, now)
        except StateUnavailable as exc:
            log.error("conversation pins cannot be used, such requests stay local: %s", exc)
            return "unreadable"
        return state if self._hold(key, state != "open", seen_ns) else "local"

    async def keep_local(self, tenant: str, conversation: str) -> None:
        key, now = self._key(tenant, conversation), self._store.clock.wall_ns()
        if self._known(key, now) == "local" and key not in self._unwritten:
            return
        self._hold(key, True, now)
        if len(self._unwritten) < MAX_UNWRITTEN:
            self._unwritten.add(key)
        else:
            self._overrun = True
        try:
            await self._lane.run(self._flush, now)
        except StateUnavailable as exc:
            log.error("a conversation's pin could not be kept, no conversation leaves until it is: %s", exc)

    async def is_open(self, tenant: str, conversation: str) -> bool:
        key, now = self._key(tenant, conversation), self._store.clock.wall_ns()
        known = self._known(key, now)
        if known is not None:
            return known == "open"
        try:
            row = await self._lane.run(self._find, key)
        except StateUnavailable:
            return False
        return row is not None and not row[0] and self._hold(key, *row)

    def _key(self, tenant: str, conversation: str) -> bytes:
        # No tenant's name holds a NUL, so no two pairs read the same.
        return hmac.digest(self._secret, f"{tenant}\0{conversation}".encode(), hashlib.sha256)

    def _known(self, key: bytes, now: int) -> PinState | None:
        """What memory alone can tell."""
        if self._overrun:
            return "unreadable"
        held = self._held.get(key)
        if held is None or (not held[0] and (self._unwritten or now - held[1] >= TOUCH_NS)):
            return None
        self._held.move_to_end(key)
        return "local" if held[0] else "open"

    def _hold(self, key: bytes, local: bool, seen_ns: int) -> bool:
        """Note what is known of a conversation. False: it was pinned meanwhile, so the caller's news are old."""
        held = self._held.get(key)
        if (held is not None and held[0] and not local) or (key in self._unwritten and not local):
            return False
        self._held[key] = (local, seen_ns)
        self._held.move_to_end(key)
        while len(self._held) > MAX_HELD:
            self._held.popitem(last=False)
        return True

    # ---- in the lane's thread ----

    def _enter(self, key: bytes, begun: bool, now: int) -> tuple[PinState, int]:
        row = self._find(key)
        if row is not None and not row[0] and now - row[1] >= UNSEEN_NS:
            row = None
        if row is not None and (row[0] or now - row[1] < TOUCH_NS):
            return ("local" if row[0] else "open"), row[1]
        local = begun and row is None
        with self._store.writing() as conn:
            self._write(conn, key, local, now)
            self._sweep(conn, now)
        return ("lost" if local else "open"), now

    def _find(self, key: bytes) -> tuple[bool, int] | None:
        if self._unwritten:
            self._flush(self._store.clock.wall_ns())
        rows = self._store.rows("SELECT local, seen_ns FROM pins WHERE conversation = ?", (key,))
        return (bool(rows[0][0]), rows[0][1]) if rows else None

    def _flush(self, now: int) -> None:
        """Write the pins that wait for it, all in one transaction."""
        waiting = tuple(self._unwritten)
        if waiting:
            with self._store.writing() as conn:
                for key in waiting:
                    self._write(conn, key, True, now)
            self._unwritten.difference_update(waiting)

    def _write(self, conn: sqlite3.Connection, key: bytes, local: bool, now: int) -> None:
        conn.execute(
            "INSERT INTO pins (conversation, local, seen_ns) VALUES (?1, ?2, ?3) ON CONFLICT (conversation) "
            "DO UPDATE SET local = max(local, excluded.local), seen_ns = excluded.seen_ns",
            (key, local, now),
        )

    def _sweep(self, conn: sqlite3.Connection, now: int) -> None:
        if now - self._swept_ns < _SWEEP_NS:
            return
        self._swept_ns = now
        conn.execute(
            "DELETE FROM pins WHERE conversation IN "
            "(SELECT conversation FROM pins WHERE local = 0 AND seen_ns < ? LIMIT ?)",
            (now - UNSEEN_NS, _SWEEP_ROWS),
        )


def _secret(store: StateStore) -> bytes:
    """What names are hashed with: made once and never changed, since a hash under another key is a lost pin."""
    rows = store.rows("SELECT secret FROM pins_secret")
    if rows:
        return bytes(rows[0][0])
    made = secrets.token_bytes(32)
    with store.writing() as conn:
        conn.execute("INSERT INTO pins_secret (id, secret) VALUES (1, ?)", (made,))
    return made
