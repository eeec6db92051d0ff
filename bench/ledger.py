"""What the usage ledger costs: what it adds to an answer, and how long a large one takes to be asked things.

The first part hands requests to a whole gateway without HTTP, whose engine answers at once, with its ledger and with
one that does nothing, in blocks that alternate. The second makes a spool of `--rows` records, asks it what an admin
asks, and removes it; ten million take some 5 GB. Goals are printed, not enforced. See docs/ledger.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib import ledger_pairs, ledger_spool, machine
from bench.lib.measuring import table
from bench.lib.processes import forget_settings

ADDED_MS = 1.0
ASKED_MS = 1_000.0
BYTES_A_ROW = 700
"""What one record, its attempt and the write-ahead log take at most while the spool is made."""


def main() -> None:
    args = _arguments()
    forget_settings()
    facts = machine.description()
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    with tempfile.TemporaryDirectory(prefix="weighbridge-bench-", dir=args.folder) as name:
        folder = Path(name)
        added = asyncio.run(ledger_pairs.measure(folder / "gateway", args.pairs, (1, 8, 64)))
        print(f"\n{_added(added)}", flush=True)
        free = shutil.disk_usage(folder).free
        if free < args.rows * BYTES_A_ROW:
            sys.exit(f"{args.rows} rows need {args.rows * BYTES_A_ROW / 1e9:.1f} GB free in {folder.parent}")
        spool = folder / "large" / "ledger.sqlite3"
        made_s, rolled_s = ledger_spool.fill(spool, args.rows)
        size = spool.stat().st_size / 1e9
        print(f"\n{args.rows} records: made in {made_s:.0f} s, added up in {rolled_s:.0f} s, {size:.2f} GB")
        answered = ledger_spool.ask(spool, args.rows)
        answered += [ledger_spool.by_the_rows(spool), ledger_spool.let_go(spool)]
        print(f"\n{_answered(answered)}")
    print(f"\nLoad average {machine.load_average():.2f}.")
    if args.json is not None:
        document = {
            "machine": facts,
            "added": [asdict(one) for one in added],
            "rows": args.rows,
            "answered": [asdict(one) for one in answered],
        }
        args.json.write_text(json.dumps(document, indent=1), encoding="utf-8")


def _added(added: list[ledger_pairs.Added]) -> str:
    rows = [
        [
            str(one.concurrency),
            "yes" if one.stream else "no",
            f"{one.without_p50:.2f}",
            f"{one.with_p50:.2f}",
            f"{one.added_p50:+.2f}",
            f"{one.without_p99:.2f}",
            f"{one.with_p99:.2f}",
            f"{one.without_cpu:.2f}",
            f"{one.with_cpu:.2f}",
        ]
        for one in added
    ]
    head = [
        "at once",
        "stream",
        "p50 without",
        "p50 with",
        "added",
        "p99 without",
        "p99 with",
        "CPU without",
        "CPU with",
    ]
    return (
        f"{table(head, rows)}\nMilliseconds of an answer; goal: at most {ADDED_MS:g} ms added, one at a time."
    )


def _answered(answered: list[ledger_spool.Answered]) -> str:
    rows = [[one.what, f"{one.p50_ms:.1f}", f"{one.most_ms:.1f}", str(one.rows)] for one in answered]
    return f"{table(['question', 'ms', 'most', 'rows'], rows)}\nGoal: each under {ASKED_MS:g} ms."


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=_count, default=200_000, help="records of the large spool (200000)")
    parser.add_argument("--pairs", type=_count, default=20, help="pairs of blocks at each concurrency (20)")
    parser.add_argument(
        "--folder", type=Path, metavar="FOLDER", help="where the spool is made (the temporary one)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    return parser.parse_args()


def _count(text: str) -> int:
    if not 1 <= (value := int(text)) <= 1_000_000_000:
        raise ValueError
    return value


if __name__ == "__main__":
    main()
