"""A tier: its workers' slots, readiness, the window check and what the metrics show of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine_lab import chat, complete
from tests.support.fake_engine import FakeEngine, Script
from tests.support.virtual_time import VirtualClock, run_virtual
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ConfigError, ContextLengthExceeded, InvalidRequest
from weighbridge.config.settings import PoolSettings, TierSettings
from weighbridge.config.usage import TokenMeter
from weighbridge.observability.metrics import Metrics
from weighbridge.pool.engine import EngineStartFailed, EngineUnavailable
from weighbridge.pool.lease import SlotLease
from weighbridge.pool.slot_lock import Ask, NoFreeSlot, Priority, QueueFull, QueueLockTimeout
from weighbridge.pool.tier import Tier, asked_tokens, choices, model_name, prompt_bytes
from weighbridge.pool.worker import TierNotReady, WorkerState


def make(
    *engines: FakeEngine, metrics: Metrics | None = None, pool: PoolSettings | None = None, **fields: Any
) -> Tier:
    """A tier with a worker for each engine; one that is built anew gets an engine that starts in five seconds."""
    settings = TierSettings(**{"max_num_seqs": 2, "replicas": len(engines), **fields})
    left = list(engines)

    def engine(*_: object) -> FakeEngine:
        return left.pop(0) if left else FakeEngine(script=Script(start_s=5))

    return Tier("local-8b", settings, engine, VirtualClock(), metrics or Metrics(), pool=pool)


@asynccontextmanager
async def up(tier: Tier) -> AsyncIterator[None]:
    """The tier with its workers living, as the pool lets them."""
    lives = [asyncio.create_task(worker.run()) for worker in tier.workers]
    for worker in tier.workers:
        await worker.tried()
    try:
        yield
    finally:
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        await tier.close(1.0)


def soon(seconds: float = 1.0, **more: Any) -> Ask:
    return Ask(Deadline.after(VirtualClock(), seconds), **more)


async def lease(tier: Tier, ask: Ask | None = None, text: str = "Hello", **body: Any) -> SlotLease:
    return await tier.lease(ask or soon(), "chat", chat(text, **body), 100 + len(text))


def test_a_lease_is_good_for_the_engine_and_comes_back() -> None:
    async def main() -> None:
        engine, metrics = FakeEngine(), Metrics()
        tier = make(engine, metrics=metrics)
        in_use, waiting = metrics.slots_in_use.labels("local-8b"), metrics.waiting.labels("local-8b")
        waited = metrics.queue_wait_seconds.labels("local-8b")
        async with up(tier):
            assert metrics.slots_total.labels("local-8b").value == 2
            leases = [await lease(tier) for _ in range(2)]
            assert leases[0].engine is engine and leases[0].worker == "0"
            assert waited.sum == 0
            third = asyncio.create_task(lease(tier, soon(9)))
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
        tier = make(FakeEngine(), metrics=metrics, slots=1, max_waiting=1)
        refusals = metrics.queue_refusals_total
        async with up(tier):
            held = await lease(tier)
            waiting = asyncio.create_task(lease(tier, soon(0.3)))
            await asyncio.sleep(0)
            with pytest.raises(QueueFull):
                await lease(tier)
            with pytest.raises(NoFreeSlot):
                await lease(tier, soon(wait=False))
            with pytest.raises(QueueLockTimeout):
                await waiting
            assert metrics.queue_timeouts_total.labels("local-8b").value == 1
            assert refusals.labels("local-8b", "queue_full").value == 1
            assert refusals.labels("local-8b", "no_free_slot").value == 1
            held.release()
            assert tier.lock.in_use == 0

    run_virtual(main())


@pytest.mark.parametrize("state", ["cold", "starting", "failed", "dead", "closed"])
def test_a_tier_that_is_not_ready_gives_no_slot(state: str) -> None:
    async def main() -> None:
        errors = {"failed": ConfigError("no"), "dead": EngineStartFailed("no")}
        engine = FakeEngine(script=Script(start_s=10, start_error=errors.get(state)))
        metrics = Metrics()
        tier = make(engine, metrics=metrics)
        (worker,) = tier.workers
        life = asyncio.create_task(worker.run()) if state != "cold" else None
        await asyncio.sleep({"starting": 5, "dead": 10.5}.get(state, 20))
        if state == "closed":
            await tier.close(1.0)
        assert str(tier.state) == state and not tier.ready
        with pytest.raises(TierNotReady) as caught:
            await lease(tier)
        assert (caught.value.status, caught.value.code) == (503, "tier_not_ready")
        await tier.fits(chat("x" * 100_000), 100_000)
        assert tier.lock.in_use == 0
        assert tier.recovering is (state not in ("failed", "closed"))
        assert metrics.tier_ready.labels("local-8b").value == 0
        if life is not None:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
        await tier.close(1.0)

    run_virtual(main())


def test_readiness_and_states_are_shown_as_long_as_they_last() -> None:
    async def main() -> None:
        engine, metrics = FakeEngine(), Metrics()
        tier = make(engine, metrics=metrics)
        shown = metrics.worker_state
        async with up(tier):
            assert metrics.tier_ready.labels("local-8b").value == 1
            assert shown.labels("local-8b", "0", "ready").value == 1
            engine.kill()
            assert not tier.ready
            assert metrics.tier_ready.labels("local-8b").value == 0
            assert shown.labels("local-8b", "0", "ready").value == 0
            assert shown.labels("local-8b", "0", "dead").value == 1

    run_virtual(main())


@pytest.mark.parametrize("who_sees_it", ["a look", "nobody"])
def test_who_waits_when_the_last_worker_dies_is_told_at_once(who_sees_it: str) -> None:
    async def main() -> None:
        engine = FakeEngine()
        tier = make(engine, slots=1)
        async with up(tier):
            held = await lease(tier)
            waiting = [asyncio.create_task(lease(tier, soon(100))) for _ in range(3)]
            await asyncio.sleep(1)
            engine.kill()
            if who_sees_it == "a look":
                assert not tier.ready
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [type(result) for result in results] == [TierNotReady] * 3
            assert asyncio.get_running_loop().time() == 1
            held.release()
            assert (tier.lock.in_use, tier.lock.waiting) == (0, 0)

    run_virtual(main())


def test_the_other_worker_takes_the_queue_of_one_that_dies() -> None:
    async def main() -> None:
        engines = [FakeEngine(), FakeEngine()]
        tier = make(*engines, slots=1)
        async with up(tier):
            held = [await lease(tier) for _ in range(2)]
            assert {id(one.engine) for one in held} == {id(engine) for engine in engines}
            waiting = asyncio.create_task(lease(tier, soon(100)))
            await asyncio.sleep(1)
            engines[0].kill()
            await asyncio.sleep(0.5)
            assert tier.ready and not waiting.done()
            next(one for one in held if one.engine is engines[0]).release()
            await asyncio.sleep(0)
            assert not waiting.done(), "a dead worker's slot was granted"
            next(one for one in held if one.engine is engines[1]).release()
            granted = await waiting
            assert granted.engine is engines[1]
            granted.release()
            await asyncio.sleep(10)
            # Built anew, it takes requests again: both slots can be had.
            again = [await lease(tier) for _ in range(2)]
            assert {one.worker for one in again} == {"0", "1"}
            assert engines[0] not in [one.engine for one in again]
            for one in again:
                one.release()

    run_virtual(main())


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_dead_worker_is_skipped_within_five_milliseconds(workers: int) -> None:
    """In real time: the best of three, as the machine may be busy with something else."""
    took: list[float] = []
    for _ in range(3):
        engines = [FakeEngine() for _ in range(workers)]
        settings = TierSettings(replicas=workers)
        left = list(engines)
        clock = SystemClock()
        tier = Tier("local-8b", settings, lambda *_, own=left: own.pop(0), clock, Metrics())
        async with up(tier):
            engines[0].kill()
            began = time.perf_counter()
            ask = Ask(Deadline.after(clock, 5))
            if workers == 1:
                with pytest.raises(TierNotReady):
                    await tier.lease(ask, "chat", chat(), 60)
                took.append(time.perf_counter() - began)
            else:
                granted = await tier.lease(ask, "chat", chat(), 60)
                took.append(time.perf_counter() - began)
                assert granted.engine is engines[1]
                granted.release()
    assert min(took) < 0.005


def test_a_broken_off_stream_waits_for_the_worker_that_is_being_built() -> None:
    async def main() -> None:
        engine = FakeEngine()
        tier = make(engine, slots=1)
        async with up(tier):
            held = await lease(tier)
            engine.kill()
            going_on = asyncio.create_task(lease(tier, soon(100, priority=Priority.CONTINUED)))
            with pytest.raises(TierNotReady):
                await lease(tier)
            held.release()
            granted = await going_on
            # A second of pause and five of loading.
            assert asyncio.get_running_loop().time() == 6
            assert granted.engine is not engine
            granted.release()

    run_virtual(main())


def test_nobody_waits_for_a_tier_that_is_given_up() -> None:
    async def main() -> None:
        engine = FakeEngine()
        tier = make(engine, slots=1, pool=PoolSettings(max_restarts=0))
        async with up(tier):
            going_on = asyncio.create_task(lease(tier, soon(100, priority=Priority.CONTINUED)))
            (await going_on).release()
            held = await lease(tier)
            engine.kill()
            late = asyncio.create_task(lease(tier, soon(100, priority=Priority.CONTINUED)))
            with pytest.raises(TierNotReady):
                await late
            assert asyncio.get_running_loop().time() == 0 and tier.state is WorkerState.FAILED
            held.release()

    run_virtual(main())


def test_a_suspected_worker_gets_nothing_while_another_one_serves() -> None:
    async def main() -> None:
        engines = [FakeEngine(), FakeEngine()]
        tier = make(*engines, slots=4, max_num_seqs=4)
        async with up(tier):
            engines[0].script.hang = True
            await asyncio.sleep(3.5)
            assert tier.workers[0].state is WorkerState.SUSPECT
            leases = [await lease(tier) for _ in range(4)]
            assert {one.worker for one in leases} == {"1"}
            with pytest.raises(QueueLockTimeout):
                await lease(tier, soon(0.1))
            engines[0].script.hang = False
            await asyncio.sleep(2)
            assert tier.workers[0].state is WorkerState.READY
            leases.append(await lease(tier))
            assert leases[-1].worker == "0"
            for one in leases:
                one.release()

    run_virtual(main())


def test_requests_are_reserved_for_and_the_reservation_follows_the_answer() -> None:
    async def main() -> None:
        tier = make(FakeEngine(kv_tokens=900), slots=8, max_num_seqs=8)
        async with up(tier):
            expected = tier.expectation.prompt_tokens(900) + 100
            first = await lease(tier, text="x" * 900, max_tokens=100)
            assert tier.lock.reserved_tokens == expected
            first.grown(TokenMeter(prompt=200, completion=10))
            assert tier.lock.reserved_tokens == 300
            first.grown(TokenMeter(prompt=200, completion=300))
            assert tier.lock.reserved_tokens == 500
            # What does not fit beside it waits, though seven slots are free.
            waiting = asyncio.create_task(lease(tier, soon(9), text="x" * 2400, max_tokens=500))
            await asyncio.sleep(1)
            assert tier.lock.waiting == 1
            first.release()
            (await waiting).release()
            assert tier.lock.reserved_tokens == 0

    run_virtual(main())


def test_no_request_is_reserved_so_much_for_that_the_others_starve() -> None:
    async def main() -> None:
        tier = make(FakeEngine(kv_tokens=4000), slots=8, max_num_seqs=8, max_model_len=2048)
        async with up(tier):
            padded = await tier.lease(soon(), "chat", chat("x", metadata={"pad": "p" * 100_000}), 100_100)
            assert tier.lock.reserved_tokens < 300, "what is no prompt is not reserved for"
            padded.release()
            crowd = await lease(tier, text="x" * 8_000, n=128)
            assert tier.lock.reserved_tokens == 2000, "half of what there is, at most"
            (await lease(tier)).release()
            crowd.release()
            with pytest.raises(InvalidRequest, match="n must be at most 128"):
                await lease(tier, n=10**9)
            assert tier.lock.in_use == 0

    run_virtual(main())


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ({"messages": [{"content": "abc"}, {"content": [{"type": "text", "text": "가나"}, "x"]}]}, 10),
        ({"messages": [{"content": None}, "no message", {}]}, 0),
        ({"messages": [{"content": "abc"}], "tools": [{}]}, 500),
        ({"messages": "abc"}, 500),
        ({"messages": [{"content": "x" * 900}]}, 500),
    ],
)
def test_the_bytes_that_become_prompt(body: dict[str, Any], size: int) -> None:
    assert prompt_bytes(body, 500) == size


def test_a_worker_that_dies_over_a_count_leaves_it_to_its_neighbour() -> None:
    async def main() -> None:
        engines = [FakeEngine(max_model_len=500), FakeEngine(max_model_len=500)]
        tier = make(*engines)

        async def dies(body: dict[str, Any]) -> int:
            engines[0].kill()
            raise EngineUnavailable

        engines[0].count_tokens = dies  # type: ignore[method-assign]
        async with up(tier):
            await tier.fits(chat("x" * 400), 600)
            with pytest.raises(ContextLengthExceeded):
                await tier.fits(chat("x" * 3000), 3100)

    run_virtual(main())


def test_without_the_gate_only_slots_count() -> None:
    async def main() -> None:
        tier = make(FakeEngine(kv_tokens=100), slots=8, max_num_seqs=8, kv_gate=False)
        async with up(tier):
            leases = [await lease(tier, text="x" * 9000, max_tokens=500) for _ in range(8)]
            for one in leases:
                one.release()

    run_virtual(main())


def test_closing_turns_away_who_waits_and_takes_late_releases() -> None:
    async def main() -> None:
        tier = make(FakeEngine(), slots=1)
        async with up(tier):
            held = await lease(tier)
            waiting = asyncio.create_task(lease(tier, soon(100)))
            await asyncio.sleep(0)
        with pytest.raises(TierNotReady):
            await waiting
        assert tier.state is WorkerState.CLOSED
        held.release()
        assert tier.lock.in_use == 0

    run_virtual(main())


def test_short_bodies_fit_without_being_tokenised_and_long_ones_are_counted() -> None:
    async def main() -> None:
        engine = FakeEngine(max_model_len=500)
        tier = make(engine)
        counted: list[int] = []
        real = engine.count_tokens

        async def count_tokens(body: dict[str, Any]) -> int:
            counted.append(1)
            return await real(body)

        engine.count_tokens = count_tokens  # type: ignore[method-assign]
        async with up(tier):
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
        async with up(tier):
            await asyncio.sleep(7)
            asking = asyncio.create_task(complete(engine, chat("SECRET")))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            status = tier.status()
            queued = status["engine_queued_tokens"]
            assert queued > 0
            assert status == {
                "road": "local-8b",
                "model": "SmolLM2-135M-Instruct",
                "embedded": True,
                "ready": True,
                "whole": True,
                "state": "ready",
                "reason": "",
                "state_age_s": 7.0,
                "max_model_len": 2048,
                "slots": 2,
                "slots_in_use": 0,
                "waiting": 0,
                "max_waiting": 256,
                "kv_reserved_tokens": 0,
                "engine_unfinished": 1,
                "engine_queued_tokens": queued,
                "workers": [
                    {
                        "name": "0",
                        "state": "ready",
                        "reason": "",
                        "state_age_s": 7.0,
                        "restarts": 0,
                        "slots_in_use": 0,
                        "engine_unfinished": 1,
                        "engine_queued_tokens": queued,
                    }
                ],
            }
            asking.cancel()

    run_virtual(main())


def test_the_models_name_is_the_given_one_or_its_folders(tmp_path: Path) -> None:
    folder = tmp_path / "Llama-3-8B"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert model_name(TierSettings()) == "SmolLM2-135M-Instruct"
    assert model_name(TierSettings(model_path=folder)) == "Llama-3-8B"
    assert model_name(TierSettings(model_path=folder, served_model_name="ours/8b")) == "ours/8b"


@pytest.mark.parametrize(
    ("body", "tokens", "n"),
    [
        ({}, None, 1),
        ({"max_tokens": 5, "n": 3}, 5, 3),
        ({"max_tokens": 5, "max_completion_tokens": 7}, 7, 1),
        ({"max_tokens": "many", "n": "x"}, None, 1),
        ({"max_tokens": 0, "n": 0}, None, 1),
        ({"max_tokens": True, "n": True}, None, 1),
    ],
)
def test_hostile_limits_are_no_limits(body: dict[str, Any], tokens: int | None, n: int) -> None:
    assert (asked_tokens(body), choices(body)) == (tokens, n)
