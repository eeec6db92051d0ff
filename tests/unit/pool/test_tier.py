"""A tier: slots, readiness, the window check and what the metrics show of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_lab import chat, complete
from tests.support.fake_engine import FakeEngine, Script
from tests.support.virtual_time import VirtualClock, run_virtual
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ContextLengthExceeded
from weighbridge.config.settings import TierSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.pool.queue_lock import QueueFull, QueueLockTimeout
from weighbridge.pool.tier import Tier, model_name
from weighbridge.pool.worker import TierNotReady, WorkerState


def make(engine: FakeEngine, metrics: Metrics | None = None, **fields: Any) -> Tier:
    settings = TierSettings(max_num_seqs=2, **fields)
    return Tier("local-8b", settings, engine, VirtualClock(), metrics or Metrics())


def soon(seconds: float = 1.0) -> Deadline:
    return Deadline.after(VirtualClock(), seconds)


def test_a_lease_is_good_for_the_engine_and_comes_back() -> None:
    async def main() -> None:
        engine, metrics = FakeEngine(), Metrics()
        tier = make(engine, metrics)
        await tier.worker.start()
        in_use, waiting = metrics.slots_in_use.labels("local-8b"), metrics.waiting.labels("local-8b")
        waited = metrics.queue_wait_seconds.labels("local-8b")
        assert metrics.slots_total.labels("local-8b").value == 2

        leases = [await tier.lease(soon()) for _ in range(2)]
        assert leases[0].engine is engine
        assert waited.sum == 0
        third = asyncio.create_task(tier.lease(soon(9)))
        await asyncio.sleep(0.5)
        assert (in_use.value, waiting.value) == (2, 1)
        leases[0].release()
        leases[0].release()
        await third
        assert waited.sum == 0.5
        assert (in_use.value, waiting.value) == (2, 0)
        (await third).release()
        leases[1].release()
        assert (in_use.value, waiting.value) == (0, 0)
        assert waited.count == 3
        assert metrics.queue_timeouts_total.labels("local-8b").value == 0

    run_virtual(main())


def test_a_full_tier_turns_away_in_time_and_counts_it() -> None:
    async def main() -> None:
        metrics = Metrics()
        tier = make(FakeEngine(), metrics, slots=1, max_waiting=1)
        await tier.worker.start()
        lease = await tier.lease(soon())
        waiting = asyncio.create_task(tier.lease(soon(0.3)))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await tier.lease(soon())
        with pytest.raises(QueueLockTimeout):
            await waiting
        assert metrics.queue_timeouts_total.labels("local-8b").value == 1
        lease.release()
        assert tier.lock.in_use == 0

    run_virtual(main())


@pytest.mark.parametrize("state", ["cold", "starting", "failed", "dead", "closed"])
def test_a_tier_that_is_not_ready_gives_no_slot(state: str) -> None:
    async def main() -> None:
        engine = FakeEngine(script=Script(start_s=10))
        metrics = Metrics()
        tier = make(engine, metrics)
        if state == "failed":
            engine.script.start_error = RuntimeError()
        if state != "cold":
            starting = asyncio.create_task(tier.worker.start())
            await asyncio.sleep(5 if state == "starting" else 20)
            await asyncio.gather(starting, return_exceptions=True) if state != "starting" else None
        if state == "dead":
            engine.kill()
        if state == "closed":
            await tier.close(1.0)
        assert str(tier.state) == state and not tier.ready
        with pytest.raises(TierNotReady) as caught:
            await tier.lease(soon())
        assert (caught.value.status, caught.value.code) == (503, "tier_not_ready")
        await tier.fits(chat("x" * 100_000), 100_000)
        assert tier.lock.in_use == 0
        assert metrics.tier_ready.labels("local-8b").value == 0
        await tier.close(1.0)

    run_virtual(main())


def test_readiness_is_shown_as_long_as_it_lasts() -> None:
    async def main() -> None:
        engine, metrics = FakeEngine(), Metrics()
        tier = make(engine, metrics)
        await tier.worker.start()
        assert metrics.tier_ready.labels("local-8b").value == 1
        engine.kill()
        assert not tier.ready
        assert metrics.tier_ready.labels("local-8b").value == 0

    run_virtual(main())


def test_who_waits_when_the_engine_dies_is_told_at_once() -> None:
    async def main() -> None:
        engine = FakeEngine()
        tier = make(engine, slots=1)
        await tier.worker.start()
        lease = await tier.lease(soon())
        waiting = [asyncio.create_task(tier.lease(soon(100))) for _ in range(3)]
        await asyncio.sleep(1)
        engine.kill()
        lease.release()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [TierNotReady] * 3
        assert asyncio.get_running_loop().time() == 1
        assert (tier.lock.in_use, tier.lock.waiting) == (0, 0)

    run_virtual(main())


def test_who_waits_is_told_as_soon_as_anybody_sees_the_engine_dead() -> None:
    async def main() -> None:
        engine = FakeEngine()
        tier = make(engine, slots=1)
        await tier.worker.start()
        lease = await tier.lease(soon())
        waiting = asyncio.create_task(tier.lease(soon(100)))
        await asyncio.sleep(1)
        engine.kill()
        assert not tier.ready
        with pytest.raises(TierNotReady):
            await waiting
        assert asyncio.get_running_loop().time() == 1
        lease.release()

    run_virtual(main())


def test_closing_turns_away_who_waits_and_takes_late_releases() -> None:
    async def main() -> None:
        tier = make(FakeEngine(), slots=1)
        await tier.worker.start()
        lease = await tier.lease(soon())
        waiting = asyncio.create_task(tier.lease(soon(100)))
        await asyncio.sleep(0)
        await tier.close(1.0)
        with pytest.raises(TierNotReady):
            await waiting
        assert tier.state is WorkerState.CLOSED
        lease.release()
        assert tier.lock.in_use == 0

    run_virtual(main())


def test_short_bodies_fit_without_being_tokenised_and_long_ones_are_counted() -> None:
    async def main() -> None:
        engine = FakeEngine(max_model_len=500)
        tier = make(engine)
        await tier.worker.start()
        counted: list[int] = []
        real = engine.count_tokens

        async def count_tokens(body: dict[str, Any]) -> int:
            counted.append(1)
            return await real(body)

        engine.count_tokens = count_tokens  # type: ignore[method-assign]
        await tier.fits(chat("x" * 100), 243)
        assert not counted
        await tier.fits(chat("x" * 100), 244)
        assert counted == [1]
        with pytest.raises(ContextLengthExceeded):
            await tier.fits(chat("x" * 3000), 3100)

        async def exactly_the_window(body: dict[str, Any]) -> int:
            return 500

        engine.count_tokens = exactly_the_window  # type: ignore[method-assign]
        with pytest.raises(ContextLengthExceeded) as caught:
            await tier.fits(chat(), 3000)
        assert (caught.value.prompt_tokens, caught.value.window) == (500, 500)

    run_virtual(main())


def test_the_status_has_numbers_and_names_alone() -> None:
    async def main() -> None:
        engine = FakeEngine(script=Script(first_gate=asyncio.Event()))
        tier = make(engine)
        assert tier.status()["state"] == "cold"
        await tier.worker.start()
        await asyncio.sleep(7)
        asking = asyncio.create_task(complete(engine, chat("SECRET")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        status = tier.status()
        assert status == {
            "road": "local-8b",
            "model": "SmolLM2-135M-Instruct",
            "embedded": True,
            "ready": True,
            "state": "ready",
            "reason": "",
            "state_age_s": 7.0,
            "max_model_len": 2048,
            "slots": 2,
            "slots_in_use": 0,
            "waiting": 0,
            "max_waiting": 256,
            "engine_unfinished": 1,
            "engine_queued_tokens": status["engine_queued_tokens"],
        }
        assert status["engine_queued_tokens"] > 0
        asking.cancel()

    run_virtual(main())


def test_the_models_name_is_the_given_one_or_its_folders(tmp_path: Path) -> None:
    folder = tmp_path / "Llama-3-8B"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert model_name(TierSettings()) == "SmolLM2-135M-Instruct"
    assert model_name(TierSettings(model_path=folder)) == "Llama-3-8B"
    assert model_name(TierSettings(model_path=folder, served_model_name="ours/8b")) == "ours/8b"
