"""Proving the chain over the egress rows, beside a gateway that writes them or without one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

from weighbridge.observability.chain_verify import CannotTell, Chained, Row, Verdict, verify_rows
from weighbridge.observability.egress_chain import COLUMNS, FORM, TYPES
from weighbridge.observability.ledger_read import open_readonly
from weighbridge.observability.ledger_schema import CHAINED, VERSION

__all__ = ["CannotTell", "Verdict", "verify_file"]

_ADOPTED: Final = COLUMNS.index("adopted")


def verify_file(path: Path, keys: Iterable[bytes], pinned: str | None = None) -> Verdict:
    """Go through the chain in the ledger at `path`, which is only read.

    Args:
        keys: chain keys that rows may be signed with.
        pinned: the head of an earlier look, hex; the chain must run through it.

    Raises:
        CannotTell: no ledger can be read there.
    """
    try:
        with closing(open_readonly(path)) as conn:
            (version,) = conn.execute("PRAGMA user_version").fetchone()
            if version < CHAINED:
                raise CannotTell(
                    f"{path}: was written before there was a chain; the next start of the gateway adds it"
                )
            if version > VERSION:
                raise CannotTell(f"{path}: was written by a newer version (schema {version})")
            return verify_rows(conn, _EGRESS, keys, pinned)
    except sqlite3.Error as exc:
        raise CannotTell(f"{path}: cannot be read ({exc})") from None


def _fault(row: Row, found: Verdict) -> str:
    if row[_ADOPTED] not in (0, 1) or (row[_ADOPTED] and found.adopted < found.rows):
        return "says that it is older than the chain, and stands behind rows that are not"
    return ""


def _count(row: Row, found: Verdict) -> None:
    found.adopted += row[_ADOPTED]


_EGRESS: Final = Chained("egress", COLUMNS, TYPES, FORM, _fault, _count)
