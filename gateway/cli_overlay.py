"""`weighbridge overlay drop`: takes administrators' changes off the policy file while no gateway runs."""

from __future__ import annotations

import argparse
from typing import Any


def add_overlay(commands: Any, common: Any) -> None:
    """Add the commands to the parser.

    Args:
        commands: what `add_subparsers` gave.
        common: adds the options that all commands share to one of them.
    """
    overlay = commands.add_parser(
        "overlay", help="administrators' changes over the policy file", allow_abbrev=False
    )
    drop = overlay.add_subparsers(metavar="COMMAND", required=True).add_parser(
        "drop",
        help="take them off, so that the policy file counts as it stands",
        description="For a gateway that does not start because the changes do not fit the policy file or the settings "
        "any more. A running gateway is changed over its admin API; this refuses to run beside it. The changes stay in "
        "the history. Exit status 0: none lies over the file now; 2: not possible.",
        allow_abbrev=False,
    )
    common(drop)
    drop.add_argument("--state-dir", metavar="DIR", help="folder of the state (state_dir)")
    drop.add_argument("--reason", metavar="TEXT", required=True, help="why, for those who read the history")
    drop.set_defaults(run=run_drop)


def run_drop(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    from weighbridge.config.clock import SystemClock
    from weighbridge.config.errors import ConfigError
    from weighbridge.gateway.cli import complain, settings_of
    from weighbridge.gateway.parts import STATE_FILE
    from weighbridge.masking.secret import obtain_secrets
    from weighbridge.observability.ledger_read import LEDGER_FILE
    from weighbridge.observability.spool_lock import SpoolLock
    from weighbridge.policies.overlay import is_reason
    from weighbridge.state.acting import Acting, acting
    from weighbridge.state.store import StateStore, StateUnavailable

    if not is_reason(args.reason):
        complain("--reason: must be text on one line that says why")
        return 2
    settings = settings_of(args)
    file = settings.state_dir / STATE_FILE
    if not file.exists():
        complain(f"{file}: there is no state to change")
        return 2
    try:
        lock = SpoolLock.take(settings.state_dir / LEDGER_FILE)
    except ConfigError as exc:
        complain(str(exc))
        return 2
    try:
        keys = obtain_secrets(settings.masking, settings.state_dir).audit_keys()
        state = StateStore.open(file, SystemClock(), audit_key=keys[0])
        try:
            if state.overlay() is None:
                print("no change lies over the policy file")
                return 0
            with acting(Acting("overlay.drop")):
                state.set_overlay({}, "command line", args.reason)
        finally:
            state.close()
    except (ConfigError, StateUnavailable, ValueError) as exc:
        complain(str(exc))
        return 2
    finally:
        lock.release()
    print("the policy file counts as it stands")
    return 0
