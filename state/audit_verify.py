"""Proving the audit log, beside a gateway that writes it or without one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from weighbridge.observability.chain_verify import CannotTell, Chained, Verdict, verify_rows
from weighbridge.observability.ledger_read import open_readonly
from weighbridge.state.audit_chain import COLUMNS, FORM, TYPES
from weighbridge.state.key_proof import first_unlike
from weighbridge.state.store import VERSION

_AUDIT: Final = Chained("audit", COLUMNS, TYPES, FORM)
_FOUND: Final = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'audit'"


def verify_file(path: Path, keys: Iterable[bytes], pinned: str | None = None) -> Verdict:
    """Go through the chain in the state file at `path`, which is only read; where it is whole, see whether the keys are
    those it tells of.

    Args:
        keys: chain keys that rows may be signed with.
        pinned: the head of an earlier look, hex; the chain must run through it.

    Raises:
        CannotTell: no audit log can be read there.
    """
    try:
        with closing(open_readonly(path)) as conn:
            (version,) = conn.execute("PRAGMA user_version").fetchone()
            if version > VERSION:
                raise CannotTell(f"{path}: was written by a newer version (schema {version})")
            if version == VERSION or conn.execute(_FOUND).fetchone()[0]:
                conn.execute("BEGIN")  # a gateway may write meanwhile: log and keys of one moment
                found = verify_rows(conn, _AUDIT, keys, pinned)
                if not found.fault and (key_id := first_unlike(conn)) is not None:
                    found.fault = (
                        f"the key {key_id} is not as the audit log says: it was changed or put in by hand"
                    )
                return found
            raise CannotTell(
                f"{path}: was written before there was an audit log; the next start of the gateway adds it"
            )
    except sqlite3.Error as exc:
        raise CannotTell(f"{path}: cannot be read ({exc})") from None
