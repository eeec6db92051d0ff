"""`weighbridge egress verify`: proves the record of what left."""

from __future__ import annotations

import argparse
from typing import Any

from weighbridge.gateway.cli_chain import add_verify
from weighbridge.gateway.cli_chain import run_verify as run


def add_egress(commands: Any, common: Any) -> None:
    """Add the commands to the parser.

    Args:
        commands: what `add_subparsers` gave.
        common: adds the options that all commands share to one of them.
    """
    egress = commands.add_parser("egress", help="prove the record of what left", allow_abbrev=False)
    verify = add_verify(egress, common, what="egress record", where="usage ledger", file="usage ledger")
    verify.set_defaults(run=run_verify)


def run_verify(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    from weighbridge.observability.egress_verify import verify_file
    from weighbridge.observability.ledger_read import LEDGER_FILE

    return run(args, LEDGER_FILE, verify_file, lambda secrets: secrets.chain_keys())
