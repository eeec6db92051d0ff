"""Finding an engine that is lost, and leaving alone one that is only slow. All in virtual time."""

from __future__ import annotations

import asyncio

from tests.support.engine_lab import chat, stream
from tests.support.fake_engine import FakeEngine, Script
from tests.support.virtual_time import VirtualClock, run_virtual
from weighbridge.config.settings import PoolSettings
from weighbridge.pool.health import watch_engine

SETTINGS = PoolSettings(probe_interval_s=1, probe_timeout_s=2, probe_failures=3, progress_timeout_s=60)


async def started(script: Script | None = None) -> FakeEngine:
    engine = FakeEngine(script=script)
    await engine.start()
    return engine


def watching(engine: FakeEngine, doubts: list[str | None]) -> asyncio.Task[str]:
    def doubt(reason: str | None) -> None:
        if not doubts or doubts[-1] != reason:
            doubts.append(reason)

    return asyncio.create_task(watch_engine(engine, SETTINGS, VirtualClock(), doubt))


def test_death_is_known_in_the_moment_it_happens() -> None:
    async def main() -> None:
        engine = await started()
        watch = watching(engine, [])
        await asyncio.sleep(10.3)
        engine.kill()
        assert await watch == "the engine died"
        assert asyncio.get_running_loop().time() == 10.3

    run_virtual(main())


def test_a_core_that_hangs_is_found_within_ten_seconds_and_suspected_before() -> None:
    async def main() -> None:
        engine = await started()
        doubts: list[str | None] = []
        watch = watching(engine, doubts)
        await asyncio.sleep(20.5)
        assert doubts == [None]
        engine.script.hang = True
        await asyncio.sleep(3)
        assert doubts[-1] == "no answer to a probe within 2 s"
        assert await watch == "its core did not answer 3 probes of 2 s"
        assert asyncio.get_running_loop().time() - 20.5 <= 8

    run_virtual(main())


def test_a_core_stopped_in_the_middle_of_its_work_is_found_as_soon() -> None:
    async def main() -> None:
        engine = await started(Script(token_s=0.1))
        watch = watching(engine, [])
        asking = asyncio.create_task(stream(engine, chat(max_tokens=2000)))
        await asyncio.sleep(10.05)
        engine.script.hang = True
        await watch
        assert asyncio.get_running_loop().time() - 10.05 <= 8
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    run_virtual(main())


def test_requests_that_arrive_at_a_stopped_core_are_no_sign_of_life() -> None:
    async def main() -> None:
        engine = await started(Script(hang=True))
        watch = watching(engine, [])

        async def ask() -> None:
            async with asyncio.TaskGroup() as group:
                while True:
                    group.create_task(stream(engine, chat()))
                    await asyncio.sleep(0.7)

        asking = asyncio.create_task(ask())
        assert "did not answer" in await watch
        assert asyncio.get_running_loop().time() <= 8
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    run_virtual(main())


def test_probes_that_come_late_while_tokens_flow_are_forgiven() -> None:
    async def main() -> None:
        engine = await started(Script(token_s=1.5))
        doubts: list[str | None] = []

        async def late(timeout_s: float) -> bool:
            await asyncio.sleep(timeout_s)
            return False

        engine.probe = late  # type: ignore[method-assign]
        watch = watching(engine, doubts)
        await stream(engine, chat(max_tokens=40))
        assert not watch.done(), "an engine that made 40 tokens was taken for dead"
        # And once it rests without an answer, it is dead after all.
        assert "did not answer" in await watch

    run_virtual(main())


def test_probes_that_are_refused_at_once_get_the_same_time_as_silent_ones() -> None:
    async def main() -> None:
        engine = await started()
        asked: list[float] = []

        async def refuse(timeout_s: float) -> bool:
            asked.append(asyncio.get_running_loop().time())
            return False

        engine.probe = refuse  # type: ignore[method-assign]
        assert "did not answer 3 probes" in await watching(engine, [])
        assert asked == [1, 3, 5]

    run_virtual(main())


def test_a_probe_that_forgets_its_limit_is_no_answer() -> None:
    async def main() -> None:
        engine = await started()

        async def forever(timeout_s: float) -> bool:
            await asyncio.sleep(10**6)
            return True

        engine.probe = forever  # type: ignore[method-assign]
        assert "did not answer 3 probes" in await watching(engine, [])
        assert asyncio.get_running_loop().time() <= 10

    run_virtual(main())


def test_one_late_probe_is_a_doubt_that_passes() -> None:
    async def main() -> None:
        engine = await started()
        doubts: list[str | None] = []
        watch = watching(engine, doubts)
        await asyncio.sleep(5.5)
        engine.script.hang = True
        await asyncio.sleep(3)
        engine.script.hang = False
        await asyncio.sleep(5)
        assert doubts == [None, "no answer to a probe within 2 s", None]
        assert not watch.done()
        watch.cancel()

    run_virtual(main())


def test_an_engine_that_answers_and_makes_no_token_is_replaced() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        engine = await started(Script(first_gate=gate))
        watch = watching(engine, [])
        await asyncio.sleep(30)
        asking = asyncio.create_task(stream(engine, chat()))
        assert await watch == "no token for 60 s with requests at work"
        assert 89 <= asyncio.get_running_loop().time() <= 92
        gate.set()
        await asking

    run_virtual(main())


def test_neither_idleness_nor_slow_work_is_standing_still() -> None:
    async def main() -> None:
        engine = await started(Script(token_s=45))
        watch = watching(engine, [])
        await asyncio.sleep(1000)
        await stream(engine, chat(max_tokens=10))
        await asyncio.sleep(1000)
        assert not watch.done()
        watch.cancel()

    run_virtual(main())


def test_a_watch_that_is_cancelled_leaves_no_task_behind() -> None:
    async def main() -> None:
        engine = await started(Script())
        for wait_s in (0.5, 1.0, 1.5):
            engine.script.hang = True
            watch = watching(engine, [])
            await asyncio.sleep(wait_s)
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(main())
