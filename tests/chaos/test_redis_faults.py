"""Redis refused, black-holed, slow, flushed, restarted, and a replica killed while it holds slots: service goes on
within milliseconds, and slots are shared again without a restart, none lost and none counted twice."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.process import REPOSITORY
from tests.support.redis_server import RedisServer, redis_server
from tests.support.replicas import PLACE, Replica, Watch, replica, terms
from tests.support.waiting import until
from tests.support.wire import Wire, wire
from weighbridge.pool.slot_lock import NoFreeSlot


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as made:
        yield made


@pytest.fixture
async def line(server: RedisServer) -> AsyncIterator[Wire]:
    async with wire(server.port) as made:
        yield made


async def takes(one: Replica) -> float:
    """Milliseconds to take a slot and give it back."""
    began = time.monotonic()
    (await one.lock.acquire(terms(5))).release()
    return (time.monotonic() - began) * 1000


async def taken_now(one: Replica) -> int:
    """How many more slots this replica gets without waiting."""
    slots = []
    with contextlib.suppress(NoFreeSlot):
        while True:
            slots.append(await one.lock.acquire(terms(wait=False)))
    for slot in slots:
        slot.release()
    return len(slots)


# ---- away from the start ----


async def test_refused_from_the_start_each_goes_on_with_its_share() -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    async with replica(url, slots=9, replicas=4, start=False) as one:
        # Nothing is granted before it is known whether there is a Redis: others may hold all.
        early = asyncio.create_task(takes(one))
        await asyncio.sleep(0)
        assert one.lock.waiting == 1
        one.link.start()
        assert await early < 2000
        assert await taken_now(one) == 2
        assert await takes(one) < 50
        assert one.link.status()["reason"] == "connect"


async def test_a_share_is_at_least_one_slot() -> None:
    async with replica(f"redis://127.0.0.1:{free_port()}/0", slots=2, replicas=40, start=False) as one:
        one.link.start()
        await one.on_own()
        assert await taken_now(one) == 1


async def test_a_redis_that_comes_late_is_found(server: RedisServer) -> None:
    server.stop()
    async with replica(server.url, slots=3, start=False) as one:
        one.link.start()
        await one.on_own()
        slot = await one.lock.acquire(terms())
        server.start()
        await one.together()
        assert server.leases() == 1 and not one.lock.on_own
        slot.release()
        await until(lambda: server.leases() == 0)


# ---- black-holed ----


async def test_in_a_black_hole_nobody_waits_longer_than_one_operation(
    line: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "weighbridge.state")
    async with replica(line.url, slots=4, operation_ms=50) as one:
        await one.lock.acquire(terms())
        line.swallows = True
        first = await asyncio.gather(*(takes(one) for _ in range(3)))
        assert max(first) < 50 + 250
        later = [await takes(one) for _ in range(200)]
        assert sorted(later)[190] < 5, "and from then on nobody waits for Redis at all"
        assert one.link.status() | {"age_s": 0} == {"ready": False, "reason": "timeout", "age_s": 0}
        assert one.metrics.redis_away.value == 1
        for _ in range(20):
            await takes(one)
            await asyncio.sleep(0.05)
        line.swallows = False
        await one.together()
        assert one.metrics.redis_away.value == 0
        told = [record.message for record in caplog.records if "Redis" in record.message]
        assert len(told) == 2 and "away" in told[0] and "back" in told[1], told


async def test_an_idle_line_that_died_is_noticed_without_a_request(line: Wire) -> None:
    async with replica(line.url, slots=2, operation_ms=50, lease_s=60) as one:
        line.swallows = True
        await one.on_own(4)
        assert await takes(one) < 50


async def test_messages_that_do_not_come_are_made_good_for(server: RedisServer, line: Wire) -> None:
    """Only the line for messages dies: the slot that was granted by one is not lost."""
    async with (
        replica(line.url, slots=1, operation_ms=80) as a,
        replica(server.url, slots=1, operation_ms=80) as b,
    ):
        slot = await b.lock.acquire(terms())
        waiting = asyncio.create_task(a.lock.acquire(terms()))
        await until(lambda: a.lock.waiting == 1 and not a.lock._asking)
        with server.client() as client:
            client.client_kill_filter(_type="pubsub", addr=None, skipme=True)
        slot.release()
        (await asyncio.wait_for(waiting, 5)).release()
        await until(lambda: server.leases() == 0)


# ---- slow ----


async def test_a_slow_redis_is_waited_for_up_to_the_operation_timeout(line: Wire) -> None:
    async with replica(line.url, slots=2, operation_ms=300) as one:
        line.delay_s = 0.02
        assert 30 < await takes(one) < 300
        assert one.link.available
        line.delay_s = 0.4
        assert await takes(one) < 300 + 250
        assert not one.link.available
        assert max([await takes(one) for _ in range(20)]) < 250
        line.delay_s = 0.0
        await one.together()


async def test_one_that_is_slow_again_and_again_is_asked_less_and_less(line: Wire) -> None:
    async with replica(line.url, slots=2, operation_ms=50, lease_s=30) as one:
        visits = 0

        def count(up: bool) -> None:
            nonlocal visits
            visits += up

        one.link.follow(count)
        until_s = time.monotonic() + 3
        while time.monotonic() < until_s:
            # Every line comes up, and is lost by the first thing that is asked.
            line.delay_s = 0.2 if one.link.available else 0.0
            await takes(one)
            await asyncio.sleep(0.005)
        assert visits <= 8


# ---- flushed, restarted ----


async def test_after_a_flush_every_lease_is_stated_again(server: RedisServer) -> None:
    async with replica(server.url, slots=4) as a, replica(server.url, slots=4) as b:
        held = [await a.lock.acquire(terms()) for _ in range(3)]
        with server.client() as client:
            client.flushall()
            client.script_flush()
        # It has forgotten those three, and must not grant anything before it has heard of them.
        got = [await b.lock.acquire(terms())]
        with pytest.raises(NoFreeSlot):
            await b.lock.acquire(terms(wait=False))
        await until(lambda: server.leases() == 4)
        for slot in (*held, *got):
            slot.release()
        await until(lambda: server.leases() == 0)
        assert (a.lock.in_use, b.lock.in_use) == (0, 0)


async def test_after_a_flush_those_who_wait_keep_their_order(server: RedisServer) -> None:
    watch, hold = Watch(), asyncio.Event()
    async with replica(server.url, slots=1) as a, replica(server.url, slots=1) as b:
        await until(lambda: a.lock.replicas == b.lock.replicas == 2)
        tasks = [asyncio.create_task(a.work(watch, "held", hold))]
        await until(lambda: a.lock.in_use == 1)
        for name, one in (("b", b), ("a", a)):
            tasks.append(asyncio.create_task(one.work(watch, name, hold)))
            await until(lambda one=one: one.lock.waiting == 1 and not one.lock._asking)  # type: ignore[misc]
            await asyncio.sleep(0.02)
        with server.client() as client:
            client.flushall()
        # It goes on by itself until the other one, whose claim is the later one, has said what it has.
        b.lock.news()
        await until(lambda: server.leases() == 1)
        await until(lambda: waiting_claims(server) == 2)
        hold.set()
        await asyncio.gather(*tasks)
        assert watch.served == ["held", "b", "a"]


def waiting_claims(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.zcard("{weighbridge:slots:local-8b}:waiting"))


async def storm(server: RedisServer, lease_s: float, seconds: float, fault: object) -> Watch:
    """Three replicas under load while `fault()` strikes again and again."""
    watch, rng = Watch(), random.Random(11)
    async with contextlib.AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(
                replica(server.url, slots=6, lease_s=lease_s, operation_ms=200, replicas=3)
            )
            for _ in range(3)
        ]
        await until(lambda: all(one.lock.replicas == 3 for one in replicas))
        end = time.monotonic() + seconds

        async def visitor(one: Replica) -> int:
            served = 0
            while time.monotonic() < end:
                task = asyncio.create_task(one.work(watch, "", rng.random() * 0.02, terms(20)))
                if rng.random() < 0.1:
                    await asyncio.sleep(rng.random() * 0.02)
                    task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                    served += 1
            return served

        async def strike() -> None:
            while time.monotonic() < end - 1:
                await asyncio.sleep(0.7)
                await fault()  # type: ignore[operator]

        *served, _ = await asyncio.gather(*(visitor(one) for one in replicas for _ in range(4)), strike())
        assert min(served) > 10, "everybody was served all along"
        for one in replicas:
            await one.together()
            assert (one.lock.in_use, one.lock.waiting) == (0, 0)
        await until(lambda: server.leases() == 0)
    assert watch.in_use == 0
    return watch


async def test_flushed_in_mid_flight_the_limit_holds(server: RedisServer) -> None:
    async def flush() -> None:
        with server.client() as client:
            client.flushall()

    watch = await storm(server, 3.0, 5.0, flush)
    assert watch.peak == 6


async def test_restarted_in_mid_flight_the_limit_holds(server: RedisServer) -> None:
    async def restart() -> None:
        server.stop()
        await asyncio.sleep(0.3)
        await asyncio.to_thread(server.start)

    watch = await storm(server, 3.0, 6.0, restart)
    assert watch.peak == 6


async def test_in_the_dark_no_more_is_granted_than_was_free_at_the_last_look(server: RedisServer) -> None:
    async with (
        replica(server.url, slots=8, lease_s=1.5, operation_ms=80) as a,
        replica(server.url, slots=8, lease_s=1.5, operation_ms=80) as b,
    ):
        await until(lambda: a.lock.replicas == b.lock.replicas == 2)
        held = [await a.lock.acquire(terms()) for _ in range(5)]
        await until(lambda: b.lock.in_use_everywhere == 5, 3)
        server.stop()
        await a.on_own()
        await b.on_own()
        # Three were free: one for each, and what a holds it may use again.
        assert (await taken_now(a), await taken_now(b)) == (1, 1)
        held.pop().release()
        assert await taken_now(a) == 2
        # When the leases have ended, each has its half, and whoever holds more grants nothing.
        await until(lambda: all(one.lock._places[PLACE].slots == 4 for one in (a, b)), 4)
        assert (await taken_now(a), await taken_now(b)) == (0, 4)
        dark = [await b.lock.acquire(terms()) for _ in range(4)]
        await asyncio.to_thread(server.start)
        await a.together()
        await b.together()
        # Together again; nothing is granted before the count is below the limit.
        await until(lambda: server.leases() == 8)
        assert (await taken_now(a), await taken_now(b)) == (0, 0)
        for slot in (*held, *dark):
            slot.release()
        await until(lambda: server.leases() == 0)
        assert await taken_now(a) == 8


async def test_what_was_granted_while_it_came_back_is_stated_at_once(server: RedisServer, line: Wire) -> None:
    async with replica(line.url, slots=4, lease_s=60, operation_ms=2000) as one:
        await line.refuse()
        await one.on_own()
        line.delay_s = 0.1
        await line.start()
        await until(lambda: one.lock._flight is not None and one.lock.on_own, 10)
        slot = await one.lock.acquire(terms())
        assert one.lock.on_own, "granted while the statement was under way"
        await one.together()
        await until(lambda: server.leases() == 1, 3)
        slot.release()
        await until(lambda: server.leases() == 0, 3)


# ---- a replica dies ----


async def test_slots_of_a_replica_that_was_killed_come_back_with_its_lease(server: RedisServer) -> None:
    lease_s = 1.5
    async with replica(server.url, slots=3, lease_s=lease_s, operation_ms=200) as one:
        holder = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.support.slot_holder", server.url, "3", str(lease_s)),
            cwd=REPOSITORY,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert holder.stdout is not None
            assert await asyncio.wait_for(holder.stdout.readline(), 60) == b"held\n"
            waiting = [asyncio.create_task(one.lock.acquire(terms(20))) for _ in range(3)]
            await asyncio.sleep(1.2 * lease_s)
            assert not any(task.done() for task in waiting), "it lives, and renews them"
        finally:
            holder.kill()
            await holder.wait()
        began = time.monotonic()
        slots = await asyncio.gather(*waiting)
        # Its requests waited before ours, and get nothing any more.
        assert lease_s / 3 < time.monotonic() - began < lease_s * 4 / 3 + 1
        await until(lambda: one.lock.replicas == 1)
        for slot in slots:
            slot.release()
        await until(lambda: server.leases() == 0)
