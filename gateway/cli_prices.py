"""`weighbridge prices check`: is a price book sound, and what does it come to?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weighbridge.config.prices import PriceBook


def add_prices(commands: Any, common: Any) -> None:
    """Add the commands to the parser.

    Args:
        commands: what `add_subparsers` gave.
        common: adds the options that all commands share to one of them.
    """
    prices = commands.add_parser("prices", help="what things cost", allow_abbrev=False)
    check = prices.add_subparsers(metavar="COMMAND", required=True).add_parser(
        "check",
        help="check a price book and print what it comes to",
        description="Checks a price book and prints its version, the cost of a worker hour of each tier and the token "
        "prices, all in the book's currency and as they are today. Exit status 2 and a line 'file:line:column: field: "
        "message' for each problem.",
        allow_abbrev=False,
    )
    common(check)
    check.add_argument("file", metavar="FILE", nargs="?", type=Path, help="price book (default: prices.file)")
    check.set_defaults(run=run_check)


def run_check(args: argparse.Namespace) -> int:
    """Returns the exit status. Raises: ConfigError, which ends the command in order."""
    from weighbridge.config.clock import SystemClock
    from weighbridge.config.prices import load_prices, prices_path
    from weighbridge.gateway.cli import settings_of

    path = args.file if args.file is not None else prices_path(settings_of(args).prices)
    _tell(load_prices(path), SystemClock().wall_ns())
    return 0


def _tell(book: PriceBook, now_ns: int) -> None:
    from weighbridge.gateway.cli_usage_text import table_text
    from weighbridge.observability.costs import CostTable
    from weighbridge.observability.money import shown

    table = CostTable(book)
    print(f"prices: {book.version}, in {table.currency}")
    if book.is_example:
        print("These are the shipped EXAMPLE, not yours: put in your own (prices.file).")
    print(
        f"compared with: {table.compared_with}, a local token taken as {table.token_factor_text} of its tokens\n"
    )
    rows = [("tier", "worker hour")]
    for road in book.document.tiers:
        rate = table.worker_rate(road, now_ns)
        rows.append((road, "not yet" if rate is None else shown(rate.shown, table.currency)))
    print(table_text(rows, left=1))
    rows_of_models = [("model, 1M tokens", "prompt", "cached", "answer")]
    for model in book.document.commercial:
        price = table.token_rate(model, now_ns)
        amounts = (
            ("not yet",) * 3
            if price is None
            else (
                shown(price.cost(1_000_000, 0, 0), table.currency),
                shown(price.cost(1_000_000, 1_000_000, 0), table.currency),
                shown(price.cost(0, 0, 1_000_000), table.currency),
            )
        )
        rows_of_models.append((model, *amounts))
    print(table_text(rows_of_models, left=1), end="")
