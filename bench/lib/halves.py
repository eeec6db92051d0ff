"""One half of a pair: one server under load, the other idle beside it, and everybody's CPU time meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.lib import prompts
from bench.lib.machine import busy_seconds, cpu_seconds
from bench.lib.processes import Program
from bench.lib.tree import SERVER, Tree, since

LONGEST_S = 600.0
"""For all requests of a half together, and so for each."""


@dataclass(frozen=True)
class Load:
    """How much a half is: `concurrency` callers share `requests` requests of `tokens` tokens each."""

    concurrency: int
    requests: int
    tokens: int


@dataclass(frozen=True)
class Side:
    """A server to compare, with the processes below it."""

    name: str
    url: str
    tree: Tree


@dataclass(frozen=True)
class Half:
    """What one server did under one load.

    cpu_s: its CPU seconds by role (`bench.lib.tree`).
    generator_s: the load generator's.
    idle_cores: cores the idle server kept busy.
    foreign_cores: cores that everybody else on the machine kept busy.
    """

    tokens: int
    seconds: float
    p50_ms: float
    cpu_s: dict[str, float]
    generator_s: float
    idle_cores: float
    foreign_cores: float

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds

    def cpu_us(self, role: str = SERVER) -> float:
        """Microseconds of CPU a token."""
        return self.cpu_s[role] / self.tokens * 1e6


def job(load: Load, turn: int, *, model: str) -> dict[str, object]:
    """For `bench.lib.load` and `bench.lib.bare`; without the address."""
    return {
        "headers": {},
        "bodies": prompts.bodies(turn, load.requests, model=model, tokens=load.tokens),
        "concurrency": load.concurrency,
        "count": load.requests,
        "seconds": LONGEST_S,
        "request_limit_s": LONGEST_S,
        "tokens": True,
    }


def check(said: dict[str, object], load: Load, name: str) -> None:
    """Raises: RuntimeError, when an answer was wrong or there were not as many tokens as were asked for."""
    if "failed" in said:
        raise RuntimeError(f"{name}: a request failed: {said['failed']}")
    if said["events"] != load.requests * load.tokens:
        raise RuntimeError(f"{name}: {said['events']} tokens, not {load.requests} x {load.tokens}")


class Measure:
    """Runs halves.

    Args:
        generator: `bench.lib.load`, ready.
        model: the name that both servers know the model by.
    """

    def __init__(self, generator: Program, model: str) -> None:
        self._generator = generator
        self._model = model

    def half(self, busy: Side, idle: Side, load: Load, turn: int) -> Half:
        """Put `busy` under load.

        Args:
            turn: which prompts; each server sees each turn once.

        Raises:
            RuntimeError: an answer was wrong.
        """
        work = job(load, turn, model=self._model) | {"url": busy.url}
        before = self._now(busy, idle)
        said = self._generator.ask(work, LONGEST_S + 60)
        after = self._now(busy, idle)
        check(said, load, busy.name)
        wall = after.at - before.at
        ours = after.all - before.all
        return Half(
            tokens=said["events"],
            seconds=said["seconds"],
            p50_ms=said["p50_ms"],
            cpu_s=since(before.busy, after.busy),
            generator_s=after.generator - before.generator,
            idle_cores=sum(since(before.idle, after.idle).values()) / wall,
            foreign_cores=max(0.0, (after.machine - before.machine - ours) / wall),
        )

    def idle_cores(self, sides: tuple[Side, ...], seconds: float) -> dict[str, dict[str, float]]:
        """Cores that each server keeps busy, by role, while nobody asks any."""
        before = [side.tree.cpu_s() for side in sides]
        time.sleep(seconds)
        return {
            side.name: {role: used / seconds for role, used in since(was, side.tree.cpu_s()).items()}
            for side, was in zip(sides, before, strict=True)
        }

    def _now(self, busy: Side, idle: Side) -> _Clocks:
        return _Clocks(
            at=time.perf_counter(),
            machine=busy_seconds(),
            busy=busy.tree.cpu_s(),
            idle=idle.tree.cpu_s(),
            generator=cpu_seconds(self._generator.pid),
            own=time.process_time(),
        )


@dataclass(frozen=True)
class _Clocks:
    at: float
    machine: float
    busy: dict[str, float]
    idle: dict[str, float]
    generator: float
    own: float

    @property
    def all(self) -> float:
        return sum(self.busy.values()) + sum(self.idle.values()) + self.generator + self.own
