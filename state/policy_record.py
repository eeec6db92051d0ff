"""Every version of the policy that was in force, and every change of it that an administrator has proposed.

In the state file, beside the overlay: what puts an admin's change into force is one transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from weighbridge.state.audit_chain import Deed, brief
from weighbridge.state.store import OverlayEntry, StateStore

Source = Literal["file", "admin"]
Form = Literal["policy", "overlay"]

MOST_PROPOSALS: Final = 1_000
"""Proposals that are kept; of older ones only those that came into force."""

_ENTRY: Final = "SELECT id, at_ns, version, source, who, why, base_version, proposal, back_to"
_ENTRIES: Final = _ENTRY + " FROM policy_versions "
_STORED: Final = _ENTRY + ", base, overlay, content FROM policy_versions "
_PROPOSAL: Final = (
    "SELECT p.id, p.at_ns, p.who, p.why, p.form, p.base_version, p.version, "
    "(SELECT min(v.id) FROM policy_versions v WHERE v.proposal = p.id)"
)
_PROPOSALS: Final = _PROPOSAL + " FROM policy_proposals p "
_STORED_PROPOSAL: Final = _PROPOSAL + ", p.patch, p.content FROM policy_proposals p "


@dataclass(frozen=True, slots=True)
class VersionEntry:
    """One coming into force of a policy.

    Args:
        id: counts up from 1.
        at_ns: nanoseconds since 1970, UTC.
        version: the policy's version.
        source: `file`, or `admin` for a change over the admin API.
        who: the admin key's id; empty for the file.
        why: the reason that was given; empty for the file.
        base_version: the version of the file that it lies over.
        proposal: the proposal it comes from, if it does.
        back_to: the earlier entry that was rolled back to, if one was.
    """

    id: int
    at_ns: int
    version: str
    source: Source
    who: str
    why: str
    base_version: str
    proposal: int | None
    back_to: int | None


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """An entry with what was in force: the file's policy, the overlay on it, and both together."""

    entry: VersionEntry
    base: dict[str, Any]
    overlay: dict[str, Any]
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version to be kept. The fields are those of `VersionEntry` and `StoredVersion`."""

    version: str
    base_version: str
    base: Mapping[str, Any]
    overlay: Mapping[str, Any]
    content: Mapping[str, Any]
    proposal: int | None = None
    back_to: int | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that was proposed, checked and kept.

    Args:
        id: counts up from 1.
        at_ns: nanoseconds since 1970, UTC.
        who: the admin key's id.
        why: the reason that was given.
        form: `policy` for a whole document, `overlay` for a part of one.
        base_version: the version in force when it was made.
        version: the version that it makes of that one.
        applied: the entry of its coming into force; None as long as it has not.
    """

    id: int
    at_ns: int
    who: str
    why: str
    form: Form
    base_version: str
    version: str
    applied: int | None


@dataclass(frozen=True, slots=True)
class StoredProposal:
    """A proposal with the patch it is on the policy of its time, and what that made of it."""

    entry: Proposal
    patch: dict[str, Any]
    content: dict[str, Any]


