"""The `weighbridge` command.

Exit status: 0 done or stopped in order; 1 the gateway cannot start (port or state folder in use); 2 the settings, the
policy or the command line are wrong; 130 ended at once. `mask`, `egress verify`, `audit verify` and `usage` say their
own in their help. Errors are one line each on stderr.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from weighbridge.config.errors import ConfigError
from weighbridge.gateway.cli_audit import add_audit
from weighbridge.gateway.cli_egress import add_egress
from weighbridge.gateway.cli_masking import add_masking
from weighbridge.gateway.cli_overlay import add_overlay
from weighbridge.gateway.cli_prices import add_prices
from weighbridge.gateway.cli_score import add_score
from weighbridge.gateway.cli_usage import add_usage
from weighbridge.gateway.cli_what_if import add_what_if

# Nothing heavy is imported here: `--version`, `check` and `key new` answer at once, in an environment without vLLM.
if TYPE_CHECKING:
    from weighbridge.config.problems import Problem
    from weighbridge.config.settings import Settings

OK, CANNOT_START, WRONG_SETTINGS, ENDED_AT_ONCE = 0, 1, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    args = _parser().parse_args(argv)
    try:
        status: int = args.run(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except ConfigError as exc:
        complain(str(exc))
        return WRONG_SETTINGS
    except KeyboardInterrupt:
        complain("stopped")
        return ENDED_AT_ONCE
    except OSError as exc:
        if exc.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        # The reader of our output left, as in `weighbridge check | head`, or its disk is full; nothing more may be
        # written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if exc.errno == errno.ENOSPC:
            complain(f"output: {exc.strerror}")
        return CANNOT_START
    return status


class _Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        complain(f"{self.prog}: {message}; see {self.prog} --help")
        raise SystemExit(WRONG_SETTINGS)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        from weighbridge.router.difficulty import COMPILED

        kind = "compiled" if COMPILED else "in plain Python"
        print(f"weighbridge {version('weighbridge')} (difficulty score {kind})")
        raise SystemExit(OK)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="weighbridge",
        description="Weighs every LLM request and sends it down the cheapest road that can carry it.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    serve = commands.add_parser("serve", help="start the gateway", allow_abbrev=False)
    _common(serve)
    serve.add_argument("--host", help="address to listen on (server.host)")
    serve.add_argument("--port", help="port to listen on (server.port)")
    serve.add_argument(
        "--8b",
        dest="local_8b",
        metavar="PATH",
        help="folder of the model for local-8b; with --8b or --70b only the tiers named here are started",
    )
    serve.add_argument("--70b", dest="local_70b", metavar="PATH", help="folder of the model for local-70b")
    serve.add_argument("--state-dir", metavar="DIR", help="folder of usage ledger and state (state_dir)")
    serve.set_defaults(run=_serve)

    check = commands.add_parser(
        "check",
        help="check settings, policy and price book, print the settings in force",
        description="Checks settings, policy and price book and prints the settings in force, secrets hidden. Exit "
        "status 2 and a line 'file:line:column: field: message' for each problem. A commercial model or a tier that "
        "has no price today is a warning.",
        allow_abbrev=False,
    )
    _common(check)
    check.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object instead: ok, the policy's version, the problems with file, line, column, field "
        "and message, and the warnings",
    )
    check.set_defaults(run=_check)

    add_masking(commands, _common)
    add_score(commands, _common)
    add_egress(commands, _common)
    add_audit(commands, _common)
    add_overlay(commands, _common)
    add_usage(commands, _common)
    add_prices(commands, _common)
    add_what_if(commands, _common)

    key = commands.add_parser("key", help="make API and admin keys", allow_abbrev=False)
    new = key.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser).add_parser(
        "new", help="print a fresh key and the hash of it that goes into the settings", allow_abbrev=False
    )
    new.set_defaults(run=_new_key)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings file (or WEIGHBRIDGE_CONFIG)")
    parser.add_argument("--policy", metavar="FILE", help="policy file (policies.file)")


def complain(text: str) -> None:
    """One line for the operator."""
    print(text, file=sys.stderr)


def _overrides(args: argparse.Namespace) -> dict[str, Any]:
    """What the command line lays over file and environment."""
    given: dict[str, Any] = {}
    server = {name: getattr(args, name, None) for name in ("host", "port")}
    if any(server.values()):
        given["server"] = {name: value for name, value in server.items() if value is not None}
    if args.policy is not None:
        given["policies"] = {"file": args.policy}
    if getattr(args, "state_dir", None) is not None:
        given["state_dir"] = args.state_dir
    folders = {"local-8b": getattr(args, "local_8b", None), "local-70b": getattr(args, "local_70b", None)}
    if any(folder is not None for folder in folders.values()):
        given["tiers"] = {
            road: None if folder is None else {"model_path": folder} for road, folder in folders.items()
        }
    return given


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings a command is to use. Raises: ConfigError, which ends the command in order."""
    from weighbridge.config.settings import load_settings

    return load_settings(args.config, overrides=_overrides(args))


