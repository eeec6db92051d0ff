"""The watch on the event loop, in virtual time: a callback that holds the loop moves its time on by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.support.virtual_time import VirtualClock, VirtualTimeLoop, run_virtual
from weighbridge.observability import loop_lag
from weighbridge.observability.metrics import Metrics


def hold(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.now += seconds


def watched(main: Callable[[Metrics], Coroutine[Any, Any, None]]) -> Metrics:
    metrics = Metrics()

    async def run() -> None:
        watch = asyncio.create_task(loop_lag.watch(VirtualClock(), metrics))
        await main(metrics)
        watch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watch

    run_virtual(run())
    return metrics


def test_a_loop_that_is_free_is_never_late() -> None:
    async def main(metrics: Metrics) -> None:
        await asyncio.sleep(10.1)

    metrics = watched(main)
    assert metrics.event_loop_lag_seconds.count == 40
    assert metrics.event_loop_lag_seconds.sum == pytest.approx(0)
    assert metrics.event_loop_lag_worst_seconds.value == pytest.approx(0)


def test_a_held_loop_is_seen_as_long_as_the_timer_waited() -> None:
    async def main(metrics: Metrics) -> None:
        await asyncio.sleep(1.125)
        hold(0.5)  # the timer was due after 0.125 of it
        await asyncio.sleep(1.0)

    metrics = watched(main)
    assert metrics.event_loop_lag_worst_seconds.value == pytest.approx(0.375)
    assert metrics.event_loop_lag_seconds.sum == pytest.approx(0.375)
    buckets, _ = metrics.event_loop_lag_seconds.snapshot()
    late = dict(buckets)
    assert late["+Inf"] - late["0.25"] == 1
    assert late["0.5"] == late["+Inf"]


def test_the_worst_is_forgotten_after_a_minute_and_not_before() -> None:
    async def main(metrics: Metrics) -> None:
        worst = metrics.event_loop_lag_worst_seconds

        async def at(moment: float, value: float) -> None:
            await asyncio.sleep(moment - asyncio.get_running_loop().time())
            assert worst.value == pytest.approx(value), moment

        await at(9.875, 0)
        hold(1.0)  # seen at 10.875
        await at(11, 0.875)
        await at(29.75, 0.875)
        hold(0.5)  # seen at 30.25
        await at(70.7, 0.875)
        await at(71.2, 0.375)
        await at(90.1, 0.375)
        await at(90.8, 0)

    watched(main)


def test_it_costs_next_to_nothing() -> None:
    async def main(metrics: Metrics) -> None:
        await asyncio.sleep(1000.1)

    used = time.thread_time()
    metrics = watched(main)
    share = (time.thread_time() - used) / 1000
    assert metrics.event_loop_lag_seconds.count == 4000
    assert share < 0.0005, f"{share:.5%} of a core, the waking of the process not included"
