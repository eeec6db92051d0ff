"""Keys that are made, changed and ended while the gateway runs: virtual API keys and admin keys.

A key itself is told once, to whoever has it made; only its SHA-256 is kept, in the state file. The table that requests
look at is changed after the file, so a change that is in force is also on the disk.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, cast

from weighbridge.config.errors import ConfigError
from weighbridge.config.fresh_key import RandomBytes, fresh_key
from weighbridge.config.roads import Road
from weighbridge.config.roles import Role
from weighbridge.config.settings import AuthSettings
from weighbridge.observability.sqlite_file import DatabaseUnusable
from weighbridge.state.audit_chain import Deed, brief
from weighbridge.state.key_proof import FINGERPRINT, fingerprint_of
from weighbridge.state.key_table import Admin, Caller, KeyTable, barred_beside
from weighbridge.state.store import StateStore, StateUnavailable

Kind = Literal["api", "admin"]

_ID_PREFIX: Final[dict[Kind, str]] = {"api": "vk-", "admin": "ak-"}
_ID_BYTES: Final = 6

_COLUMNS: Final = (
    "seq, id, kind, name, tenant, role, roads, parallel, created_ns, created_by, expires_ns, revoked_ns"
)
_SELECT: Final = f"SELECT {_COLUMNS} FROM keys "  # noqa: S608
_OLD: Final = "SELECT max(until_ns) FROM key_hashes WHERE key_id = ? AND until_ns IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is kept.

    Args:
        seq: counts up from 1 over keys of both kinds.
        id: its name in records, policies and the audit log; made once, never used again.
        name: what people call it.
        tenant: whose API key it is; empty for an admin key.
        role: of an admin key; None for an API key.
        roads: the roads an API key may use; None leaves it to the policy.
        parallel: requests it may have under way at once; None leaves it to the settings.
        created_ns, expires_ns, revoked_ns: UTC nanoseconds; None where it does not end or was not revoked.
        created_by: id of the admin key.
        old_until_ns: until when a key that was rotated away is good; None where none is known.
    """

    seq: int
    id: str
    kind: Kind
    name: str
    tenant: str
    role: Role | None
    roads: tuple[Road, ...] | None
    parallel: int | None
    created_ns: int
    created_by: str
    expires_ns: int | None
    revoked_ns: int | None
    old_until_ns: int | None = None

    def ended(self, now_ns: int) -> bool:
        """Whether it is good no longer."""
        return self.revoked_ns is not None or (self.expires_ns is not None and now_ns >= self.expires_ns)


@dataclass(frozen=True, slots=True)
class Terms:
    """What may be changed of a key. The arguments are those of `Key`; `role` is for admin keys, `roads` and `parallel`
    for API keys."""

    name: str
    roads: tuple[Road, ...] | None = None
    parallel: int | None = None
    expires_ns: int | None = None
    role: Role | None = None


class NoSuchKey(Exception):
    """No key of this kind has this id."""


class KeyRevoked(Exception):
    """It was revoked, which is for good."""


class LastAdminKey(Exception):
    """After that nobody could make keys any more: it is the last good key of role `admin`."""


class RevokedHereOnly(StateUnavailable):
    """The revocation is in force in this process, and not on the disk: the next start knows nothing of it."""


class AdminKeyFirst(Exception):
    """There is no admin key yet. With the first API key the admin routes close to those who have none."""