def _serve(args: argparse.Namespace) -> int:
    from weighbridge.config.settings import with_place

    given = _overrides(args)
    settings = settings_of(args)
    from weighbridge.gateway.listening import StartError
    from weighbridge.gateway.serve import serve
    from weighbridge.observability.ledger import SpoolBusy

    try:
        serve(settings, announce=_announce)
    except (StartError, SpoolBusy) as exc:
        complain(str(exc))
        return CANNOT_START
    except ConfigError as exc:
        complain(with_place(str(exc), args.config, overrides=given))
        return WRONG_SETTINGS
    return OK


def _announce(command: str) -> None:
    print(f"\nReady. Try it:\n\n{command}\n", flush=True)


def _check(args: argparse.Namespace) -> int:
    from weighbridge.config.prices import check_prices, prices_path
    from weighbridge.config.problems import ConfigProblems
    from weighbridge.config.settings import load_settings, place
    from weighbridge.policies.loader import check_policy, load_policy, policy_path

    settings: Settings | None = None
    given = _overrides(args)
    problems: list[Problem] = []
    warnings: list[str] = []
    version: str | None = None
    try:
        settings = load_settings(args.config, overrides=given)
    except ConfigProblems as exc:
        problems += exc.problems
    if settings is not None:
        found = (*_tier_problems(settings), *_list_problems(settings))
        problems += (place(text, args.config, overrides=given) for text in found)
        held = (settings.adapters, tuple(settings.commercial.all_endpoints), settings.policies.max_egress)
        path = policy_path(settings.policies)
        wrong = check_policy(path, *held)
        problems += wrong
        version = None if wrong else load_policy(path, *held).version
        broken = check_prices(prices_path(settings.prices))
        problems += broken
        warnings = [] if broken else _price_warnings(settings)
    elif args.policy is not None:
        problems += check_policy(Path(args.policy))
    if args.json:
        _print_problems(problems, warnings, version)
        return WRONG_SETTINGS if problems else OK
    for problem in problems:
        complain(str(problem))
    for warning in warnings:
        complain(f"warning: {warning}")
    if problems or settings is None:
        return WRONG_SETTINGS
    _print_settings(settings)
    print(f"# policy in force: {version}")
    return OK


def _print_problems(problems: Sequence[Problem], warnings: Sequence[str], version: str | None) -> None:
    import json

    told = [
        {
            "file": problem.file or None,
            "line": problem.line,
            "column": problem.column,
            "field": problem.field,
            "message": problem.message,
        }
        for problem in problems
    ]
    whole = {"ok": not problems, "policy": version, "problems": told, "warnings": list(warnings)}
    print(json.dumps(whole, ensure_ascii=False, indent=2))


def _price_warnings(settings: Settings) -> list[str]:
    """What would serve at a cost that nobody knows. The price book is sound."""
    from weighbridge.config.clock import SystemClock
    from weighbridge.config.prices import load_prices, prices_path
    from weighbridge.gateway.unpriced import unpriced
    from weighbridge.observability.costs import CostTable

    table = CostTable(load_prices(prices_path(settings.prices)))
    return unpriced(settings, table, SystemClock().wall_ns())


def _tier_problems(settings: Settings) -> list[str]:
    """What an engine would refuse, as far as it can be seen without loading one."""
    from weighbridge.pool.preflight import check_tier, on_cpu

    problems = []
    for road, tier in settings.tiers.items():
        try:
            check_tier(road, tier, cpu=on_cpu())
        except ConfigError as exc:
            problems.append(str(exc))
    return problems


def _list_problems(settings: Settings) -> list[str]:
    """What is wrong with the lists of known values: a gateway would start, and those tenants' requests would stay."""
    from weighbridge.masking.known_values import KnownValues
    from weighbridge.masking.lists import BadList

    problems = []
    for tenant, path in settings.masking.known_values.items():
        try:
            KnownValues.load(path)
        except BadList as exc:
            problems.append(f"masking.known_values.{tenant}: {exc}")
    return problems


def _print_settings(settings: Settings) -> None:
    import yaml

    from weighbridge.config.settings import effective

    print(yaml.safe_dump(effective(settings), sort_keys=False, allow_unicode=True), end="")


def _new_key(_: argparse.Namespace) -> int:
    import hashlib

    from weighbridge.config.fresh_key import fresh_key

    key = fresh_key()
    print(f"key: {key}\nsha256: {hashlib.sha256(key.encode()).hexdigest()}")
    complain(
        "The key goes to its user and is kept nowhere; the hash goes into the settings, under auth.keys or "
        "auth.admin_keys, with an id. Keys that can be changed while the gateway runs are made over its admin API."
    )
    return OK


if __name__ == "__main__":
    raise SystemExit(main())
