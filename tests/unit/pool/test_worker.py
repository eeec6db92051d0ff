"""A worker's life: legal states only, built anew when it is lost, and nothing left running on any way out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.virtual_time import VirtualClock, run_virtual
from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import PoolSettings
from weighbridge.pool.engine import EngineStartFailed
from weighbridge.pool.worker import LEGAL, Worker, WorkerState


@dataclass
class Bench:
    """A worker whose engines the test sees."""

    scripts: list[Script]
    settings: PoolSettings = field(default_factory=PoolSettings)
    engines: list[FakeEngine] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    before_start: Callable[[FakeEngine], None] = lambda _: None

    def make(self) -> FakeEngine:
        script = self.scripts[min(len(self.engines), len(self.scripts) - 1)]
        engine = FakeEngine(script=script)
        self.before_start(engine)
        self.engines.append(engine)
        return engine

    def worker(self) -> Worker:
        return Worker(
            "local-8b",
            "0",
            self.make,
            VirtualClock(),
            model="Tiny, embedded",
            settings=self.settings,
            on_change=lambda worker: self.seen.append(str(worker.state)),
        )


async def up(worker: Worker) -> asyncio.Task[None]:
    life = asyncio.create_task(worker.run())
    await worker.tried()
    return life


async def end(worker: Worker, life: asyncio.Task[None]) -> None:
    life.cancel()
    await asyncio.gather(life, return_exceptions=True)
    await worker.close(1.0)
    assert worker.state is WorkerState.CLOSED


def test_a_worker_loads_warms_serves_drains_and_closes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "weighbridge.pool")
    bench = Bench([Script(start_s=41.2)])

    async def main() -> None:
        worker = bench.worker()
        life = await up(worker)
        (engine,) = bench.engines
        assert engine.started and engine.warmed
        assert worker.since == 41.2
        await end(worker, life)
        assert engine.closed

    run_virtual(main())
    assert bench.seen == ["starting", "warming", "ready", "draining", "closed"]
    assert [record.message for record in caplog.records] == [
        "loading local-8b: warming",
        "local-8b ready in 41 s (Tiny, embedded)",
    ]


def test_a_dead_engine_is_seen_at_the_next_look_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench([Script()])

    async def main() -> None:
        worker = bench.worker()
        life = await up(worker)
        bench.engines[0].kill()
        assert worker.state is WorkerState.DEAD and not worker.serving
        assert worker.state is WorkerState.DEAD
        assert worker.reason == "the engine died"
        await end(worker, life)

    run_virtual(main())
    assert [record.message for record in caplog.records] == [
        "local-8b: the engine died; its requests go elsewhere"
    ]


def test_a_dead_engine_is_closed_and_another_one_built_without_anybody_looking() -> None:
    bench = Bench([Script(start_s=40)])

    async def main() -> None:
        loop = asyncio.get_running_loop()
        worker = bench.worker()
        life = await up(worker)
        await asyncio.sleep(100.5)
        bench.engines[0].kill()
        died = loop.time()
        await asyncio.sleep(0.01)
        assert bench.seen[-1] == "dead", "the death is an event, not found by a probe"
        await asyncio.sleep(45)
        first, second = bench.engines
        assert first.closed and second.started and second.warmed
        assert worker.engine is second and worker.serving and worker.restarts == 1
        # One second of pause, forty of loading.
        assert worker.since == pytest.approx(died + 41, abs=0.01)
        await end(worker, life)

    run_virtual(main())
    assert bench.seen[3:] == ["dead", "starting", "warming", "ready", "draining", "closed"]


def test_pauses_double_and_too_many_restarts_give_the_worker_up(caplog: pytest.LogCaptureFixture) -> None:
    settings = PoolSettings(
        max_restarts=4, restart_backoff_s=1, restart_backoff_max_s=3, restart_window_s=600
    )
    bench = Bench([Script(), Script(start_error=EngineStartFailed("out of memory"))], settings)
    built: list[float] = []
    bench.before_start = lambda _: built.append(asyncio.get_running_loop().time())

    async def main() -> None:
        worker = bench.worker()
        life = await up(worker)
        bench.engines[0].kill()
        await life
        assert worker.state is WorkerState.FAILED
        assert worker.reason == "out of memory"
        assert all(engine.closed for engine in bench.engines)
        await worker.close(1.0)

    run_virtual(main())
    assert [round(after - before, 6) for before, after in pairwise(built)] == [1, 2, 3, 3]
    assert "given up after 4 restarts within 600 s" in caplog.records[-1].message


def test_restarts_long_ago_do_not_count() -> None:
    bench = Bench([Script()], PoolSettings(max_restarts=1, restart_window_s=100))

    async def main() -> None:
        worker = bench.worker()
        life = await up(worker)
        for _ in range(4):
            bench.engines[-1].kill()
            await asyncio.sleep(150)
            assert worker.serving
        assert worker.restarts == 4
        await end(worker, life)

    run_virtual(main())


def test_a_build_that_fails_at_first_is_tried_again() -> None:
    bench = Bench([Script(start_error=EngineStartFailed("memory still held")), Script()])

    async def main() -> None:
        worker = bench.worker()
        life = await up(worker)
        assert worker.state is WorkerState.DEAD and isinstance(worker.fault, EngineStartFailed)
        assert str(worker.fault) == "local-8b: memory still held"
        await asyncio.sleep(2)
        assert worker.serving and worker.fault is None and worker.reason == ""
        await end(worker, life)

    run_virtual(main())


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (ConfigError("tiers.local-8b.block_size: 8 is not legal"), "failed", "tiers.local-8b.block_size"),
        (EngineStartFailed("out of memory"), "dead", "out of memory"),
        (RuntimeError("a text that may hold anything"), "dead", "RuntimeError"),
    ],
)
def test_a_failed_build_is_told_and_leaves_nothing_running(error: Exception, state: str, reason: str) -> None:
    bench = Bench([Script(start_error=error)])

    async def main() -> None:
        worker = bench.worker()
        life = await up(worker)
        assert worker.reason.startswith(reason) and reason in str(worker.fault)
        assert str(worker.state) == state
        await asyncio.sleep(0)
        assert bench.engines[0].closed
        if state == "failed":
            await life
            assert len(bench.engines) == 1, "a wrong setting does not become right by another try"
        await end(worker, life)

    run_virtual(main())


def test_a_build_that_takes_too_long_fails() -> None:
    bench = Bench([Script(start_s=1000)], PoolSettings(start_timeout_s=30))

    async def main() -> None:
        worker = bench.worker()
        life = await up(worker)
        assert worker.reason == "not ready within 30 s (pool.start_timeout_s)"
        assert asyncio.get_running_loop().time() == 30
        await asyncio.sleep(0)
        assert bench.engines[0].closed
        await end(worker, life)

    run_virtual(main())


@pytest.mark.parametrize("method", ["load", "died", "probe"])
def test_an_engine_that_cannot_be_watched_is_replaced(method: str) -> None:
    def broken(engine: FakeEngine) -> None:
        def fail(*_: object) -> None:
            raise KeyError("planted-text")

        setattr(engine, method, fail)

    bench = Bench([Script()])

    async def main() -> None:
        bench.before_start = broken
        worker = bench.worker()
        bench.before_start = lambda _: None
        life = await up(worker)
        await asyncio.sleep(15)
        assert len(bench.engines) == 2 and bench.engines[0].closed and worker.serving
        await end(worker, life)

    run_virtual(main())
    assert "dead" in bench.seen


@pytest.mark.parametrize("step", ["start", "warm", "probe"])
def test_a_stray_cancellation_inside_an_engine_ends_no_supervision(step: str) -> None:
    async def cancelled(*_: object) -> None:
        raise asyncio.CancelledError

    bench = Bench([Script()])
    bench.before_start = lambda engine: setattr(engine, step, cancelled)

    async def main() -> None:
        worker = bench.worker()
        bench.before_start = lambda _: None
        life = await up(worker)
        await asyncio.sleep(20)
        assert worker.serving and worker.restarts == 1 and bench.engines[0].closed
        await end(worker, life)

    run_virtual(main())


def test_a_close_that_hangs_does_not_hold_the_end_up(caplog: pytest.LogCaptureFixture) -> None:
    async def forever(grace_s: float) -> None:
        await asyncio.sleep(10**6)

    bench = Bench([Script()])

    async def main() -> None:
        worker = bench.worker()
        life = await up(worker)
        bench.engines[0].close = forever  # type: ignore[method-assign]
        began = asyncio.get_running_loop().time()
        await end(worker, life)
        assert asyncio.get_running_loop().time() - began < 30

    run_virtual(main())
    assert "did not close" in caplog.text


@pytest.mark.parametrize("how", ["raises", "hangs"])
def test_an_engine_that_does_not_close_is_replaced_all_the_same(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def close(grace_s: float) -> None:
        if how == "raises":
            raise OSError("planted-text")
        await asyncio.sleep(10**6)

    bench = Bench([Script()])

    async def main() -> None:
        worker = bench.worker()
        life = await up(worker)
        real = bench.engines[0].close
        bench.engines[0].close = close  # type: ignore[method-assign]
        bench.engines[0].kill()
        await asyncio.sleep(40)
        assert worker.serving and worker.restarts == 1
        await end(worker, life)
        await real(0)

    run_virtual(main())
    assert "its old engine did not close" in caplog.text and "planted" not in caplog.text


@pytest.mark.parametrize(
    ("error", "state"), [(ConfigError("the folder is gone"), "failed"), (RuntimeError("x"), "ready")]
)
def test_an_engine_that_cannot_even_be_made_again(error: Exception, state: str) -> None:
    bench = Bench([Script()])
    made = bench.make
    faults = [error]

    def make() -> FakeEngine:
        if bench.engines and faults:
            raise faults.pop()
        return made()

    bench.make = make  # type: ignore[method-assign]

    async def main() -> None:
        worker = bench.worker()
        life = await up(worker)
        bench.engines[0].kill()
        await asyncio.sleep(20)
        assert str(worker.state) == state
        await end(worker, life)

    run_virtual(main())


def test_an_engine_that_dies_while_it_warms_up_was_never_ready() -> None:
    def dies(engine: FakeEngine) -> None:
        async def die() -> None:
            engine.kill()

        engine.warm = die  # type: ignore[method-assign]

    bench = Bench([Script()], before_start=dies)

    async def main() -> None:
        worker = bench.worker()
        life = await up(worker)
        assert worker.reason == "the engine died while it warmed up"
        await end(worker, life)

    run_virtual(main())
    assert "ready" not in bench.seen


def test_cancelled_while_loading_it_closes_the_engine_before_it_ends() -> None:
    bench = Bench([Script(start_s=1000)])

    async def main() -> None:
        worker = bench.worker()
        life = asyncio.create_task(worker.run())
        await asyncio.sleep(5)
        life.cancel()
        with pytest.raises(asyncio.CancelledError):
            await life
        assert bench.engines[0].closed
        await worker.tried()

    run_virtual(main())
    assert bench.seen == ["starting", "closed"]


def test_closing_while_loading_ends_the_load_without_a_complaint(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench([Script(start_s=10)])

    async def main() -> None:
        worker = bench.worker()
        life = asyncio.create_task(worker.run())
        await asyncio.sleep(5)
        await worker.close(1.0)
        await life

    run_virtual(main())
    assert bench.seen == ["starting", "closed"]
    assert not caplog.records


def test_closing_goes_on_when_whoever_waits_for_it_is_cancelled() -> None:
    bench = Bench([Script()])

    async def main() -> None:
        worker = bench.worker()
        life = await up(worker)
        done = asyncio.Event()

        async def slow_close(grace_s: float) -> None:
            await asyncio.sleep(3)
            done.set()

        bench.engines[0].close = slow_close  # type: ignore[method-assign]
        life.cancel()
        task = asyncio.create_task(worker.close(1.0))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await worker.close(1.0)
        assert done.is_set() and worker.state is WorkerState.CLOSED

    run_virtual(main())


def test_a_replica_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(
        "local-8b",
        "1",
        FakeEngine,
        VirtualClock(asyncio.new_event_loop()),
        model="m",
        settings=PoolSettings(),
    )
    assert str(worker) == "local-8b/1"


def test_every_state_has_its_rule_and_closed_is_the_end() -> None:
    assert set(LEGAL) == set(WorkerState)
    assert LEGAL[WorkerState.CLOSED] == frozenset()
    way = [
        WorkerState.COLD,
        WorkerState.STARTING,
        WorkerState.WARMING,
        WorkerState.READY,
        WorkerState.SUSPECT,
    ]
    way += [WorkerState.DEAD, WorkerState.STARTING, WorkerState.WARMING, WorkerState.READY]
    way += [WorkerState.DRAINING, WorkerState.CLOSED]
    assert all(after in LEGAL[before] for before, after in pairwise(way))
    for state in WorkerState:
        assert state not in LEGAL[state]