class KeyStore:
    """The keys in the state file, and the table of all that are good. Any thread may change them.

    Args:
        store: the state file.
        settings: the keys of the settings, which go on beside these.
        random_bytes: where keys and ids come from.

    Raises:
        DatabaseUnusable (a ConfigError): the file cannot be read.
        ConfigError: the settings hold a key, or the id of one, that was made here.
    """

    def __init__(
        self, store: StateStore, settings: AuthSettings, random_bytes: RandomBytes = secrets.token_bytes
    ) -> None:
        self._store = store
        self._random = random_bytes
        self._lock = threading.Lock()
        self.table = KeyTable.of(settings)
        self.clock = store.clock
        self._by_settings = any(key.role == "admin" for key in settings.admin_keys)
        """The settings hold a key of role `admin`, which no call over the API can end."""
        try:
            kept = [_key(row) for row in store.rows(_SELECT)]
            hashes = store.rows("SELECT digest, key_id, until_ns FROM key_hashes")
        except StateUnavailable as exc:
            raise DatabaseUnusable(f"keys: {exc}") from exc
        by_id = {key.id: key for key in kept}
        _check_apart(settings, by_id, {digest: key_id for digest, key_id, _ in hashes})
        for digest, key_id, until_ns in hashes:
            self._put(by_id[key_id], digest, until_ns)
        for key in kept:
            self._mark(key.kind)

    # ---- reading ----

    def keys(self, kind: Kind, after: int, limit: int) -> list[Key]:
        """Keys above a number, in order, at most `limit`. Raises: StateUnavailable."""
        query = _SELECT + "WHERE kind = ? AND seq > ? ORDER BY seq LIMIT ?"
        return [self._with_old(_key(row)) for row in self._store.rows(query, (kind, after, limit))]

    def key(self, kind: Kind, key_id: str) -> Key:
        """Raises: NoSuchKey, StateUnavailable."""
        rows = self._store.rows(_SELECT + "WHERE kind = ? AND id = ?", (kind, key_id))
        if not rows:
            raise NoSuchKey
        return self._with_old(_key(rows[0]))

    # ---- changing: each blocks for the disk, and is in force and in the audit log when it returns ----

    def create(
        self, kind: Kind, terms: Terms, who: str, *, tenant: str = "", why: str = ""
    ) -> tuple[Key, str]:
        """Make a key.

        Args:
            tenant: whose API key it is; for good, as records and pins go by it.
            who: id of the admin key that asks.

        Returns:
            The key as it is kept, and the key itself, which is told nowhere else.

        Raises:
            AdminKeyFirst: an API key, or an admin key of another role than `admin`, while there is no admin key at all.
            StateUnavailable: nothing was changed.
            ValueError: a text is not proper Unicode; nothing was changed.
        """
        secret = fresh_key(self._random)
        digest = _digest(secret)
        with self._lock:
            if not self.table.admin_keyed and terms.role != "admin":
                raise AdminKeyFirst
            made = Key(
                0,
                _ID_PREFIX[kind] + self._random(_ID_BYTES).hex(),
                kind,
                terms.name,
                tenant,
                terms.role,
                terms.roads,
                terms.parallel,
                self.clock.wall_ns(),
                who,
                terms.expires_ns,
                None,
            )
            with self._store.writing() as conn:
                marks = ", ".join("?" * 11)
                number = conn.execute(
                    f"INSERT INTO keys ({_COLUMNS.removeprefix('seq, ')}) VALUES ({marks})",  # noqa: S608
                    _values(made)[1:],
                ).lastrowid
                made = replace(made, seq=number or 0)
                conn.execute("INSERT INTO key_hashes VALUES (?, ?, NULL)", (digest, made.id))
                self._audited(conn, made.created_ns, None, made, who, why, digest)
            self._put(made, digest, None)
            self._mark(kind)
        return made, secret

    def change(
        self, kind: Kind, key_id: str, make: Callable[[Key], Terms], who: str, *, why: str = ""
    ) -> Key:
        """Change a key.

        Args:
            make: says what it is to be, given what it is; what it raises changes nothing.

        Raises:
            NoSuchKey, KeyRevoked, LastAdminKey, StateUnavailable, ValueError: nothing was changed.
        """
        with self._lock:
            old = self._good(kind, key_id)
            terms = make(old)
            new = replace(
                old,
                name=terms.name,
                roads=terms.roads,
                parallel=terms.parallel,
                expires_ns=terms.expires_ns,
                role=terms.role,
            )
            now = self.clock.wall_ns()
            if (
                new.role != "admin"
                or new.ended(now)
                or (old.expires_ns is None and new.expires_ns is not None)
            ):
                self._keep_an_admin(old)
            with self._store.writing() as conn:
                conn.execute(
                    "UPDATE keys SET name = ?, roads = ?, parallel = ?, expires_ns = ?, role = ? WHERE id = ?",
                    (new.name, _roads(new), new.parallel, new.expires_ns, new.role, new.id),
                )
                self._audited(conn, now, old, new, who, why)
                hashes = _hashes(conn, key_id)
            self._put_all(new, hashes)
        return new

    def rotate(self, kind: Kind, key_id: str, overlap_ns: int, who: str, *, why: str = "") -> tuple[Key, str]:
        """Make a key anew; its id and all else stay.

        Args:
            overlap_ns: nanoseconds the old one stays good.

        Returns:
            The key as it is kept, and the new key itself.

        Raises:
            NoSuchKey, KeyRevoked, StateUnavailable: nothing was changed.
        """
        secret = fresh_key(self._random)
        digest = _digest(secret)
        with self._lock:
            old = self._good(kind, key_id)
            now = self.clock.wall_ns()
            with self._store.writing() as conn:
                conn.execute(
                    "UPDATE key_hashes SET until_ns = min(coalesce(until_ns, ?1), ?1) WHERE key_id = ?2",
                    (now + overlap_ns, key_id),
                )
                conn.execute("INSERT INTO key_hashes VALUES (?, ?, NULL)", (digest, key_id))
                new = replace(old, old_until_ns=now + overlap_ns)
                self._audited(conn, now, old, new, who, why, digest)
                hashes = _hashes(conn, key_id)
            self._put_all(new, hashes)
        return new, secret

    def revoke(self, kind: Kind, key_id: str, who: str, *, why: str = "") -> Key:
        """End a key for good, the ones it was rotated from as well. Requests under way finish.

        Raises:
            NoSuchKey, KeyRevoked, LastAdminKey, ValueError: nothing was changed.
            RevokedHereOnly: it is not on the disk and has to be said again; here the key is good no longer.
        """
        with self._lock:
            old = self._good(kind, key_id)
            self._keep_an_admin(old)
            now = self.clock.wall_ns()
            new = replace(old, revoked_ns=now)
            try:
                with self._store.writing() as conn:
                    conn.execute("UPDATE keys SET revoked_ns = ? WHERE id = ?", (now, key_id))
                    self._audited(conn, now, old, new, who, why)
            except StateUnavailable as exc:
                # Whoever revokes a key has reason to: a disk that does not take it must not keep it good.
                self._take_out(new)
                raise RevokedHereOnly(str(exc)) from None
            self._take_out(new)
        return new

    # ---- with the lock ----

    def _good(self, kind: Kind, key_id: str) -> Key:
        found = self.key(kind, key_id)
        if found.revoked_ns is not None:
            raise KeyRevoked
        return found

    def _keep_an_admin(self, going: Key) -> None:
        """Raises: LastAdminKey where nobody of role `admin` is left without `going`: nobody for good, if that is."""
        if going.kind != "admin" or going.role != "admin" or self._by_settings:
            return
        now = self.clock.wall_ns()
        rows = self._store.rows(_SELECT + "WHERE kind = 'admin' AND role = 'admin' AND id <> ?", (going.id,))
        others = [key for key in map(_key, rows) if not key.ended(now)]
        # Two keys that end soon would take turns in leaving nobody.
        if not (any(key.expires_ns is None for key in others) if going.expires_ns is None else others):
            raise LastAdminKey

    def _audited(
        self,
        conn: sqlite3.Connection,
        at_ns: int,
        old: Key | None,
        new: Key,
        who: str,
        why: str,
        made: bytes | None = None,
    ) -> None:
        """`made`: the hash of a key that was made."""
        before, after = (None, _told(new)) if old is None else brief(_told(old), _told(new))
        if made is not None:
            # Rotated twice at the same moment, the overlap may be as before: `state.key_proof` needs it all the same.
            after |= {FINGERPRINT: fingerprint_of(made), "old_until_ns": new.old_until_ns}
        self._store.audited(conn, at_ns, Deed(who, new.id, before, after, why))

    def _put_all(self, key: Key, hashes: list[tuple[bytes, int | None]]) -> None:
        for digest, until_ns in hashes:
            self._put(key, digest, until_ns)

    def _put(self, key: Key, digest: bytes, until_ns: int | None) -> None:
        table: dict[bytes, Any] = self.table.callers if key.kind == "api" else self.table.admins
        ends = [ns for ns in (until_ns, key.expires_ns) if ns is not None]
        until = min(ends, default=None)
        if key.revoked_ns is not None or (until is not None and self.clock.wall_ns() >= until):
            table.pop(digest, None)
        elif key.kind == "api":
            table[digest] = Caller(key.id, key.tenant, barred_beside(key.roads), key.parallel, until)
        else:
            table[digest] = Admin(key.id, cast(Role, key.role), until)

    def _take_out(self, key: Key) -> None:
        table: dict[bytes, Any] = self.table.callers if key.kind == "api" else self.table.admins
        for digest in [digest for digest, whose in table.items() if whose.key_id == key.id]:
            del table[digest]

    def _mark(self, kind: Kind) -> None:
        if kind == "api":
            self.table.keyed = True
        else:
            self.table.admin_keyed = True

    def _with_old(self, key: Key) -> Key:
        return replace(key, old_until_ns=self._store.rows(_OLD, (key.id,))[0][0])


