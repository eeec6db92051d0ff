"""Finding an engine that is lost: it says so, its core does not answer, or nothing comes out of it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from weighbridge.config.clock import Clock
from weighbridge.config.settings import PoolSettings
from weighbridge.pool.engine import Engine

_GRACE_S: Final = 1.0
"""Seconds an engine's own limit on a probe may be late."""


async def watch_engine(
    engine: Engine, settings: PoolSettings, clock: Clock, doubt: Callable[[str | None], None]
) -> str:
    """Watch an engine that is up until it has to be replaced.

    vLLM's own health check calls a stopped core healthy, so its core is asked something it must answer; and one that
    answers may have stopped scheduling, so its tokens are watched as well. A core in a long step answers late: what
    moves is not dead, however many probes it misses.

    Args:
        doubt: told the reason when a probe fails, None when one succeeds.

    Returns:
        Why it has to be replaced, in one line.
    """
    death = asyncio.ensure_future(engine.died())
    progress = _Progress(engine, clock)
    missed = 0
    pause_s = settings.probe_interval_s
    try:
        while True:
            if await _within(death, pause_s):
                return "the engine died"
            asked = clock.monotonic()
            probe = asyncio.ensure_future(engine.probe(settings.probe_timeout_s))
            try:
                # A probe that forgets its own limit is a probe without an answer.
                limit_s = settings.probe_timeout_s + _GRACE_S
                await asyncio.wait((probe, death), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
                if death.done():
                    return "the engine died"
                answered = _answered(probe)
            finally:
                probe.cancel()
            moved = progress.look()
            if answered:
                missed, pause_s = 0, settings.probe_interval_s
                doubt(None)
            else:
                # A suspect is asked again at once; one that says no at once still gets its time to come round.
                pause_s = max(0.0, asked + settings.probe_timeout_s - clock.monotonic())
                # What moved since the probe before may have stopped in the middle of this one.
                missed = 1 if moved else missed + 1
                doubt(f"no answer to a probe within {settings.probe_timeout_s:g} s")
            if missed >= settings.probe_failures:
                return f"its core did not answer {missed} probes of {settings.probe_timeout_s:g} s"
            if progress.still_s() >= settings.progress_timeout_s:
                return f"no token for {settings.progress_timeout_s:g} s with requests at work"
    finally:
        death.cancel()


def _answered(probe: asyncio.Future[bool]) -> bool:
    return probe.done() and not probe.cancelled() and probe.exception() is None and probe.result()


async def _within(death: asyncio.Future[None], seconds: float) -> bool:
    await asyncio.wait((death,), timeout=seconds)
    return death.done()


class _Progress:
    """Whether an engine with work at hand gets anywhere."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._made = engine.load().made
        self._moved_at = clock.monotonic()

    def look(self) -> bool:
        """Whether a token was made since the last look; an idle engine has made none.

        Requests that arrive are no progress: a stopped core gets them too.
        """
        load = self._engine.load()
        moved = load.made != self._made
        if moved or not load.unfinished:
            self._moved_at = self._clock.monotonic()
        self._made = load.made
        return moved

    def still_s(self) -> float:
        """Seconds for which there was work and nothing moved."""
        return self._clock.monotonic() - self._moved_at
