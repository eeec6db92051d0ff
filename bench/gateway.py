"""What the gateway costs, in one run: each of its three paths beside references that do less.

A tier elsewhere beside uvicorn alone, the way out beside a plain proxy, the local path beside its bare engine.

CPU time and its ratios are what counts; requests a second depend on what else the machine does. Everything runs over
loopback, bounded in time. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib import elsewhere, local, machine, proxied
from bench.lib.processes import forget_settings


def main() -> None:
    args = _arguments()
    forget_settings()
    began = time.monotonic()
    facts = machine.description()
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    loads = [machine.load_average()]
    local_cells: local.Cells = {}
    with tempfile.TemporaryDirectory(prefix="weighbridge-bench-") as name:
        folder = Path(name)
        elsewhere_cells = elsewhere.run(folder, seconds=args.seconds, rounds=args.rounds)
        print(f"\n{elsewhere.report(elsewhere_cells)}", flush=True)
        loads.append(machine.load_average())
        proxied_cells = proxied.run(folder, seconds=args.seconds, rounds=args.rounds)
        print(f"\n{proxied.report(proxied_cells)}", flush=True)
        loads.append(machine.load_average())
        local.run_fake(folder, local_cells, seconds=args.seconds, rounds=args.rounds)
        loads.append(machine.load_average())
        left_out = "--no-vllm was given"
        if not args.no_vllm:
            left_out = local.run_vllm(folder, local_cells, rounds=args.rounds)
            loads.append(machine.load_average())
        print(f"\n{local.report(local_cells)}")
    if left_out:
        print(f"\nNo local path on vLLM: {left_out}.")
    shown = ", ".join(f"{load:.2f}" for load in loads)
    print(
        f"\n{args.rounds} rounds; medians over rounds, ratios and differences taken round by round. Load average "
        f"between the parts: {shown}. Took {time.monotonic() - began:.0f} s."
    )
    if args.json is not None:
        cells = [
            {"path": path, "cell": list(key), "rounds": [asdict(one) for one in cell.rounds]}
            for path, measured in (
                ("proxied", elsewhere_cells),
                ("commercial", proxied_cells),
                ("local", local_cells),
            )
            for key, cell in measured.items()
        ]
        document = {"machine": facts, "load_average": loads, "cells": cells}
        args.json.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=_seconds, default=1.2, help="length of one cell, 0.1 to 60 (1.2)")
    parser.add_argument("--rounds", type=_rounds, default=3, help="rounds of every cell, 1 to 100 (3)")
    parser.add_argument("--no-vllm", action="store_true", help="leave out the local path on vLLM")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round's numbers here")
    return parser.parse_args()


def _seconds(text: str) -> float:
    if not 0.1 <= (value := float(text)) <= 60:
        raise ValueError
    return value


def _rounds(text: str) -> int:
    if not 1 <= (value := int(text)) <= 100:
        raise ValueError
    return value


if __name__ == "__main__":
    main()
