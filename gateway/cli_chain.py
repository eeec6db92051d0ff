"""What the commands that prove a chain of records share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weighbridge.masking.secret import Secrets
    from weighbridge.observability.chain_verify import Verdict

WHOLE, BROKEN, CANNOT_TELL = 0, 1, 2
"""Exit statuses."""


def add_verify(parser: Any, common: Any, *, what: str, where: str, file: str) -> Any:
    """Add `verify` to a command.

    Args:
        parser: the command's own.
        common: adds the options that all commands share to one of them.
        what: what is proved, in words.
        where: what its rows are in.
        file: what the state folder holds.

    Returns:
        The parser of `verify`.
    """
    verify = parser.add_subparsers(metavar="COMMAND", required=True).add_parser(
        "verify",
        help=f"prove that no row of the {what} was changed, added or taken out",
        description=f"Goes through the chain over the rows of the {what} in the {where}, beside a running gateway or "
        f"without one. Exit status 0: whole; 1: broken, and the number of the first row that is wrong; 2: cannot tell, "
        f"because there is no {where} or no secret, or it cannot be read. Rows missing at the end show only against a "
        "head that was written down earlier (--head).",
        allow_abbrev=False,
    )
    common(verify)
    verify.add_argument("--state-dir", metavar="DIR", help=f"folder of the {file} (state_dir)")
    verify.add_argument(
        "--head",
        metavar="HASH",
        type=_head,
        help="the head that an earlier run printed; the chain must run through it",
    )
    return verify


def _head(text: str) -> str:
    head = text.strip().lower()
    if re.fullmatch(r"[0-9a-f]{64}", head) is None:
        raise argparse.ArgumentTypeError("must be 64 hex digits")
    return head


def run_verify(
    args: argparse.Namespace,
    file: str,
    verify: Callable[[Path, Iterable[bytes], str | None], Verdict],
    keys_of: Callable[[Secrets], tuple[bytes, ...]],
) -> int:
    """Prove the chain in `file` of the state folder.

    Args:
        keys_of: the chain keys that derive from the secrets.

    Returns:
        The exit status.
    """
    from weighbridge.config.errors import ConfigError
    from weighbridge.gateway.cli import complain, settings_of
    from weighbridge.masking.secret import SECRET_FILE, find_secrets
    from weighbridge.observability.chain_verify import CannotTell

    settings = settings_of(args)
    try:
        secrets = find_secrets(settings.masking, settings.state_dir)
        if secrets is None:
            complain(
                f"no secret to verify with: set masking.secret_file, or name the folder that holds {SECRET_FILE}"
            )
            return CANNOT_TELL
        verdict = verify(settings.state_dir / file, keys_of(secrets), args.head)
    except (ConfigError, CannotTell) as exc:
        complain(str(exc))
        return CANNOT_TELL
    _tell(verdict, args.head)
    if verdict.fault:
        row = "" if verdict.bad_seq is None else f"row {verdict.bad_seq} "
        complain(f"broken: {row}{verdict.fault}")
        return BROKEN
    print("whole" if args.head else "whole, as far as it goes: rows missing at the end show only with --head")
    return WHOLE


def _tell(verdict: Verdict, pinned: str | None) -> None:
    before = "" if verdict.bad_seq is None else " before the first that is wrong"
    adopted = f", {verdict.adopted} of them older than the chain" if verdict.adopted else ""
    print(f"rows: {verdict.rows}{before}{adopted}")
    if verdict.rows:
        print(f"first: {_time(verdict.first_ns)}\nlast: {_time(verdict.last_ns)}")
        print("keys: " + ", ".join(f"{key} ({count} rows)" for key, count in verdict.keys.items()))
    print(f"head: {verdict.head}")
    if pinned is not None and verdict.pinned_at is not None:
        print(f"pinned head: row {verdict.pinned_at}, {verdict.rows - verdict.pinned_at} rows since")


def _time(ns: int | None) -> str:
    from datetime import UTC, datetime

    seconds, rest = divmod(ns or 0, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03d}Z"
