"""The savings report in a process of its own: reading a million records must not take the interpreter from a gateway.

`python -m weighbridge.observability.savings_job LEDGER PRICES SINCE_NS UNTIL_NS` prints it as JSON. Exit status 1: the
ledger cannot be read; 3: the price book cannot be used.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from weighbridge.config.errors import ConfigError
from weighbridge.config.prices import load_prices
from weighbridge.observability.costs import CostTable
from weighbridge.observability.ledger_read import open_readonly
from weighbridge.observability.money import told
from weighbridge.observability.savings_read import read_savings
from weighbridge.observability.savings_report import Window

_NICENESS: Final = 10
_OF_THE_LEDGER, _OF_THE_PRICES = 1, 3
"""Exit statuses. Python's own are 1 and 2."""


class JobFailed(Exception):
    """There is no report: the ledger cannot be read, or it took too long."""


class PricesUnusable(Exception):
    """There is no report: the price file is missing or broken."""


async def run_job(ledger: Path, prices: Path, window: Window, timeout_s: float) -> dict[str, Any]:
    """The report of a window as plain data, see `money.told`. The process is gone when this returns or is cancelled.

    Args:
        window: with both of its ends.
        timeout_s: seconds it may take.

    Raises:
        PricesUnusable: there is none, because of the price file.
        JobFailed: there is none, for another reason.
    """
    arguments = [str(ledger), str(prices), str(window.since_ns), str(window.until_ns)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, _ = await process.communicate()
    except TimeoutError:
        raise JobFailed from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == _OF_THE_PRICES:
        raise PricesUnusable
    if process.returncode != 0:
        raise JobFailed
    report: dict[str, Any] = msgspec.json.decode(out)
    return report


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status."""
    ledger, prices, since, until = arguments
    os.nice(_NICENESS)
    try:
        table = CostTable(load_prices(Path(prices)))
    except ConfigError:
        return _OF_THE_PRICES
    try:
        with closing(open_readonly(Path(ledger))) as conn:
            conn.row_factory = None
            report = read_savings(conn, table, Window(int(since), int(until)))
    except sqlite3.Error:
        return _OF_THE_LEDGER
    sys.stdout.buffer.write(msgspec.json.encode(told(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