def _check_apart(settings: AuthSettings, by_id: dict[str, Key], by_digest: dict[bytes, str]) -> None:
    """Raises: ConfigError where the settings hold what was made here."""
    for field, keys in (("keys", settings.keys), ("admin_keys", settings.admin_keys)):
        for one in keys:
            if one.digest in by_digest:
                made = by_id[by_digest[one.digest]]
                revoked = ", and was revoked" if made.revoked_ns is not None else ""
                raise ConfigError(
                    f"auth.{field}: the key {one.id} was made over the admin API already ({made.id}{revoked}); give "
                    "it another key, or take it out"
                )
            if one.id in by_id:
                raise ConfigError(
                    f"auth.{field}: the id {one.id} belongs to a key that was made over the admin API; give it another"
                )


def _hashes(conn: sqlite3.Connection, key_id: str) -> list[tuple[bytes, int | None]]:
    """Every hash of a key and until when it is good. Read with the change: after it nothing may fail any more."""
    return conn.execute("SELECT digest, until_ns FROM key_hashes WHERE key_id = ?", (key_id,)).fetchall()


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _key(row: tuple[Any, ...]) -> Key:
    seq, key_id, kind, name, tenant, role, roads, *rest = row
    return Key(
        seq, key_id, kind, name, tenant, role, None if roads is None else tuple(roads.split(" ")), *rest
    )


def _roads(key: Key) -> str | None:
    return None if key.roads is None else " ".join(key.roads)


def _values(key: Key) -> tuple[Any, ...]:
    """The values of `_COLUMNS`."""
    return (
        key.seq,
        key.id,
        key.kind,
        key.name,
        key.tenant,
        key.role,
        _roads(key),
        key.parallel,
        key.created_ns,
        key.created_by,
        key.expires_ns,
        key.revoked_ns,
    )


def _told(key: Key) -> dict[str, Any]:
    """What the audit log says of a key: nothing of the key itself, and nothing that is not of its kind."""
    left_out = ("seq", "id", "kind", *(("role",) if key.kind == "api" else ("tenant", "roads", "parallel")))
    return {name: value for name, value in asdict(key).items() if name not in left_out}
