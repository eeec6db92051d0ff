"""`weighbridge what-if`: what other bounds would have done with the last requests."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from weighbridge.router.what_if import WhatIf

OK, CANNOT_TELL = 0, 2
USUAL_LAST: Final = 10_000


def add_what_if(commands: Any, common: Any) -> None:
    """Add the command to the parser.

    Args:
        commands: what `add_subparsers` gave.
        common: adds the options that all commands share to one of them.
    """
    command = commands.add_parser(
        "what-if",
        help="try other bounds on the last requests",
        description="Decides the last recorded requests anew, by their scores: under the policy file as it stands, and "
        "under the same with other bounds. Changes nothing, and reads the ledger beside a running gateway. What admins "
        "have laid over the file is not in it: POST /admin/v1/thresholds/preview of the gateway knows that. Exit "
        "status 2: it cannot tell.",
        allow_abbrev=False,
    )
    common(command)
    command.add_argument("--state-dir", metavar="DIR", help="folder of the state (state_dir)")
    command.add_argument(
        "--local-8b", dest="below_8b", metavar="BOUND", type=float, help="scores below it go to local-8b"
    )
    command.add_argument(
        "--local-70b", dest="below_70b", metavar="BOUND", type=float, help="others below it go to local-70b"
    )
    command.add_argument(
        "--last", metavar="N", type=int, default=USUAL_LAST, help="requests to look at (%(default)s)"
    )
    command.add_argument("--format", choices=("table", "json"), default="table", help="how to print")
    command.set_defaults(run=run_what_if)


def run_what_if(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    from weighbridge.config.errors import ApiError
    from weighbridge.config.roads import LOCAL_ROADS
    from weighbridge.config.yamlsource import read_bytes
    from weighbridge.gateway.cli import complain, settings_of
    from weighbridge.gateway.cli_usage import read_ledger
    from weighbridge.observability.past_requests import last_requests
    from weighbridge.policies.checking import NotAPolicy
    from weighbridge.policies.compiled import compile_policy
    from weighbridge.policies.loader import parse_policy, policy_path
    from weighbridge.policies.overlay import Overlay, parse_patch
    from weighbridge.router.what_if import what_if

    settings = settings_of(args)
    path = policy_path(settings.policies)
    document = parse_policy(read_bytes(path), str(path)).document
    bounds = {"local_8b": args.below_8b, "local_70b": args.below_70b}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    if not given or args.last < 1:
        complain("give --local-8b or --local-70b, and --last of 1 or more")
        return CANNOT_TELL
    try:
        patch = parse_patch({"bounds": given, "reason": "what if"})
        then = compile_policy(Overlay().patched(patch).over(document))
    except (ApiError, NotAPolicy) as exc:
        complain(exc.message if isinstance(exc, ApiError) else "these bounds make no policy of the file")
        return CANNOT_TELL
    past = read_ledger(settings, lambda conn: last_requests(conn, args.last))
    if past is None:
        return CANNOT_TELL
    local = tuple(road for road in LOCAL_ROADS if road in settings.tiers)
    outward = bool(settings.commercial.all_endpoints)
    found = what_if(past, compile_policy(document), then, local=local, outward=outward)
    print(_json(found) if args.format == "json" else _table(found), end="")
    return OK


def _json(found: WhatIf) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"


def _table(found: WhatIf) -> str:
    from weighbridge.gateway.cli_usage_text import table_text
    from weighbridge.observability.money import shown

    roads = [("road", "requests now", "then", "cost of 1M tokens")]
    for road in found.roads:
        rate = "-" if road.nano_per_million is None else shown(road.nano_per_million, found.currency)
        roads.append((road.road, str(road.requests_before), str(road.requests_after), rate))
    shifts = [("from", "to", "requests", "tokens", "expected to fail now", "then", "risk not known")]
    for shift in found.shifts:
        fails = (f"{shift.failing_before:.1f}", f"{shift.failing_after:.1f}", str(shift.unknown))
        shifts.append((shift.from_road, shift.to_road, str(shift.requests), str(shift.tokens), *fails))
    change = found.cost_change_nano_per_day
    cost = "not known" if change is None else f"{shown(change, found.currency)} a day, idle time not counted"
    return (
        f"{found.requests} requests, of them {found.decided} that the gateway chose a road for\n\n"
        f"{table_text(roads, 1)}\n{table_text(shifts, 2)}\nchange of cost: {cost}\n"
    )
