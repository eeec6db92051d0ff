"""Made-up halves and pairs."""

from __future__ import annotations

from bench.lib.halves import Half
from bench.lib.pairs import RAW, Pair
from bench.lib.tree import ROLES, SERVER, WORKER


def half(rate: float, *, server_s: float = 0.2, foreign: float = 0.0, busy: float = 0.9) -> Half:
    """1,000 tokens at `rate` a second; `server_s` is the CPU of the server's own process, `busy` the worker's cores."""
    return Half(
        tokens=1000,
        seconds=1000 / rate,
        p50_ms=1500.0,
        cpu_s={**dict.fromkeys(ROLES, 0.0), SERVER: server_s, WORKER: busy * 1000 / rate},
        generator_s=0.02,
        idle_cores=0.0,
        foreign_cores=foreign,
    )


def pair(ratio: float, *, concurrency: int = 10, foreign: float = 0.0) -> Pair:
    """The raw server makes 100 tokens a second; `foreign` lies on the gateway's half."""
    ours = half(100 * ratio, server_s=0.3, foreign=foreign)
    return Pair(concurrency, RAW, half(100), ours, load_before=0.1, load_after=1.2)
