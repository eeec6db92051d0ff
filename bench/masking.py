"""What masking costs, in one run: CPU for about 500 tokens and one core, memory, starting, and the event loop's lag.

CPU time counts, the children's included, for each text a new one, and beside it a reference loop in plain Python that
is run before and after: a ratio of the two can be compared between machines. Goals are printed, not enforced. The lag
of the event loop is meant for an idle machine. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib import machine
from bench.lib.masking_texts import CHARS, ENGLISH, KOREAN, Texts
from bench.lib.measuring import table
from bench.lib.memory import megabytes
from bench.lib.processes import forget_settings
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking.detector_child import DetectorChild
from weighbridge.masking.detector_nursery import DetectorNursery
from weighbridge.masking.layers.registry import OPTIONAL
from weighbridge.masking.masker import Masker, setup_of
from weighbridge.masking.rules import Rules
from weighbridge.masking.span_cache import SpanCache

CLOCK = SystemClock()
IN_FLIGHT = 4
HEARTBEAT_S = 0.002
QUIET_MS = 5.0
"""The idle loop's p99 from which others take so much of the machine that the busy one says nothing."""
TURNS = 20
RESPAWNS = 20
WARM_UP = 5
EVERYTHING_LEAVES = Rules(refused=frozenset(), max_people=1_000_000)

_KOREAN_LAYERS = ("ko-rules", "ko-pii", "maskingtape", "kiwi")
_ENGLISH_LAYERS = ("en-rules", "spacy-en")


@dataclass(frozen=True)
class Cost:
    """What one kind of work costs.

    cpu_ms: medians of milliseconds for one text; ratio: to the reference loop around it; goal_ms: None for no goal.
    """

    what: str
    language: str
    layers: tuple[str, ...]
    cpu_ms: float
    ratio: float
    goal_ms: float | None


def reference() -> float:
    """Milliseconds of CPU for a hundred thousand additions in plain Python, the best of some."""

    def once() -> float:
        began = time.thread_time()
        total = 0
        for number in range(100_000):
            total += number
        return time.thread_time() - began

    return min(once() for _ in range(9)) * 1_000


def settings_with(layers: Sequence[str], workers: int = 1) -> MaskingSettings:
    return MaskingSettings.model_validate(
        {"layers": list(layers), "workers": workers, "without_names": "mask"}
    )


def present(layers: Sequence[str]) -> tuple[str, ...]:
    """Those whose module is there; what it needs beside is told by the nursery."""
    return tuple(name for name in layers if find_spec(f"weighbridge.masking.layers.{OPTIONAL[name]}"))


@asynccontextmanager
async def nursery_with(layers: Sequence[str]) -> AsyncIterator[DetectorNursery]:
    """One with these layers."""
    nursery = DetectorNursery(setup_of(settings_with(present(layers))))
    try:
        yield nursery
    finally:
        await nursery.close()


@asynccontextmanager
async def masker_from(
    nursery: DetectorNursery, workers: int = 1
) -> AsyncIterator[tuple[Masker, list[DetectorChild]]]:
    """A masker, and the processes it has started."""
    started: list[DetectorChild] = []

    async def start() -> DetectorChild:
        started.append(await nursery.start_child())
        return started[-1]

    masker = Masker(settings_with((), workers), CLOCK, start_child=start)
    await masker.start()
    if not masker.ready:
        raise RuntimeError("masking did not start; the lines above say why")
    try:
        yield masker, started
    finally:
        await masker.close()


async def mask_turns(masker: Masker, texts: Sequence[str], conversation: str) -> None:
    await masker.mask(
        {"messages": [{"role": "user", "content": text} for text in texts]},
        request_id="bench",
        upstream_model="m",
        conversation=conversation,
        deadline=Deadline.after(CLOCK, 60),
        rules=EVERYTHING_LEAVES,
    )


async def detection(nursery: DetectorNursery, what: str, language: str, goal_ms: float, rounds: int) -> Cost:
    """CPU of a worker for one text."""
    texts = Texts(language)
    child = await nursery.start_child()
    for _ in range(WARM_UP):
        await child.find([texts.next()], 60)
    spent: list[float] = []
    loops = [reference()]
    for _ in range(rounds):
        before = machine.cpu_seconds(child.pid)
        await child.find([texts.next()], 60)
        spent.append((machine.cpu_seconds(child.pid) - before) * 1_000)
    loops.append(reference())
    await child.kill()
    cpu_ms = statistics.median(spent)
    return Cost(what, language, child.ready.layers, cpu_ms, cpu_ms / statistics.mean(loops), goal_ms)


