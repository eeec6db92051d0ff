"""Pairs of halves in a balanced order, and which of them count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.lib.halves import Half
from bench.lib.tree import WORKER

RAW, OURS = "vllm serve", "weighbridge"
FOREIGN_CORES = 0.15
"""As much as everybody else on the machine may keep busy, on average, in a half that counts."""


@dataclass(frozen=True)
class Pair:
    """Both servers under the same load, one right after the other.

    load_before, load_after: the machine's load average of the last minute.
    """

    concurrency: int
    first: str
    raw: Half
    ours: Half
    load_before: float
    load_after: float

    @property
    def ratio(self) -> float:
        """Tokens a second through the gateway over those of the raw server."""
        return self.ours.rate / self.raw.rate

    @property
    def cpu_ratio(self) -> float:
        """CPU a token of the gateway's own process over that of the raw server's own."""
        return self.ours.cpu_us() / self.raw.cpu_us()

    @property
    def busy_ratio(self) -> float | None:
        """How busy the gateway kept its engine's worker over how busy the raw server did.

        A shared machine computes now faster and now slower, which moves tokens a second and not this; a server that
        lets its engine wait moves both. None where the raw server has no worker.
        """
        raw = self.raw.cpu_us(WORKER) * self.raw.rate
        return self.ours.cpu_us(WORKER) * self.ours.rate / raw if raw else None

    @property
    def counts(self) -> bool:
        """Whether the machine was ours while it ran. The ratio itself has no say in that."""
        return max(self.raw.foreign_cores, self.ours.foreign_cores) <= FOREIGN_CORES


def order(number: int) -> tuple[str, str]:
    """Who goes first in a pair: A B, B A, A B ... so that a drift of the machine favours neither."""
    return (OURS, RAW) if number % 2 else (RAW, OURS)


def collect(
    concurrencies: Sequence[int],
    wanted: int,
    spare: int,
    measure: Callable[[int, int, tuple[str, str]], Pair],
) -> Iterator[Pair]:
    """Measure until every concurrency has `wanted` pairs that count; those that do not are repeated.

    Args:
        spare: rounds at most beyond `wanted`.
        measure: takes the round, the concurrency and the order.

    Yields:
        Every pair, also those that do not count.
    """
    good = dict.fromkeys(concurrencies, 0)
    for turn in range(wanted + spare):
        for at, concurrency in enumerate(concurrencies):
            if good[concurrency] < wanted:
                pair = measure(turn, concurrency, order(good[concurrency] + at))
                good[concurrency] += pair.counts
                yield pair
