"""The pool: tiers loaded in order, the rest serving when one fails, everything closed together."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.virtual_time import VirtualClock, run_virtual
from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import TierSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.pool.engine import EngineStartFailed
from weighbridge.pool.pool import Pool
from weighbridge.pool.processes import identify
from weighbridge.pool.tier import Tier


def make(*scripts: Script, register: Path | None = None) -> tuple[Pool, list[FakeEngine]]:
    metrics, engines, tiers = Metrics(), [], []
    for road, script in zip(("local-8b", "local-70b"), scripts, strict=False):
        engine = FakeEngine(road, script=script)
        engines.append(engine)
        tiers.append(Tier(road, TierSettings(), lambda *_, own=engine: own, VirtualClock(), metrics))
    return Pool(tiers, register=register), engines


def states(pool: Pool) -> list[str]:
    return [row["state"] for row in pool.status()]


def test_tiers_are_loaded_one_after_the_other_and_serve_as_soon_as_they_are_up() -> None:
    async def main() -> None:
        pool, _ = make(Script(start_s=40), Script(start_s=20))
        loading = asyncio.create_task(pool.start())
        await asyncio.sleep(10)
        assert states(pool) == ["starting", "cold"]
        await asyncio.sleep(40)
        assert states(pool) == ["ready", "starting"]
        await loading
        assert states(pool) == ["ready", "ready"]
        assert asyncio.get_running_loop().time() == 60
        tier = pool.tier("local-70b")
        assert tier is not None and tier.road == "local-70b"
        assert pool.tier("commercial") is None

    run_virtual(main())


@pytest.mark.parametrize("bad", [0, 1])
def test_one_tier_that_does_not_come_up_leaves_the_other_serving(bad: int) -> None:
    async def main() -> None:
        scripts = [Script(), Script()]
        scripts[bad] = Script(start_error=ConfigError("no"))
        pool, _ = make(*scripts)
        await pool.start()
        expected = ["ready", "ready"]
        expected[bad] = "failed"
        assert states(pool) == expected

    run_virtual(main())


def test_no_tier_at_all_is_an_error_with_the_first_reason() -> None:
    async def main() -> None:
        pool, _ = make(
            Script(start_error=ConfigError("tiers.local-8b: no")), Script(start_error=RuntimeError())
        )
        with pytest.raises(ConfigError, match=r"tiers\.local-8b: no"):
            await pool.start()
        only_failures, _ = make(Script(start_error=RuntimeError()))
        with pytest.raises(EngineStartFailed, match="local-8b: RuntimeError"):
            await only_failures.start()

    run_virtual(main())


def test_closing_closes_every_tier_even_when_one_fails_to_close() -> None:
    async def main() -> None:
        pool, engines = make(Script(), Script())
        await pool.start()

        async def broken(grace_s: float) -> None:
            raise OSError("no")

        async def slow(grace_s: float) -> None:
            await asyncio.sleep(3)
            engines[1].closed = True

        engines[0].close = broken  # type: ignore[method-assign]
        engines[1].close = slow  # type: ignore[method-assign]
        with pytest.raises(OSError, match="no"):
            await pool.close(1.0)
        assert engines[1].closed
        assert states(pool) == ["closed", "closed"]

    run_virtual(main())


def test_cancelled_while_loading_it_closes_cleanly() -> None:
    async def main() -> None:
        pool, engines = make(Script(start_s=5), Script(start_s=50))
        loading = asyncio.create_task(pool.start())
        await asyncio.sleep(20)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        await pool.close(1.0)
        await pool.close(1.0)
        assert all(engine.closed for engine in engines)
        assert states(pool) == ["closed", "closed"]

    run_virtual(main())


def test_replicas_load_after_the_first_worker_of_every_tier_and_each_serves_as_soon_as_it_is_up() -> None:
    async def main() -> None:
        metrics = Metrics()
        begun: list[str] = []

        def engine(road: str, _: TierSettings, worker: str) -> FakeEngine:
            return FakeEngine(road, script=Script(start_s=10))

        tiers = [
            Tier(road, TierSettings(replicas=n), partial(engine, road), VirtualClock(), metrics)
            for road, n in (("local-8b", 3), ("local-70b", 2))
        ]
        pool = Pool(tiers)
        for tier in tiers:
            for worker in tier.workers:
                worker_name = str(worker)
                build = worker.engine.start

                async def start(
                    name: str = worker_name, build: Callable[[], Awaitable[None]] = build
                ) -> None:
                    begun.append(name)
                    await build()

                worker.engine.start = start  # type: ignore[method-assign]
        loading = asyncio.create_task(pool.start())
        await pool.first_ready()
        assert asyncio.get_running_loop().time() == 10
        await loading
        assert asyncio.get_running_loop().time() == 50
        assert begun == ["local-8b", "local-70b", "local-8b/1", "local-70b/1", "local-8b/2"]
        assert [row["slots"] for row in pool.status()] == [24, 16]
        await pool.close(1.0)

    run_virtual(main())


def test_a_dead_worker_is_replaced_and_its_tier_serves_again() -> None:
    async def main() -> None:
        metrics, made = Metrics(), []

        def engine(*_: object) -> FakeEngine:
            made.append(FakeEngine(script=Script(start_s=5)))
            return made[-1]

        tier = Tier("local-8b", TierSettings(), engine, VirtualClock(), metrics)
        pool = Pool([tier])
        await pool.start()
        made[0].kill()
        await pool.until(lambda: not tier.ready)
        await pool.until(lambda: tier.ready)
        assert asyncio.get_running_loop().time() == 11
        assert len(made) == 2 and made[0].closed
        assert metrics.worker_restarts_total.labels("local-8b", "0").value == 1
        await pool.close(1.0)
        assert made[1].closed

    run_virtual(main())


def test_the_register_names_the_engines_while_they_run(tmp_path: Path) -> None:
    path = tmp_path / "state" / "engines.json"
    me = identify(os.getpid())
    assert me is not None

    async def main() -> None:
        pool, engines = make(Script(), register=path)
        engines[0].processes = (me,)  # type: ignore[attr-defined]
        await pool.start()
        assert json.loads(path.read_text()) == [[me.pid, me.started], [me.pid, me.started]]
        await pool.close(1.0)
        assert not path.exists()

    asyncio.run(main())