async def whole(nursery: DetectorNursery, what: str, language: str, goal_ms: float, rounds: int) -> Cost:
    """CPU of `mask()`, here and in the worker, for one text of a new conversation."""
    texts = Texts(language, seed=2)
    async with masker_from(nursery) as (masker, (child,)):
        for number in range(WARM_UP):
            await mask_turns(masker, [texts.next()], f"warm {number}")
        spent: list[float] = []
        loops = [reference()]
        for number in range(rounds):
            before = machine.cpu_seconds(child.pid) + time.process_time()
            await mask_turns(masker, [texts.next()], f"new {number}")
            spent.append((machine.cpu_seconds(child.pid) + time.process_time() - before) * 1_000)
        loops.append(reference())
        cpu_ms = statistics.median(spent)
        return Cost(what, language, masker.layers, cpu_ms, cpu_ms / statistics.mean(loops), goal_ms)


async def lag(nursery: DetectorNursery, seconds: float) -> dict[str, float]:
    """Milliseconds by which a heartbeat on the event loop came late, idle and with requests in flight."""
    async with masker_from(nursery, workers=2) as (masker, _):
        done = 0

        async def client(number: int) -> None:
            nonlocal done
            texts = Texts(KOREAN if number % 2 else ENGLISH, seed=number + 10)
            while True:
                await mask_turns(masker, [texts.next()], f"{number} {done}")
                done += 1

        async def beat() -> list[float]:
            late: list[float] = []
            until = time.monotonic() + seconds
            while (now := time.monotonic()) < until:
                await asyncio.sleep(HEARTBEAT_S)
                late.append((time.monotonic() - now - HEARTBEAT_S) * 1_000)
            return late

        async def turns() -> list[float]:
            """What each turn of the loop costs, in CPU: says the same on a busy machine."""
            spent: list[float] = []
            until = time.monotonic() + seconds / 2
            used = time.thread_time()
            while time.monotonic() < until:
                await asyncio.sleep(0)
                now = time.thread_time()
                spent.append((now - used) * 1_000)
                used = now
            return spent

        idle = await beat()
        clients = [asyncio.create_task(client(number)) for number in range(IN_FLIGHT)]
        busy = await beat()
        measured = done
        spent = await turns()
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        return {
            "idle p99": statistics.quantiles(idle, n=100)[98],
            "busy p50": statistics.median(busy),
            "busy p99": statistics.quantiles(busy, n=100)[98],
            "busy max": max(busy),
            "requests a second": measured / seconds,
            "CPU of the longest turn of the loop": max(spent),
        }


async def processes(nursery: DetectorNursery) -> dict[str, float]:
    """Starting, replacing, and memory after some work, of a nursery that does not run yet."""
    began = time.monotonic()
    child = await nursery.start_child()
    facts = {
        "first worker, s": time.monotonic() - began,
        "loading, s of CPU": machine.cpu_seconds(nursery.pid),
    }
    again: list[float] = []
    for _ in range(RESPAWNS):
        began = time.monotonic()
        await child.kill()
        child = await nursery.start_child()
        again.append((time.monotonic() - began) * 1_000)
    facts["kill to next worker, ms, median"] = statistics.median(again)
    facts["kill to next worker, ms, worst"] = max(again)
    workers = [child, await nursery.start_child()]
    for worker in workers:
        for language in (KOREAN, ENGLISH):
            texts = Texts(language, seed=5)
            for _ in range(20):
                await worker.find([texts.next()], 60)
    for name, pid in (
        ("nursery", nursery.pid),
        ("first worker", workers[0].pid),
        ("second worker", workers[1].pid),
    ):
        facts |= {f"{name}, {kind} MB": size for kind, size in megabytes(pid).items()}
    for worker in workers:
        await worker.kill()
    return facts