class PolicyRecord:
    """Any thread may call it. Everything raises StateUnavailable where the state file does not do its part."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def from_file(self, new: NewVersion) -> int:
        """Keep that the file brought a version into force; the entry's id."""
        at_ns = self._store.clock.wall_ns()
        with self._store.writing() as conn:
            before = _latest(conn)
            number = _insert(conn, at_ns, new, "file", "", "")
            self._audited(conn, at_ns, new, before, "", "")
        return number

    def from_admin(self, new: NewVersion, who: str, why: str) -> OverlayEntry:
        """Keep an admin's change: the overlay that is in force from now on, and the version it makes.

        Raises:
            ValueError: a text is not proper Unicode; nothing was changed.
        """

        def beside(conn: sqlite3.Connection, at_ns: int) -> None:
            before = _latest(conn)
            _insert(conn, at_ns, new, "admin", who, why)
            self._audited(conn, at_ns, new, before, who, why)

        return self._store.set_overlay(
            new.overlay, who, why, base_policy_version=new.base_version, beside=beside
        )

    def propose(
        self,
        who: str,
        why: str,
        form: Form,
        base_version: str,
        version: str,
        patch: Mapping[str, Any],
        content: Mapping[str, Any],
    ) -> int:
        """Keep a proposal; its id. The arguments are the fields of `Proposal` and `StoredProposal`."""
        at_ns = self._store.clock.wall_ns()
        values = (at_ns, who, why, form, base_version, version)
        with self._store.writing() as conn:
            number = conn.execute(
                "INSERT INTO policy_proposals (at_ns, who, why, form, base_version, version, patch, content) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*values, _text(patch), _text(content)),
            ).lastrowid
            conn.execute(
                "DELETE FROM policy_proposals WHERE id <= ? "
                "AND id NOT IN (SELECT proposal FROM policy_versions WHERE proposal IS NOT NULL)",
                ((number or 0) - MOST_PROPOSALS,),
            )
            proposed = {"form": form, "base_version": base_version, "version": version}
            self._store.audited(conn, at_ns, Deed(who, f"proposal {number}", None, proposed, why))
        return number or 0

    def last(self) -> StoredVersion | None:
        """The latest version; None before the first."""
        return self._one("ORDER BY id DESC LIMIT 1", ())

    def version(self, named: int | str) -> StoredVersion | None:
        """A version by the id of its entry, or by its name: the latest entry that has it."""
        if isinstance(named, int):
            return self._one("WHERE id = ?", (named,))
        return self._one("WHERE version = ? ORDER BY id DESC LIMIT 1", (named,))

    def versions(self, after: int, limit: int) -> list[VersionEntry]:
        """Entries above an id, in order, at most `limit`."""
        rows = self._store.rows(_ENTRIES + "WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
        return [VersionEntry(*row) for row in rows]

    def proposal(self, number: int) -> StoredProposal | None:
        rows = self._store.rows(_STORED_PROPOSAL + "WHERE p.id = ?", (number,))
        if not rows:
            return None
        *entry, patch, content = rows[0]
        return StoredProposal(Proposal(*entry), msgspec.json.decode(patch), msgspec.json.decode(content))

    def proposals(self, after: int, limit: int) -> list[Proposal]:
        """Proposals above an id, in order, at most `limit`."""
        rows = self._store.rows(_PROPOSALS + "WHERE p.id > ? ORDER BY p.id LIMIT ?", (after, limit))
        return [Proposal(*row) for row in rows]

    def _audited(
        self,
        conn: sqlite3.Connection,
        at_ns: int,
        new: NewVersion,
        before: tuple[str, dict[str, Any]] | None,
        who: str,
        why: str,
    ) -> None:
        version, content = before or (None, {})
        was, becomes = brief(content, new.content)
        becomes["version"] = new.version
        for name, number in (("proposal", new.proposal), ("back_to", new.back_to)):
            if number is not None:
                becomes[name] = number
        deed = Deed(who, "policy", None if before is None else {**was, "version": version}, becomes, why)
        self._store.audited(conn, at_ns, deed)

    def _one(self, where: str, values: Sequence[object]) -> StoredVersion | None:
        rows = self._store.rows(_STORED + where, values)
        if not rows:
            return None
        *entry, base, overlay, content = rows[0]
        return StoredVersion(VersionEntry(*entry), *map(msgspec.json.decode, (base, overlay, content)))


def _latest(conn: sqlite3.Connection) -> tuple[str, dict[str, Any]] | None:
    """The latest version and its content."""
    row = conn.execute("SELECT version, content FROM policy_versions ORDER BY id DESC LIMIT 1").fetchone()
    return None if row is None else (row[0], msgspec.json.decode(row[1]))


def _insert(conn: sqlite3.Connection, at_ns: int, new: NewVersion, source: Source, who: str, why: str) -> int:
    number = conn.execute(
        "INSERT INTO policy_versions (at_ns, version, source, who, why, base_version, proposal, back_to, base, "
        "overlay, content) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            at_ns,
            new.version,
            source,
            who,
            why,
            new.base_version,
            new.proposal,
            new.back_to,
            _text(new.base),
            _text(new.overlay),
            _text(new.content),
        ),
    ).lastrowid
    return number or 0


def _text(values: Mapping[str, Any]) -> str:
    return msgspec.json.encode(values).decode()
