"""What a queue lock over several gateways promises beside `SlotLock`: two and more replicas on one real Redis."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, redis_server
from tests.support.replicas import PLACE, Replica, Watch, replica, terms
from tests.support.waiting import until
from weighbridge.pool.slot_lock import NoFreeSlot, Priority, QueueLockTimeout
from weighbridge.state.redis_terms import RedisAway
from weighbridge.state.slot_leases import StatedPlace, Statement


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as made:
        yield made


@pytest.fixture
def redis(server: RedisServer) -> RedisServer:
    """With nothing in it."""
    with server.client() as client:
        client.flushall()
    return server


async def queued(
    one: Replica, watch: Watch, name: str, hold: asyncio.Event, **more: object
) -> asyncio.Task[object]:
    """Ask, and wait until Redis has the claim."""
    before = one.lock.waiting
    task = asyncio.create_task(one.work(watch, name, hold, terms(**more)))  # type: ignore[arg-type]
    await until(lambda: one.lock.waiting == before + 1 and not one.lock._asking)
    return task


async def test_the_limit_holds_over_all_replicas_whatever_they_do(redis: RedisServer) -> None:
    watch, rng = Watch(), random.Random(7)
    outcomes: Counter[str] = Counter()
    async with (
        replica(redis.url, slots=5) as a,
        replica(redis.url, slots=5) as b,
        replica(redis.url, slots=5) as c,
    ):

        async def visit(n: int) -> None:
            await asyncio.sleep(rng.random() * 0.8)
            ask = terms(
                rng.choice([0.05, 5, 5, 5]), tenant=rng.choice("xyz"), priority=rng.choice([*Priority])
            )
            task = asyncio.create_task(rng.choice([a, b, c]).work(watch, str(n), rng.random() * 0.01, ask))
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random() * 0.05)
                task.cancel()
            try:
                await task
                outcomes["served"] += 1
            except QueueLockTimeout:
                outcomes["late"] += 1
            except asyncio.CancelledError:
                outcomes["cancelled"] += 1

        await asyncio.gather(*(visit(n) for n in range(500)))
        assert watch.peak == 5
        assert outcomes["served"] > 300 and sum(outcomes.values()) == 500, outcomes
        await until(lambda: redis.leases() == 0)
        assert all((one.lock.in_use, one.lock.waiting) == (0, 0) for one in (a, b, c))
        with redis.client() as client:
            assert not any("waiting" in key for key in client.scan_iter())


async def test_requests_are_served_in_the_order_of_asking_over_all_replicas(redis: RedisServer) -> None:
    watch, hold = Watch(), asyncio.Event()
    async with replica(redis.url, slots=1) as a, replica(redis.url, slots=1) as b:
        first = asyncio.create_task(a.work(watch, "held", hold))
        await until(lambda: a.lock.in_use == 1)
        tasks = []
        for name, one in (("b1", b), ("a1", a), ("b2", b), ("b3", b), ("a2", a)):
            tasks.append(await queued(one, watch, name, hold))
            await asyncio.sleep(0.005)
        hold.set()
        await asyncio.gather(first, *tasks)
        assert watch.served == ["held", "b1", "a1", "b2", "b3", "a2"]
        assert watch.peak == 1


async def test_urgency_goes_before_the_order_over_all_replicas(redis: RedisServer) -> None:
    watch, hold = Watch(), asyncio.Event()
    async with replica(redis.url, slots=1) as a, replica(redis.url, slots=1) as b:
        first = asyncio.create_task(a.work(watch, "held", hold))
        await until(lambda: a.lock.in_use == 1)
        tasks = [
            await queued(a, watch, "batch", hold, priority=Priority.BATCH),
            await queued(a, watch, "interactive", hold),
            await queued(b, watch, "continued", hold, priority=Priority.CONTINUED),
        ]
        hold.set()
        await asyncio.gather(first, *tasks)
        assert watch.served == ["held", "continued", "interactive", "batch"]


async def test_a_replica_that_always_has_somebody_waiting_does_not_starve_another(redis: RedisServer) -> None:
    watch = Watch()
    async with replica(redis.url, slots=2) as a, replica(redis.url, slots=2) as b:
        crowd = [asyncio.create_task(a.work(watch, "a", 0.005)) for _ in range(60)]
        await until(lambda: a.lock.in_use == 2)
        late = [asyncio.create_task(b.work(watch, "b", 0.005)) for _ in range(5)]
        await until(lambda: b.lock.waiting == 5 and not b.lock._asking)
        await asyncio.sleep(0.005)
        crowd += [asyncio.create_task(a.work(watch, "a, later", 0.005)) for _ in range(60)]
        await asyncio.gather(*crowd, *late)
        assert watch.peak == 2
        last_of_b = max(n for n, name in enumerate(watch.served) if name == "b")
        assert last_of_b < 75, "behind those who came before, not behind those who came later"


async def test_a_slot_that_comes_back_wakes_another_replica_at_once(redis: RedisServer) -> None:
    """Long before it would look by itself."""
    async with (
        replica(redis.url, slots=1, lease_s=60) as a,
        replica(redis.url, slots=1, lease_s=60) as b,
    ):
        for _ in range(20):
            slot = await a.lock.acquire(terms())
            waiting = asyncio.create_task(b.lock.acquire(terms()))
            await until(lambda: b.lock.waiting == 1 and not b.lock._asking)
            began = time.monotonic()
            slot.release()
            (await waiting).release()
            assert time.monotonic() - began < 0.5
            await until(lambda: redis.leases() == 0)


async def test_who_waits_asks_redis_once(redis: RedisServer) -> None:
    async with (
        replica(redis.url, slots=1, lease_s=60) as a,
        replica(redis.url, slots=1, lease_s=60) as b,
    ):
        slot = await a.lock.acquire(terms())
        waiting = [asyncio.create_task(b.lock.acquire(terms())) for _ in range(50)]
        await until(lambda: b.lock.waiting == 50 and not b.lock._asking)
        with redis.client() as client:
            client.config_resetstat()
            await asyncio.sleep(0.5)
            calls = {name: row["calls"] for name, row in client.info("commandstats").items()}
        assert "cmdstat_evalsha" not in calls, calls
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        slot.release()


async def test_a_deadline_is_kept_to_some_milliseconds_and_leaves_nothing(redis: RedisServer) -> None:
    async with replica(redis.url, slots=1) as a, replica(redis.url, slots=1) as b:
        slot = await a.lock.acquire(terms())
        began = time.monotonic()
        with pytest.raises(QueueLockTimeout) as caught:
            await b.lock.acquire(terms(0.2))
        assert 0.2 <= time.monotonic() - began < 0.3
        assert caught.value.waited_ms == pytest.approx(200, abs=100)
        slot.release()
        await until(lambda: redis.leases() == 0)
        assert (await a.lock.acquire(terms(wait=False))).place == PLACE, "the late one's claim is gone"


async def test_one_that_was_cancelled_keeps_nothing(redis: RedisServer) -> None:
    async with replica(redis.url, slots=1) as a, replica(redis.url, slots=1) as b:
        for turns in range(8):
            slot = await a.lock.acquire(terms())
            victim = asyncio.create_task(b.lock.acquire(terms()))
            if turns % 2:
                await until(lambda: not b.lock._asking and b.lock.waiting == 1)
            slot.release()
            for _ in range(turns):
                await asyncio.sleep(0)
            victim.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await victim).release()
            await until(lambda: redis.leases() == 0)
            assert (b.lock.in_use, b.lock.waiting) == (0, 0)


async def test_who_will_not_wait_is_told_at_once_where_the_others_hold_all(redis: RedisServer) -> None:
    async with replica(redis.url, slots=1) as a, replica(redis.url, slots=1) as b:
        slot = await a.lock.acquire(terms())
        with pytest.raises(NoFreeSlot):
            await b.lock.acquire(terms(wait=False))
        slot.release()
        await until(lambda: redis.leases() == 0)
        (await b.lock.acquire(terms(wait=False))).release()


async def test_a_replica_that_ends_gives_everything_back_at_once(redis: RedisServer) -> None:
    async with replica(redis.url, slots=2, lease_s=60) as a:
        async with replica(redis.url, slots=2, lease_s=60) as b:
            for _ in range(2):
                await b.lock.acquire(terms())
            waiting = asyncio.create_task(a.lock.acquire(terms()))
            await until(lambda: a.lock.waiting == 1 and not a.lock._asking)
            assert a.lock.in_use_everywhere == 2
        slot = await asyncio.wait_for(waiting, 2)
        slot.release()
        await until(lambda: redis.leases() == 0)


async def test_slots_of_a_worker_that_died_come_back_with_its_requests(redis: RedisServer) -> None:
    async with (
        replica(redis.url, slots=2, lease_s=60) as a,
        replica(redis.url, slots=2, lease_s=60) as b,
    ):
        slots = [await a.lock.acquire(terms()) for _ in range(2)]
        waiting = [asyncio.create_task(b.lock.acquire(terms())) for _ in range(2)]
        await until(lambda: b.lock.waiting == 2 and not b.lock._asking)
        a.lock.close_place(PLACE)
        for slot in slots:
            slot.release()
        for slot in await asyncio.wait_for(asyncio.gather(*waiting), 2):
            slot.release()
        await until(lambda: redis.leases() == 0)


async def test_a_lease_that_is_granted_as_the_worker_dies_goes_back(redis: RedisServer) -> None:
    async with (
        replica(redis.url, slots=1, lease_s=60) as a,
        replica(redis.url, slots=1, lease_s=60) as b,
    ):
        late = asyncio.create_task(a.lock.acquire(terms(priority=Priority.CONTINUED)))
        while not a.lock._claims:
            await asyncio.sleep(0)
        assert a.lock._flight is not None, "its claim is on the way"
        a.lock.close_place(PLACE)
        slot = await asyncio.wait_for(b.lock.acquire(terms()), 2)
        slot.release()
        late.cancel()
        await until(lambda: redis.leases() == 0)


async def test_slots_that_come_back_while_a_replica_stops_serve_another(redis: RedisServer) -> None:
    async with replica(redis.url, slots=2, lease_s=60) as b:
        async with replica(redis.url, slots=2, lease_s=60) as a:
            slots = [await a.lock.acquire(terms()) for _ in range(2)]
            waiting = [asyncio.create_task(b.lock.acquire(terms())) for _ in range(2)]
            await until(lambda: b.lock.waiting == 2 and not b.lock._asking)
            a.lock.close()
            slots[0].release()
            first, _ = await asyncio.wait(waiting, timeout=2, return_when=asyncio.FIRST_COMPLETED)
            assert len(first) == 1, "it need not have stopped for that"
            # The last one comes back in the very moment in which it says good-bye.
            slots[1].release()
        for slot in await asyncio.wait_for(asyncio.gather(*waiting), 2):
            slot.release()
        await until(lambda: redis.leases() == 0)
        assert members(redis) == [b.link.member]


async def test_after_the_good_bye_nothing_makes_a_replica_known_again(redis: RedisServer) -> None:
    async with replica(redis.url, slots=1, lease_s=60) as b:
        async with replica(redis.url, slots=1, lease_s=60) as a:
            slot = await a.lock.acquire(terms())

            async def late() -> None:
                slot.release()
                while a.lock._flight is not None:
                    await asyncio.sleep(0)

            a.link.before_closing(late)
        assert members(redis) == [b.link.member]
        (await asyncio.wait_for(b.lock.acquire(terms()), 2)).release()


def members(redis: RedisServer) -> list[str]:
    with redis.client() as client:
        return client.zrange("{weighbridge:slots:local-8b}:alive", 0, -1)


async def test_places_go_by_their_endpoint_whatever_their_number(redis: RedisServer) -> None:
    async with (
        replica(redis.url, places={"0": 1, "1": 3}, keys={"0": "x", "1": "y"}) as a,
        replica(redis.url, places={"0": 3, "1": 1}, keys={"0": "y", "1": "x"}) as b,
    ):
        named = Counter[str]()
        for one, keys in ((a, {"0": "x", "1": "y"}), (b, {"0": "y", "1": "x"})):
            for _ in range(2):
                named[keys[(await one.lock.acquire(terms())).place]] += 1
        assert named == {"x": 1, "y": 3}
        with pytest.raises(NoFreeSlot):
            await a.lock.acquire(terms(wait=False))


async def test_a_place_that_one_replica_avoids_still_serves_another(redis: RedisServer) -> None:
    places = {"0": 1, "1": 1}
    async with replica(redis.url, places=places) as a, replica(redis.url, places=places) as b:
        a.lock.avoid("0", True)
        first = await a.lock.acquire(terms())
        assert first.place == "1"
        a_waits = asyncio.create_task(a.lock.acquire(terms()))
        await until(lambda: a.lock.waiting == 1 and not a.lock._asking)
        second = await asyncio.wait_for(b.lock.acquire(terms()), 2)
        assert second.place == "0", "it does not stand behind one that does not want it"
        second.release()
        await until(lambda: redis.leases() == 1)
        assert not a_waits.done()
        a.lock.avoid("0", False)
        assert (await asyncio.wait_for(a_waits, 2)).place == "0"


async def test_a_held_slot_stays_held_for_many_leases(redis: RedisServer) -> None:
    async with (
        replica(redis.url, slots=1, lease_s=0.6, operation_ms=90) as a,
        replica(redis.url, slots=1, lease_s=0.6, operation_ms=90) as b,
    ):
        slot = await a.lock.acquire(terms())
        # Whoever asks takes away what has ended.
        for _ in range(40):
            with pytest.raises(NoFreeSlot):
                await b.lock.acquire(terms(wait=False))
            await asyncio.sleep(0.05)
        slot.release()
        (await b.lock.acquire(terms())).release()


PLACES = (StatedPlace(PLACE, 4, True),)


async def test_a_whole_statement_takes_away_what_nobody_knows_of(redis: RedisServer) -> None:
    """A lease whose grant never arrived, a claim whose taking back was lost: of this replica alone."""
    async with replica(redis.url, slots=4) as a, replica(redis.url, slots=4) as b:
        other = await b.lock.acquire(terms())
        leases = a.lock._leases
        lost = tuple((f"{a.link.member}.9{n}", 1, 0, 0, ()) for n in range(5))
        answer = await leases.state(Statement(PLACES, claims=lost))  # type: ignore[arg-type]
        assert len(answer.granted) == 3 and answer.busy == {PLACE: 4} and answer.waiting == 2
        answer = await leases.state(Statement(PLACES, whole=True, held=((),)))
        assert answer.busy == {PLACE: 1} and answer.waiting == 0
        other.release()


async def test_what_is_said_twice_counts_once(redis: RedisServer) -> None:
    async with replica(redis.url, slots=4) as a:
        leases = a.lock._leases
        claim = (f"{a.link.member}.99", 1, 0, 0, ())
        for _ in range(3):
            answer = await leases.state(Statement(PLACES, whole=True, held=((),), claims=(claim,)))
            assert answer.granted == ((claim[0], PLACE),) and answer.busy == {PLACE: 1}
        for _ in range(3):
            answer = await leases.state(Statement(PLACES, gone=((claim[0], PLACE), (claim[0], ""))))
            assert answer.busy == {PLACE: 0}


async def test_a_statement_that_comes_late_is_not_heard(redis: RedisServer) -> None:
    async with replica(redis.url, slots=4, lease_s=60) as a:
        slot = await a.lock.acquire(terms())
        leases = a.lock._leases
        leases._number -= 1
        with pytest.raises(RedisAway):
            await leases.state(Statement(PLACES, whole=True, held=((),)))
        assert redis.leases() == 1
        slot.release()


async def test_the_rights_that_the_docs_name_are_enough(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "redis.md").read_text().replace("\n", " ")
    named = page.partition("The user needs ")[2].partition(".")[0]
    rights = [word for part in named.split("`")[1::2] for word in part.split()]
    assert len(rights) > 8
    rights = [right.replace("production", "weighbridge") for right in rights]
    with redis_server(tmp_path) as guarded:
        with guarded.client() as client:
            client.execute_command("ACL", "SETUSER", "gateway", "on", ">pass", "-@all", *rights)
            client.execute_command("ACL", "SETUSER", "default", "on", "nopass", "+@all")
        url = guarded.url.replace("redis://", "redis://gateway@")
        async with (
            replica(url, slots=1, password="pass") as a,
            replica(url, slots=1, password="pass") as b,
        ):
            slot = await a.lock.acquire(terms())
            waiting = asyncio.create_task(b.lock.acquire(terms()))
            await until(lambda: b.lock.waiting == 1 and not b.lock._asking)
            slot.release()
            (await asyncio.wait_for(waiting, 2)).release()
            with guarded.client() as client:
                client.script_flush()
            (await a.lock.acquire(terms())).release()
            assert a.link.available and b.link.available
        with guarded.client() as client:
            refused = client.execute_command("ACL", "LOG")
        assert refused == []


async def test_a_cluster_would_keep_the_keys_together(tmp_path: Path) -> None:
    # The port of the nodes' own talk would be 10,000 above the other, which not every free port has room for.
    bus = str(free_port())
    with redis_server(tmp_path, "--cluster-enabled", "yes", "--cluster-port", bus) as node:
        with node.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
            await until(lambda: "cluster_state:ok" in str(client.execute_command("CLUSTER", "INFO")), 20)
        places = {"0": 1, "1": 1}
        async with (
            replica(node.url, places=places, lease_s=20, operation_ms=2000) as a,
            replica(node.url, places=places, lease_s=20, operation_ms=2000) as b,
        ):
            slots = [await a.lock.acquire(terms()), await b.lock.acquire(terms())]
            with pytest.raises(NoFreeSlot):
                await a.lock.acquire(terms(wait=False))
            for slot in slots:
                slot.release()
            assert a.link.available and b.link.available


async def test_every_key_is_below_the_prefix_has_one_hash_tag_and_expires(redis: RedisServer) -> None:
    async with replica(redis.url, slots=1, lease_s=2) as a, replica(redis.url, slots=1, lease_s=2) as b:
        await a.lock.acquire(terms())
        waiting = asyncio.create_task(b.lock.acquire(terms()))
        await until(lambda: b.lock.waiting == 1 and not b.lock._asking)
        keys = redis.keys()
        assert len(keys) == 5
        assert all(key.startswith("{weighbridge:slots:local-8b}:") for key in keys)
        assert all(0 < lives <= 6000 for lives in keys.values()), keys
        waiting.cancel()
