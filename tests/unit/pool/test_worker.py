"""A worker's states: legal transitions only, and nothing left running on any way out."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.virtual_time import VirtualClock, run_virtual
from weighbridge.config.errors import ConfigError
from weighbridge.pool.engine import EngineStartFailed
from weighbridge.pool.worker import LEGAL, IllegalTransition, Worker, WorkerState


def make(engine: FakeEngine, timeout_s: float = 100.0) -> tuple[Worker, list[WorkerState]]:
    seen: list[WorkerState] = []
    worker = Worker(
        "local-8b",
        engine,
        VirtualClock(),
        model="Tiny, embedded",
        start_timeout_s=timeout_s,
        on_change=seen.append,
    )
    return worker, seen


def test_a_worker_loads_warms_serves_drains_and_closes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "weighbridge.pool")

    async def main() -> list[WorkerState]:
        engine = FakeEngine(script=Script(start_s=41.2))
        worker, seen = make(engine)
        await worker.start()
        assert engine.started and engine.warmed
        assert worker.since == 41.2
        await worker.close(5.0)
        await worker.close(5.0)
        assert engine.closed
        return seen

    assert [str(state) for state in run_virtual(main())] == [
        "starting",
        "warming",
        "ready",
        "draining",
        "closed",
    ]
    assert [record.message for record in caplog.records] == [
        "loading local-8b: warming",
        "local-8b ready in 41 s (Tiny, embedded)",
    ]


def test_a_dead_engine_is_seen_at_the_next_look_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        engine = FakeEngine()
        worker, _ = make(engine)
        await worker.start()
        engine.kill()
        assert worker.state is WorkerState.DEAD
        assert worker.state is WorkerState.DEAD
        assert worker.reason == "the engine died"
        await worker.close(1.0)
        assert worker.state is WorkerState.CLOSED

    run_virtual(main())
    assert [record.message for record in caplog.records] == ["local-8b: the engine died; the tier is skipped"]


@pytest.mark.parametrize(
    ("error", "raised", "reason"),
    [
        (ConfigError("tiers.local-8b.block_size: 8 is not legal"), ConfigError, "tiers.local-8b.block_size"),
        (EngineStartFailed("out of memory"), EngineStartFailed, "out of memory"),
        (RuntimeError("a text that may hold anything"), EngineStartFailed, "RuntimeError"),
    ],
)
def test_a_failed_start_is_told_and_leaves_nothing_running(
    error: Exception, raised: type[Exception], reason: str
) -> None:
    async def main() -> None:
        engine = FakeEngine(script=Script(start_error=error))
        worker, _ = make(engine)
        with pytest.raises(raised) as caught:
            await worker.start()
        assert reason in str(caught.value)
        assert worker.reason.startswith(reason)
        assert worker.state is WorkerState.FAILED
        assert engine.closed

    run_virtual(main())


def test_a_start_that_takes_too_long_fails() -> None:
    async def main() -> None:
        engine = FakeEngine(script=Script(start_s=1000))
        worker, _ = make(engine, timeout_s=30)
        with pytest.raises(EngineStartFailed, match="not ready within 30 s"):
            await worker.start()
        assert asyncio.get_running_loop().time() == 30
        assert worker.state is WorkerState.FAILED and engine.closed

    run_virtual(main())


def test_an_engine_that_dies_while_it_warms_up_has_not_started() -> None:
    async def main() -> None:
        engine = FakeEngine()

        async def die() -> None:
            engine.kill()

        engine.warm = die  # type: ignore[method-assign]
        worker, seen = make(engine)
        with pytest.raises(EngineStartFailed, match="died while it warmed up"):
            await worker.start()
        assert seen[-1] is WorkerState.FAILED and WorkerState.READY not in seen

    run_virtual(main())


def test_a_cancelled_start_closes_the_engine_before_it_ends() -> None:
    async def main() -> None:
        engine = FakeEngine(script=Script(start_s=1000))
        worker, seen = make(engine)
        task = asyncio.create_task(worker.start())
        await asyncio.sleep(5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert engine.closed
        assert seen[-1] is WorkerState.CLOSED

    run_virtual(main())


def test_closing_while_loading_ends_the_load_without_a_complaint(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        engine = FakeEngine(script=Script(start_s=10))
        worker, seen = make(engine)
        task = asyncio.create_task(worker.start())
        await asyncio.sleep(5)
        await worker.close(1.0)
        with pytest.raises(EngineStartFailed, match="closed"):
            await task
        assert seen == [WorkerState.STARTING, WorkerState.CLOSED]

    run_virtual(main())
    assert not caplog.records


def test_closing_goes_on_when_whoever_waits_for_it_is_cancelled() -> None:
    async def main() -> None:
        engine = FakeEngine()
        done = asyncio.Event()

        async def slow_close(grace_s: float) -> None:
            await asyncio.sleep(3)
            done.set()

        engine.close = slow_close  # type: ignore[method-assign]
        worker, _ = make(engine)
        await worker.start()
        task = asyncio.create_task(worker.close(1.0))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await worker.close(1.0)
        assert done.is_set() and worker.state is WorkerState.CLOSED

    run_virtual(main())


def test_a_worker_cannot_be_started_twice() -> None:
    async def main() -> None:
        worker, _ = make(FakeEngine())
        await worker.start()
        with pytest.raises(IllegalTransition):
            await worker.start()
        assert worker.state is WorkerState.READY

    run_virtual(main())


def test_every_state_has_its_rule_and_closed_is_the_end() -> None:
    assert set(LEGAL) == set(WorkerState)
    assert LEGAL[WorkerState.CLOSED] == frozenset()
    way = [WorkerState.COLD, WorkerState.STARTING, WorkerState.WARMING, WorkerState.READY]
    way += [WorkerState.DRAINING, WorkerState.CLOSED]
    assert all(after in LEGAL[before] for before, after in pairwise(way))
    for state in WorkerState:
        assert state not in LEGAL[state]