async def chat(nursery: DetectorNursery) -> dict[str, float]:
    """CPU of masking every turn of a chat that sends its whole history, with what was found before and without."""
    texts = Texts(KOREAN, seed=7)
    turns = [texts.next() for _ in range(TURNS)]
    spent: dict[str, float] = {}
    async with masker_from(nursery) as (masker, (child,)):
        await mask_turns(masker, [texts.next()], "warm")
        for name, conversation in (("with", "chat"), ("without", "chat {}")):
            before = machine.cpu_seconds(child.pid), time.process_time()
            for turn in range(1, TURNS + 1):
                await mask_turns(masker, turns[:turn], conversation.format(turn))
            spent[f"{name}, detectors, ms"] = (machine.cpu_seconds(child.pid) - before[0]) * 1_000
            spent[f"{name}, here, ms"] = (time.process_time() - before[1]) * 1_000
    began = time.thread_time()
    cache = SpanCache()
    for turn in range(1, TURNS + 1):
        cache.keys("chat", "version", turns[:turn])
    spent["of that the keys, ms"] = (time.thread_time() - began) * 1_000
    return spent


def costs_table(costs: Sequence[Cost]) -> str:
    head = ["", "language", "CPU ms", "x reference", "goal ms", ""]
    rows = [
        [
            cost.what,
            cost.language,
            f"{cost.cpu_ms:.1f}",
            f"{cost.ratio:.1f}",
            "" if cost.goal_ms is None else f"{cost.goal_ms:.0f}",
            "" if cost.goal_ms is None else "met" if cost.cpu_ms <= cost.goal_ms else "MISSED",
        ]
        for cost in costs
    ]
    return table(head, rows)


def facts_table(title: str, facts: dict[str, float]) -> str:
    return table([title, ""], [[name, f"{value:,.1f}"] for name, value in facts.items()])


async def run(rounds: int, seconds: float) -> dict[str, object]:
    both = (*_KOREAN_LAYERS, *_ENGLISH_LAYERS)
    costs: list[Cost] = []
    async with nursery_with(()) as nursery:
        for language in (KOREAN, ENGLISH):
            costs.append(await detection(nursery, "structured alone", language, 8, rounds))
    async with nursery_with(_KOREAN_LAYERS) as nursery:
        costs.append(await detection(nursery, "Korean layers", KOREAN, 25, rounds))
    async with nursery_with(_ENGLISH_LAYERS) as nursery:
        costs.append(await detection(nursery, "English layers", ENGLISH, 60, rounds))
    async with nursery_with(both) as nursery:
        started = await processes(nursery)
        for language, goal_ms in ((KOREAN, 25), (ENGLISH, 60)):
            costs.append(await detection(nursery, "all layers", language, goal_ms, rounds))
        for language, goal_ms in ((KOREAN, 45), (ENGLISH, 85)):
            costs.append(await whole(nursery, "mask(), all layers", language, goal_ms, rounds))
        print(f"{costs_table(costs)}\n\nAll layers: {', '.join(costs[-1].layers)}.", flush=True)
        late = await lag(nursery, seconds)
        turns = await chat(nursery)
    print(f"\n{facts_table(f'event loop, {IN_FLIGHT} in flight, ms late', late)}")
    if late["idle p99"] >= QUIET_MS:
        verdict = "cannot be told while others keep this machine busy"
    else:
        verdict = "met" if late["busy p99"] < 10 else "MISSED"
    print(f"\nGoal for the busy p99: below 10 ms, {verdict}.")
    print(f"\n{facts_table('processes, all layers', started)}")
    print(f"\n{facts_table(f'chat of {TURNS} turns, what was found before', turns)}")
    return {"costs": [asdict(cost) for cost in costs], "lag": late, "processes": started, "chat": turns}


def main() -> None:
    args = _arguments()
    forget_settings()
    began = time.monotonic()
    facts = machine.description()
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    sizes = ", ".join(f"{chars:,} characters of {language}" for language, chars in CHARS.items())
    print(f"About 500 tokens: {sizes}. Medians of {args.rounds} texts.\n", flush=True)
    load = machine.load_average()
    found = asyncio.run(run(args.rounds, args.seconds))
    print(
        f"\nLoad average before and after: {load:.2f}, {machine.load_average():.2f}. "
        f"Took {time.monotonic() - began:.0f} s."
    )
    if args.json is not None:
        args.json.write_text(json.dumps({"machine": facts, **found}, indent=1), encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60, help="texts of each row (60)")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the look at the event loop (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every number here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
