"""One measured cell, and what several rounds of it say."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.lib.machine import cpu_seconds


@dataclass
class Round:
    """What one target did in one round.

    cpu_s: CPU seconds of each watched process, by its name.
    """

    requests: int
    events: int
    seconds: float
    p50_ms: float
    cpu_s: dict[str, float]


@dataclass
class Cell:
    """The rounds of one target under one load."""

    rounds: list[Round] = field(default_factory=list)

    def median(self, of: Callable[[Round], float]) -> float:
        return statistics.median(map(of, self.rounds))

    def rate(self) -> float:
        """Requests a second."""
        return self.median(lambda one: one.requests / one.seconds)

    def event_rate(self) -> float:
        return self.median(lambda one: one.events / one.seconds)

    def p50_ms(self) -> float:
        return self.median(lambda one: one.p50_ms)

    def cpu_per_request(self, process: str) -> float:
        """Microseconds."""
        return self.median(lambda one: one.cpu_s[process] / one.requests * 1e6)

    def cpu_per_event(self, process: str) -> float:
        """Microseconds, everything a request costs spread over its events."""
        return self.median(lambda one: one.cpu_s[process] / one.events * 1e6)

    def cpu_ratio(self, processes: Sequence[str], other: Cell, its_processes: Sequence[str]) -> float:
        """CPU per request here over that of `other`: the median of the rounds' own ratios."""
        return statistics.median(
            (sum(mine.cpu_s[name] for name in processes) / mine.requests)
            / (sum(its.cpu_s[name] for name in its_processes) / its.requests)
            for mine, its in zip(self.rounds, other.rounds, strict=True)
        )

    def cpu_above(self, process: str, other: Cell, other_process: str) -> float:
        """CPU per request here beyond that of `other`, in microseconds: the median of the rounds' own differences."""
        return statistics.median(
            (mine.cpu_s[process] / mine.requests - its.cpu_s[other_process] / its.requests) * 1e6
            for mine, its in zip(self.rounds, other.rounds, strict=True)
        )

    def spread(self, of: Callable[[Round], float]) -> str:
        """Lowest and highest round."""
        values = [of(one) for one in self.rounds]
        return f"{min(values):.0f}-{max(values):.0f}"


def measure(cell: Cell, watched: Mapping[str, int], run: Callable[[], dict[str, Any]]) -> None:
    """Add one round: `run` makes the load and says what it was; `watched` maps names to process ids.

    Raises:
        RuntimeError: an answer was wrong. A benchmark of wrong answers says nothing.
    """
    before = {name: cpu_seconds(pid) for name, pid in watched.items()}
    said = run()
    cpu = {name: cpu_seconds(pid) - before[name] for name, pid in watched.items()}
    if "failed" in said:
        raise RuntimeError(f"a request failed: {said['failed']}")
    cell.rounds.append(Round(said["requests"], said["events"], said["seconds"], said["p50_ms"], cpu))


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table whose columns line up."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| "
        + " | ".join(
            cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in lines
    )
