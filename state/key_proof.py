"""Whether the keys in the state file are those that the audit log tells of: one that was put in by hand shows.

Only worth what the log is: to be asked once its chain was found whole.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any, Final

import msgspec

FINGERPRINT: Final = "fingerprint"
"""What stands in a row for the hash of the key that was made."""

_NAMES: Final = (
    "name",
    "tenant",
    "role",
    "roads",
    "parallel",
    "created_ns",
    "created_by",
    "expires_ns",
    "revoked_ns",
)
"""The columns that the log has as well."""
_ROWS: Final = (
    'SELECT target, "before", "after" FROM audit WHERE outcome = \'done\' '
    "AND (target LIKE 'vk-%' OR target LIKE 'ak-%') ORDER BY seq"
)
_KEYS: Final = f"SELECT id, {', '.join(_NAMES)} FROM keys"  # noqa: S608

Held = tuple[dict[str, Any], dict[str, int | None]]
"""A key's values, and the ends of its hashes by their fingerprints."""


def fingerprint_of(digest: bytes) -> str:
    """A hash of a key's hash: tells which one it is to whoever has that, and nothing else."""
    return hashlib.sha256(b"fingerprint of a key" + digest).hexdigest()[:32]


def first_unlike(conn: sqlite3.Connection) -> str | None:
    """The id of the first key that is not as the log says, in the order of ids; None where all are.

    That is one that was put in, taken out or changed, that has another hash, or one that is good for longer.
    """
    told, kept = _told(conn), _kept(conn)
    unlike = [key_id for key_id in told.keys() | kept.keys() if told.get(key_id) != kept.get(key_id)]
    return min(unlike, default=None)


def _kept(conn: sqlite3.Connection) -> dict[str, Held]:
    kept: dict[str, Held] = {}
    for key_id, *values in conn.execute(_KEYS):
        kept[key_id] = dict(zip(_NAMES, values, strict=True)), {}
    for digest, key_id, until_ns in conn.execute("SELECT digest, key_id, until_ns FROM key_hashes"):
        # SQLite keeps what it is given: text is no hash of ours.
        name = fingerprint_of(digest) if isinstance(digest, bytes) else ""
        kept.setdefault(key_id, ({}, {}))[1][name] = until_ns
    return kept


def _told(conn: sqlite3.Connection) -> dict[str, Held]:
    """What the log makes of each key: the values of its first row, and what each later one changed."""
    told: dict[str, Held] = {}
    for key_id, before, after in conn.execute(_ROWS):
        changes = msgspec.json.decode(after)
        own, hashes = told.setdefault(key_id, ({**dict.fromkeys(_NAMES), "tenant": ""}, {}))
        made = changes.get(FINGERPRINT)
        if made is not None:
            if before != "null":
                ends = changes["old_until_ns"]
                for name, until in hashes.items():
                    hashes[name] = ends if until is None else min(until, ends)
            hashes[made] = None
        own.update({name: changes[name] for name in _NAMES if name in changes})
        if "roads" in changes and changes["roads"] is not None:
            own["roads"] = " ".join(changes["roads"])
    return told
