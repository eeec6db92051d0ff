"""`weighbridge usage verify` and `usage backlog`: whether the usage records have arrived."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weighbridge.observability.shipping_verify import Agreement

AGREES, DISAGREES, CANNOT_TELL = 0, 1, 2
"""Exit statuses."""

_MEANS = {
    "missing": "the collector said that it has them, and the export has not",
    "differing": "not the same here and there",
    "unknown": "in the export as this spool's, and not in the spool",
    "rejected": "the collector would not take them",
}


def add_shipping(below: Any, common: Any) -> None:
    """Add the commands to those of `weighbridge usage`.

    Args:
        below: what `add_subparsers` gave.
        common: adds the options that all commands share to one of them.
    """
    verify = below.add_parser(
        "verify",
        help="prove that the spool and what it shipped agree",
        description="Compares the usage ledger with an export of what the collector kept: files with one OTLP/JSON "
        "document a line, as its file exporter writes them, plain or gzip. The ledger is only read, beside a running "
        "gateway or without one. Exit status 0: they agree; 1: they do not, and the records that are missing, differ, "
        "are unknown or were rejected are named; 2: cannot tell.",
        allow_abbrev=False,
    )
    common(verify)
    verify.add_argument("exports", metavar="FILE", nargs="+", type=Path, help="what the collector kept")
    verify.add_argument("--state-dir", metavar="DIR", help="folder of the usage ledger (state_dir)")
    verify.set_defaults(run=run_verify)
    backlog = below.add_parser(
        "backlog",
        help="say how much is not shipped yet",
        description="Reads the usage ledger, beside a running gateway or without one. Exit status 0: told; 2: cannot "
        "tell.",
        allow_abbrev=False,
    )
    common(backlog)
    backlog.add_argument("--state-dir", metavar="DIR", help="folder of the usage ledger (state_dir)")
    backlog.set_defaults(run=run_backlog)


def run_verify(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    from weighbridge.gateway.cli import complain, settings_of
    from weighbridge.observability.ledger_read import LEDGER_FILE
    from weighbridge.observability.shipping_verify import CannotTell, verify

    settings = settings_of(args)
    try:
        found = verify(settings.state_dir / LEDGER_FILE, args.exports)
    except CannotTell as exc:
        complain(str(exc))
        return CANNOT_TELL
    _tell(found)
    for kind, count in sorted(found.faults.items()):
        complain(f"{kind}: {count} records, {_MEANS[kind]}")
        for named in found.named[kind]:
            complain(f"  {named}")
        if count > len(found.named[kind]):
            complain(f"  and {count - len(found.named[kind])} more")
    print("spool and sink agree" if found.agrees else "spool and sink do not agree")
    return AGREES if found.agrees else DISAGREES


def _tell(found: Agreement) -> None:
    print(f"spool: {found.spool}\nagreeing: {found.agreeing} records")
    for count, words in (
        (found.waiting, "not shipped yet"),
        (found.duplicates, "copies beyond the first, to be told by id and revision"),
        (found.older_revisions, "older revisions, which a later one has taken the place of"),
        (found.retired, "in the export alone, older than what the spool keeps"),
        (found.elsewhere, "shipped by other gateways, not looked at"),
    ):
        if count:
            print(f"{count} {words}")


def run_backlog(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    import sqlite3
    import time
    from contextlib import closing

    from weighbridge.gateway.cli import complain, settings_of
    from weighbridge.observability import shipping_read
    from weighbridge.observability.ledger_read import LEDGER_FILE

    path = settings_of(args).state_dir / LEDGER_FILE
    try:
        with closing(shipping_read.open_spool(path)) as conn:
            at = shipping_read.cursors(conn)
            print(f"spool: {shipping_read.spool_name(conn)}")
            for stream in shipping_read.STREAMS:
                waiting = shipping_read.waiting(conn, stream, at[stream])
                age = "" if waiting.oldest_ns is None else (time.time_ns() - waiting.oldest_ns) / 1e9
                told = f", the oldest {age:.0f} s old" if isinstance(age, float) else ""
                print(f"{stream}: {waiting.records} not shipped{told}")
            refused = sum(1 for _ in shipping_read.rejected(conn))
    except sqlite3.Error as exc:
        complain(f"{path}: cannot be read ({exc})")
        return CANNOT_TELL
    print(f"rejected: {refused}")
    return AGREES
