"""`weighbridge usage`: what was used, what it cost, what it saved, and whether the provider's bill agrees.

All of it reads the ledger beside a running gateway, or without one, and writes nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weighbridge.gateway.cli_shipping import add_shipping

if TYPE_CHECKING:
    import sqlite3

    from weighbridge.config.prices import PriceBook
    from weighbridge.config.settings import Settings
    from weighbridge.observability.savings_report import Window

T = TypeVar("T")

OK, DIFFERENT, CANNOT_TELL = 0, 1, 2
"""Exit statuses."""

_KEYS = ("day", "tenant", "road", "task")


def add_usage(commands: Any, common: Any) -> None:
    """Add the commands to the parser.

    Args:
        commands: what `add_subparsers` gave.
        common: adds the options that all commands share to one of them.
    """
    usage = commands.add_parser("usage", help="what was used, spent and saved", allow_abbrev=False)
    under = usage.add_subparsers(metavar="COMMAND", required=True)
    add_shipping(under, common)

    report = _command(
        under,
        common,
        "report",
        "sum up requests, tokens and cost",
        "Requests that have ended, by the UTC day of their admission, from the sums that the gateway keeps. The cost "
        "is what was booked when they were served.",
    )
    report.add_argument(
        "--by",
        type=_keys,
        default=("tenant", "road"),
        metavar="KEYS",
        help=f"what to sum by, with commas between: any of {', '.join(_KEYS)}, or `all` for one line "
        "(default: tenant,road)",
    )
    _days(report)
    _format(report)
    report.set_defaults(run=run_report)

    savings = _command(
        under,
        common,
        "savings",
        "what the local tiers saved against a named commercial model",
        "Reckons every record of the window by the price book in force and sets it against the model that the book "
        "names; idle and aborted work are in it. Exit status 0 even if nothing was saved.",
    )
    _window(savings)
    _prices(savings)
    _format(savings)
    savings.set_defaults(run=run_savings)

    export = _command(
        under,
        common,
        "export",
        "write raw records as JSON lines",
        "Requests with their attempts, workers' time and outward requests: ids and numbers only, one JSON object a "
        "line on standard output, for whoever wants to reckon anew.",
    )
    _window(export)
    export.set_defaults(run=run_export)

    reconcile = _command(
        under,
        common,
        "reconcile",
        "compare a provider's bill with the records",
        "Reads a bill as CSV with a header: columns for the day (UTC), the model and the amount, and maybe the "
        "currency; several lines of a day and model are added up. Prints each day and model, and the total. Exit "
        "status 0: within the tolerance; 1: not; 2: the bill or the ledger cannot be read.",
    )
    reconcile.add_argument("invoice", metavar="INVOICE.csv", type=Path)
    reconcile.add_argument(
        "--tolerance",
        metavar="AMOUNT",
        type=_amount,
        help="difference allowed for a line and for the total (default: 0.01 dollars or 1 won)",
    )
    reconcile.add_argument(
        "--percent",
        metavar="P",
        type=_amount,
        default=_amount("0"),
        help="so many percent on top (default: 0)",
    )
    reconcile.add_argument(
        "--currency",
        choices=("USD", "KRW"),
        help="of the bill, where it does not say (default: the price book's)",
    )
    _prices(reconcile)
    _format(reconcile)
    reconcile.set_defaults(run=run_reconcile)


def _command(under: Any, common: Any, name: str, words: str, description: str) -> Any:
    parser = under.add_parser(name, help=words, description=description, allow_abbrev=False)
    common(parser)
    parser.add_argument("--state-dir", metavar="DIR", help="folder of the usage ledger (state_dir)")
    return parser


def _days(parser: Any) -> None:
    parser.add_argument("--since", metavar="DAY", type=_day, help="from this UTC day on, such as 2026-01-31")
    parser.add_argument("--until", metavar="DAY", type=_day, help="up to this UTC day, which is not in it")


def _window(parser: Any) -> None:
    words = "UTC day or instant, such as 2026-01-31 or 2026-01-31T00:00:00+09:00"
    parser.add_argument("--since", metavar="WHEN", type=_instant, help=f"from here on: {words}")
    parser.add_argument("--until", metavar="WHEN", type=_instant, help="up to here, which is not in it")


def _prices(parser: Any) -> None:
    parser.add_argument("--prices", metavar="FILE", help="price book (prices.file)")


def _format(parser: Any) -> None:
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table", help="default: table")


def _keys(text: str) -> tuple[str, ...]:
    if text == "all":
        return ()
    keys = tuple(text.split(","))
    if set(keys) <= set(_KEYS) and len(set(keys)) == len(keys):
        return keys
    raise argparse.ArgumentTypeError(f"must be `all`, or some of {', '.join(_KEYS)} with commas between")


def _day(text: str) -> str:
    from weighbridge.config.exact import instant, instant_text

    try:
        if instant_text(instant(text)) == text:
            return text
    except ValueError:
        pass
    raise argparse.ArgumentTypeError("must be a date such as 2026-01-31")


def _instant(text: str) -> int:
    from weighbridge.config.exact import instant

    try:
        return instant(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def _amount(text: str) -> Any:
    from weighbridge.config.exact import amount

    try:
        return amount(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def run_report(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    from weighbridge.gateway.cli import settings_of
    from weighbridge.gateway.cli_usage_text import usage_text
    from weighbridge.observability.usage_report import Days, read_usage

    days = Days(args.since, args.until)
    report = read_ledger(settings_of(args), lambda conn: read_usage(conn, args.by, days))
    if report is None:
        return CANNOT_TELL
    _print(usage_text(report, args.format))
    return OK


def run_savings(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    from weighbridge.gateway.cli import settings_of
    from weighbridge.gateway.cli_savings_text import savings_text
    from weighbridge.observability.costs import CostTable
    from weighbridge.observability.savings_read import read_savings

    settings = settings_of(args)
    table = CostTable(_book(args, settings))
    report = read_ledger(settings, lambda conn: read_savings(conn, table, _window_of(args)))
    if report is None:
        return CANNOT_TELL
    _print(savings_text(report, args.format))
    return OK


def run_export(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    from weighbridge.gateway.cli import settings_of
    from weighbridge.observability.usage_export import export

    def write(conn: sqlite3.Connection) -> bool:
        for line in export(conn, _window_of(args)):
            _print(line.decode())
        return True

    return OK if read_ledger(settings_of(args), write) else CANNOT_TELL


def run_reconcile(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    from decimal import Decimal

    from weighbridge.config.prices import in_currency
    from weighbridge.gateway.cli import complain, settings_of
    from weighbridge.gateway.cli_usage_text import bill_text
    from weighbridge.observability.costs import CostTable
    from weighbridge.observability.reconcile import MAX_BYTES, BadInvoice, compare, read_bill

    settings = settings_of(args)
    book = _book(args, settings)
    try:
        with args.invoice.open("rb") as file:
            bill = read_bill(file.read(MAX_BYTES + 1), str(args.invoice))
    except OSError as exc:
        complain(f"{args.invoice}: cannot be read: {exc.strerror}")
        return CANNOT_TELL
    except BadInvoice as exc:
        complain(str(exc))
        return CANNOT_TELL
    if args.currency and bill.currency and args.currency != bill.currency:
        complain(f"{args.invoice}: is in {bill.currency}, not in {args.currency}")
        return CANNOT_TELL
    currency = bill.currency or args.currency or book.document.currency
    table = CostTable(in_currency(book, currency))
    lines = read_ledger(settings, lambda conn: compare(conn, table, bill))
    if lines is None:
        return CANNOT_TELL
    usual = Decimal("0.01") if currency == "USD" else Decimal(1)
    tolerance = usual if args.tolerance is None else args.tolerance
    text, differs = bill_text(lines, currency, tolerance, args.percent, args.format)
    _print(text)
    return DIFFERENT if differs else OK


def _window_of(args: argparse.Namespace) -> Window:
    from weighbridge.observability.savings_report import Window

    return Window(args.since, args.until)


def _book(args: argparse.Namespace, settings: Settings) -> PriceBook:
    """Raises: ConfigError, which ends the command in order."""
    from weighbridge.config.prices import load_prices, prices_path

    return load_prices(Path(args.prices) if args.prices is not None else prices_path(settings.prices))


def read_ledger(settings: Settings, work: Callable[[sqlite3.Connection], T]) -> T | None:
    """What `work` makes of the ledger; None, and a word to the operator, where it cannot be read."""
    import sqlite3
    from contextlib import closing

    from weighbridge.gateway.cli import complain
    from weighbridge.observability.ledger_read import LEDGER_FILE, open_readonly
    from weighbridge.observability.ledger_schema import VERSION

    path = settings.state_dir / LEDGER_FILE
    try:
        with closing(open_readonly(path)) as conn:
            conn.row_factory = None
            (version,) = conn.execute("PRAGMA user_version").fetchone()
            if version < VERSION:
                complain(f"{path}: is of an earlier version; the gateway brings it up to date when it starts")
                return None
            return work(conn)
    except sqlite3.Error:
        complain(f"{path}: cannot be read")
        return None


def _print(text: str) -> None:
    sys.stdout.write(text)
