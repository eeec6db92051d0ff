"""Tokens a second through the gateway, beside `vllm serve` with the same model, arguments and cores.

Both servers are up at the same time and take turns under load, pair by pair. Exit status: 0 the lower bound of the
ratio is at least 0.90 everywhere; 1 it is not; 2 the machine was too busy to say, or vLLM is missing. See
docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib import goodput_report as report
from bench.lib import machine
from bench.lib.halves import Load, Measure, Side, check, job
from bench.lib.pairs import OURS, RAW, Pair, collect
from bench.lib.processes import Gateway, Program, forget_settings
from bench.lib.raw import RawServer
from bench.lib.tree import CORE, WORKER, Tree
from weighbridge.config.roads import LOCAL_8B, LOCAL_70B
from weighbridge.pool.preflight import vllm_installed

START_S = 300.0
IDLE_S = 5.0
IDLE_CORES = 0.05
"""An idle engine that burns more than this is worth a word."""
WAVES = 2
"""Requests of each caller in a half."""
BARE_ROUNDS = 2
WARM_UP = -1
"""The turn whose prompts no pair has."""


def settings(concurrency: int, *, cores: list[int]) -> dict[str, object]:
    """The gateway's settings: one tier that never overflows, no keys. Its engine is the raw server's too.

    The engine's threads keep off the first core, where there is another.
    """
    tier: dict[str, object] = {
        "max_model_len": 1024,
        "max_num_seqs": max(64, concurrency),
        "max_num_batched_tokens": 2048,
        "slots": max(64, concurrency),
    }
    if len(cores) > 1:
        tier["omp_cpus"] = ",".join(map(str, cores[1:]))
    return {"auth": {}, "tiers": {LOCAL_8B: tier, LOCAL_70B: None}}


def main() -> int:
    args = _arguments()
    if not vllm_installed():
        print("vLLM is not installed, and without it there is nothing to compare.")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the servers end as they do after Ctrl-C
    forget_settings()
    began = time.monotonic()
    facts = machine.description()
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    loads = {one: Load(one, one * WAVES, args.tokens) for one in args.concurrency}
    pairs: list[Pair] = []
    bare: dict[int, report.Bare] = {}
    with tempfile.TemporaryDirectory(prefix="weighbridge-bench-") as name:
        folder = Path(name)
        chosen = settings(max(loads), cores=sorted(os.sched_getaffinity(0)))
        with ExitStack() as stack:
            gateway = stack.enter_context(
                Gateway(folder / "gateway", chosen, token_s=None, timeout_s=START_S)
            )
            # One after the other: what the first compiles is there for the second.
            raw = stack.enter_context(RawServer(folder / "raw", gateway.config, timeout_s=START_S))
            print(raw.command, flush=True)
            generator = stack.enter_context(Program(folder, "bench.lib.load"))
            generator.ready()
            pairs = _pairs(gateway, raw, Measure(generator, LOCAL_8B), loads, args.pairs)
        if not args.no_bare:
            bare = _bare(folder, gateway.config, loads)
    verdicts = _report(pairs, loads, bare)
    print(f"\nTook {time.monotonic() - began:.0f} s.")
    if args.json is not None:
        document = {
            "machine": facts,
            "pairs": [asdict(pair) | {"counts": pair.counts} for pair in pairs],
            "verdicts": [asdict(one) for one in verdicts],
            "bare": {one: asdict(cell) for one, cell in bare.items()},
        }
        args.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    if len(verdicts) < len(loads) and not args.quick:
        return 2
    return report.exit_status(verdicts, quick=args.quick)


def _pairs(
    gateway: Gateway, raw: RawServer, measure: Measure, loads: dict[int, Load], wanted: int
) -> list[Pair]:
    most = loads[max(loads)]

    def sides() -> dict[str, Side]:
        return {
            RAW: Side(RAW, raw.chat_url, Tree(raw.pid, require=(CORE, WORKER))),
            OURS: Side(OURS, gateway.chat_url, Tree(gateway.pid, require=(CORE, WORKER))),
        }

    up = sides()
    for busy, idle in ((RAW, OURS), (OURS, RAW)):
        measure.half(up[busy], up[idle], most, WARM_UP)
    up = sides()
    for name, cores in measure.idle_cores(tuple(up.values()), IDLE_S).items():
        shown = ", ".join(f"{role} {used:.3f}" for role, used in cores.items() if used >= 0.0005)
        spins = " - an idle engine that is not idle" if sum(cores.values()) > IDLE_CORES else ""
        print(f"idle {name}: {sum(cores.values()):.3f} cores ({shown or 'nothing'}){spins}", flush=True)

    pairs = []
    spare = max(1, wanted // 2)
    for pair in collect(tuple(loads), wanted, spare, partial(_pair, up, measure, loads)):
        pairs.append(pair)
        print(report.line(len(pairs), pair), flush=True)
    return pairs


def _pair(
    up: dict[str, Side],
    measure: Measure,
    loads: dict[int, Load],
    turn: int,
    concurrency: int,
    order: tuple[str, str],
) -> Pair:
    before = machine.load_average()
    first, second = order
    halves = {
        busy: measure.half(up[busy], up[idle], loads[concurrency], turn)
        for busy, idle in ((first, second), (second, first))
    }
    return Pair(concurrency, first, halves[RAW], halves[OURS], before, machine.load_average())


def _bare(folder: Path, config: Path, loads: dict[int, Load]) -> dict[int, report.Bare]:
    """vLLM's chat layer in process, after the servers are gone."""
    found: dict[int, report.Bare] = {}
    least = loads[min(loads)]
    with Program(folder, "bench.lib.bare", "vllm", str(config)) as bare:
        bare.ready(START_S)
        check(bare.ask(job(least, WARM_UP, model=LOCAL_8B), START_S), least, report.BARE)
        for concurrency, load in loads.items():
            rates, waits, cpu = [], [], []
            for turn in range(BARE_ROUNDS):
                before = machine.cpu_seconds(bare.pid)
                said = bare.ask(job(load, turn, model=LOCAL_8B), START_S)
                used = machine.cpu_seconds(bare.pid) - before
                check(said, load, report.BARE)
                rates.append(said["events"] / said["seconds"])
                waits.append(said["p50_ms"])
                cpu.append(used / said["events"] * 1e6)
            found[concurrency] = report.Bare(*map(statistics.median, (rates, waits, cpu)))
    return found


