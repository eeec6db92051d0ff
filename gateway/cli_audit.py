"""`weighbridge audit verify`: proves the audit log of the admin API."""

from __future__ import annotations

import argparse
from typing import Any

from weighbridge.gateway.cli_chain import add_verify, run_verify


def add_audit(commands: Any, common: Any) -> None:
    """Add the commands to the parser.

    Args:
        commands: what `add_subparsers` gave.
        common: adds the options that all commands share to one of them.
    """
    audit = commands.add_parser("audit", help="prove the audit log", allow_abbrev=False)
    verify = add_verify(audit, common, what="audit log", where="state file", file="state")
    verify.set_defaults(run=run_audit_verify)


def run_audit_verify(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    from weighbridge.gateway.parts import STATE_FILE
    from weighbridge.state.audit_verify import verify_file

    return run_verify(args, STATE_FILE, verify_file, lambda secrets: secrets.audit_keys())
