"""What the pairs of one concurrency say, as text, and whether that passes the gate."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.lib.bootstrap import Interval, interval
from bench.lib.halves import Half
from bench.lib.measuring import table
from bench.lib.pairs import FOREIGN_CORES, OURS, RAW, Pair
from bench.lib.tree import CORE, MASKING, OTHER, SERVER, WORKER

GATE, GOAL = 0.90, 0.98
FEWEST = 7
"""Pairs that a verdict needs."""
BARE = "chat layer alone"


@dataclass(frozen=True)
class Bare:
    """vLLM's chat layer in process, driven without HTTP.

    rate: tokens a second; cpu_us: microseconds of CPU a token in its own process.
    """

    rate: float
    p50_ms: float
    cpu_us: float


@dataclass(frozen=True)
class Verdict:
    """Of one concurrency.

    passed: None where too few pairs count to say.
    """

    concurrency: int
    pairs: int
    ratio: Interval
    passed: bool | None
    goal_met: bool


def verdict(concurrency: int, pairs: Sequence[Pair]) -> Verdict:
    """Args: pairs: those that count, one at least."""
    ratio = interval([pair.ratio for pair in pairs])
    return Verdict(
        concurrency=concurrency,
        pairs=len(pairs),
        ratio=ratio,
        passed=ratio.low >= GATE if len(pairs) >= FEWEST else None,
        goal_met=len(pairs) >= FEWEST and ratio.low >= GOAL,
    )


def exit_status(verdicts: Sequence[Verdict], *, quick: bool) -> int:
    """0 passed, or too quick a run to say; 1 below the gate; 2 the machine was too busy to say."""
    if any(one.passed is False for one in verdicts):
        return 1
    if not quick and any(one.passed is None for one in verdicts):
        return 2
    return 0


def line(number: int, pair: Pair) -> str:
    """One pair, as soon as it is measured."""
    text = (
        f"pair {number}, {pair.concurrency} callers, {pair.first} first: {RAW} {pair.raw.rate:.1f}, "
        f"{OURS} {pair.ours.rate:.1f} tokens/s, ratio {pair.ratio:.3f}; "
        f"load average {pair.load_before:.2f} to {pair.load_after:.2f}; "
        f"cores of others {pair.raw.foreign_cores:.2f} / {pair.ours.foreign_cores:.2f}, "
        f"of the idle server {pair.raw.idle_cores:.2f} / {pair.ours.idle_cores:.2f}"
    )
    return text if pair.counts else f"{text}; DOES NOT COUNT (others above {FOREIGN_CORES} cores)"


def section(found: Verdict, pairs: Sequence[Pair], bare: Bare | None) -> str:
    """Table and sentences of one concurrency."""
    sides = {RAW: [pair.raw for pair in pairs], OURS: [pair.ours for pair in pairs]}
    head = [
        "",
        "tokens/s",
        "p50 s",
        "server us/token",
        "EngineCore",
        "Worker",
        "masking, other",
        "load generator",
    ]
    rows = [
        [
            name,
            f"{_median(halves, lambda half: half.rate):.1f}",
            f"{_median(halves, lambda half: half.p50_ms) / 1000:.2f}",
            *(
                f"{_median(halves, lambda half, role=role: half.cpu_us(role)):,.0f}"
                for role in (SERVER, CORE, WORKER)
            ),
            f"{_median(halves, lambda half: half.cpu_us(MASKING) + half.cpu_us(OTHER)):,.0f}",
            f"{_median(halves, lambda half: half.generator_s / half.tokens * 1e6):,.0f}",
        ]
        for name, halves in sides.items()
    ]
    if bare is not None:
        rows.append(
            [
                BARE,
                f"{bare.rate:.1f}",
                f"{bare.p50_ms / 1000:.2f}",
                f"{bare.cpu_us:,.0f}",
                *[""] * (len(head) - 4),
            ]
        )
    ratios = ", ".join(f"{pair.ratio:.3f}" for pair in pairs)
    cpu = interval([pair.cpu_ratio for pair in pairs])
    ratio = found.ratio
    lines = [
        f"### {found.concurrency} callers, medians of {found.pairs} pairs",
        "",
        table(head, rows),
        "",
        f"Tokens a second, {OURS} / {RAW}: {ratio.median:.3f}, 95 % interval {ratio.low:.3f} to {ratio.high:.3f} "
        f"({ratios}).",
        *_busy(pairs),
        f"CPU a token of the server's own process, {OURS} / {RAW}: {cpu.median:.2f} ({cpu.low:.2f} to {cpu.high:.2f}).",
        _judged(found),
    ]
    return "\n".join(lines)


def _busy(pairs: Sequence[Pair]) -> list[str]:
    ratios = [ratio for pair in pairs if (ratio := pair.busy_ratio) is not None]
    if not ratios:
        return []
    busy = interval(ratios)
    return [f"Worker kept busy, {OURS} / {RAW}: {busy.median:.3f} ({busy.low:.3f} to {busy.high:.3f})."]


def _judged(found: Verdict) -> str:
    if found.passed is None:
        return f"No verdict: {found.pairs} pairs count, {FEWEST} are needed."
    passed = "passed" if found.passed else "MISSED"
    goal = "met" if found.goal_met else "not met"
    return f"Gate (lower bound at least {GATE:.2f}) {passed}; goal (at least {GOAL:.2f}) {goal}."


def _median(halves: Sequence[Half], of: Callable[[Half], float]) -> float:
    return statistics.median(map(of, halves))