def _report(pairs: list[Pair], loads: dict[int, Load], bare: dict[int, report.Bare]) -> list[report.Verdict]:
    counted: dict[int, list[Pair]] = defaultdict(list)
    for pair in pairs:
        if pair.counts:
            counted[pair.concurrency].append(pair)
    verdicts = []
    for concurrency in loads:
        if not counted[concurrency]:
            print(f"\n### {concurrency} callers\n\nNo verdict: others used the machine during every pair.")
            continue
        verdicts.append(report.verdict(concurrency, counted[concurrency]))
        print(f"\n{report.section(verdicts[-1], counted[concurrency], bare.get(concurrency))}")
    return verdicts


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=_number, default=report.FEWEST, help="pairs that must count (7)")
    parser.add_argument(
        "--concurrency", type=_numbers, default=(10, 50), metavar="N,N", help="callers at a time (10,50)"
    )
    parser.add_argument("--tokens", type=_number, default=64, help="tokens of each answer (64)")
    parser.add_argument("--quick", action="store_true", help="2 pairs of 4 callers, 16 tokens; no verdict")
    parser.add_argument("--no-bare", action="store_true", help="leave out the chat layer alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every pair's numbers here")
    args = parser.parse_args()
    if args.quick:
        args.pairs, args.concurrency, args.tokens = 2, (4,), 16
    return args


def _number(text: str) -> int:
    if not 1 <= (value := int(text)) <= 512:
        raise ValueError
    return value


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_number(part) for part in text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
