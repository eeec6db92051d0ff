"""Where a request goes whose tier is contended: by the policy's order, without waiting twice."""

from __future__ import annotations

import asyncio
import hashlib
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from tests.support.waiting import until

EASY = [{"role": "user", "content": "다음을 [배송, 환불] 중 하나로 분류해줘: 물건이 아직 안 왔어요"}]
ONE_SLOT = {"local-8b": {"max_num_seqs": 1}, "local-70b": {"max_num_seqs": 1}}


def both_blocked() -> dict[str, FakeEngine]:
    return {road: FakeEngine(road, script=Script(first_gate=asyncio.Event())) for road in ONE_SLOT}


async def fill(gateway: Running, road: str) -> asyncio.Task[Any]:
    holding = asyncio.create_task(gateway.chat(model=road))
    await until(lambda: gateway.engines[road].load().unfinished == 1)
    return holding


async def empty(gateway: Running, *holding: asyncio.Task[Any]) -> None:
    for engine in gateway.engines.values():
        assert engine.script.first_gate is not None
        engine.script.first_gate.set()
    for task in holding:
        assert (await task).status_code == 200


def key_of(tenant: str) -> dict[str, str]:
    """The tenant's name is its key."""
    return {"id": tenant, "sha256": hashlib.sha256(tenant.encode()).hexdigest(), "tenant": tenant}


def way(gateway: Running, answer: Any) -> list[tuple[str, str]]:
    request_id = answer.headers["x-weighbridge-request-id"]
    return [(row["road"], row["outcome"]) for row in gateway.attempts(request_id)]


async def test_a_higher_tier_with_a_free_slot_comes_before_the_commercial_api(tmp_path: Path) -> None:
    engines = both_blocked()
    engines["local-70b"].script.first_gate = None
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines=engines,
            tiers=ONE_SLOT,
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=100),
        ) as gateway,
    ):
        holding = await fill(gateway, "local-8b")
        answer = await gateway.chat(messages=EASY)
        assert way(gateway, answer) == [("local-8b", "queue_timeout"), ("local-70b", "ok")]
        assert recorder.connections == []
        engines["local-70b"].script.first_gate = asyncio.Event()
        await empty(gateway, holding)


async def test_with_the_higher_tier_full_it_leaves_masked_and_waits_only_once(tmp_path: Path) -> None:
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines=both_blocked(),
            tiers=ONE_SLOT,
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=200),
        ) as gateway,
    ):
        holding = [await fill(gateway, road) for road in ONE_SLOT]
        answer = await gateway.chat(messages=EASY)
        assert way(gateway, answer) == [
            ("local-8b", "queue_timeout"),
            ("local-70b", "no_free_slot"),
            ("commercial", "ok"),
        ]
        assert 200 <= float(answer.headers["x-weighbridge-queue-ms"]) < 390
        (row,) = gateway.egress()
        assert row["reason"] == "queue_lock_timeout"
        assert all(tier["waiting"] == 0 for tier in gateway.parts.pool.status()), "the loser left the queue"
        await empty(gateway, *holding)
        assert sum(len(engine.calls) for engine in gateway.engines.values()) == 2, (
            "nothing was computed twice"
        )


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (["commercial", "higher-local"], [("local-8b", "queue_timeout"), ("commercial", "ok")]),
        ([], [("local-8b", "queue_timeout")]),
    ],
)
async def test_the_order_is_the_policys(
    tmp_path: Path, order: list[str], expected: list[tuple[str, str]]
) -> None:
    engines = both_blocked()
    engines["local-70b"].script.first_gate = None
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines=engines,
            tiers=ONE_SLOT,
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=100, overflow_order=order),
        ) as gateway,
    ):
        holding = await fill(gateway, "local-8b")
        answer = await gateway.chat(messages=EASY)
        assert way(gateway, answer) == expected
        if not order:
            assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
        engines["local-70b"].script.first_gate = asyncio.Event()
        await empty(gateway, holding)


@pytest.mark.parametrize("full", [False, True])
async def test_on_prem_tries_its_own_tiers_and_then_says_429(tmp_path: Path, full: bool) -> None:
    engines = both_blocked()
    if not full:
        engines["local-70b"].script.first_gate = None
    async with running_gateway(
        tmp_path,
        engines=engines,
        tiers=ONE_SLOT,
        policy=policy_file(
            tmp_path,
            egress="never",
            queue_lock_timeout_ms=100,
            overflow_order=["higher-local", "lower-local"],
        ),
    ) as gateway:
        holding = [await fill(gateway, road) for road in (ONE_SLOT if full else ["local-8b"])]
        answer = await gateway.chat(messages=EASY)
        if full:
            assert answer.status_code == 429 and answer.json()["error"]["code"] == "queue_lock_timeout"
            assert int(answer.headers["retry-after"]) >= 1
        else:
            assert answer.headers["x-weighbridge-road"] == "local-70b"
            engines["local-70b"].script.first_gate = asyncio.Event()
        await empty(gateway, *holding)


async def test_no_capacity_at_all_is_503(tmp_path: Path) -> None:
    async with running_gateway(
        tmp_path, policy=policy_file(tmp_path, egress="never"), pool={"restart_backoff_s": 60}
    ) as gateway:
        for engine in gateway.engines.values():
            engine.kill()
        began = time.perf_counter()
        answer = await gateway.chat(messages=EASY)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_capacity")
        assert int(answer.headers["retry-after"]) >= 1
        assert time.perf_counter() - began < 0.5, "nobody waits for a tier that is down"


async def test_a_queue_that_cannot_drain_in_time_is_not_joined(tmp_path: Path) -> None:
    engine = FakeEngine(script=Script(first_token_s=0.3))
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines={"local-8b": engine},
            tiers=ONE_SLOT,
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=1000),
        ) as gateway,
    ):
        for _ in range(5):
            await gateway.chat(messages=EASY)
        answers = await asyncio.gather(*(gateway.chat(messages=EASY) for _ in range(12)))
        ways = [way(gateway, answer) for answer in answers]
        assert all(answer.status_code == 200 for answer in answers)
        at_once = [w for w in ways if w[0] == ("local-8b", "queue_predicted")]
        assert len(at_once) >= 5, ways
        assert sum(w == [("local-8b", "ok")] for w in ways) >= 3
        for answer, w in zip(answers, ways, strict=True):
            if w in at_once:
                assert w[1:] == [("commercial", "ok")]
                assert float(answer.headers["x-weighbridge-queue-ms"]) < 50
        refusals = gateway.parts.metrics.queue_refusals_total.labels("local-8b", "predicted_wait")
        assert refusals.value == len(at_once)


@pytest.mark.parametrize(("wish", "least", "most"), [("0", 0, 60), ("150", 150, 400), ("99999", 400, 900)])
async def test_a_caller_may_shorten_the_wait_and_never_lengthen_it(
    tmp_path: Path, wish: str, least: int, most: int
) -> None:
    async with running_gateway(
        tmp_path,
        engines=both_blocked(),
        tiers=ONE_SLOT,
        policy=policy_file(tmp_path, egress="never", queue_lock_timeout_ms=400),
    ) as gateway:
        holding = [await fill(gateway, road) for road in ONE_SLOT]
        answer = await gateway.client.post(
            "/v1/chat/completions",
            json={"model": "auto", "messages": EASY},
            headers={"x-weighbridge-max-queue-ms": wish},
        )
        assert answer.status_code == 429
        assert least <= float(answer.headers["x-weighbridge-queue-ms"]) < most
        await empty(gateway, *holding)


async def test_a_wish_nobody_understands_is_refused(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        answer = await gateway.client.post(
            "/v1/chat/completions",
            json={"model": "auto", "messages": EASY},
            headers={"x-weighbridge-max-queue-ms": "soon"},
        )
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "x-weighbridge-max-queue-ms"


async def test_batch_requests_let_interactive_ones_go_first(tmp_path: Path) -> None:
    engine = FakeEngine(script=Script(first_gate=asyncio.Event()))
    async with running_gateway(
        tmp_path,
        engines={"local-8b": engine},
        tiers=ONE_SLOT,
        policy=policy_file(tmp_path, queue_lock_timeout_ms=5000),
    ) as gateway:
        holding = await fill(gateway, "local-8b")

        async def ask(name: str, priority: str) -> None:
            answer = await gateway.client.post(
                "/v1/chat/completions",
                json={"model": "local-8b", "messages": [{"role": "user", "content": name}]},
                headers={"x-weighbridge-priority": priority},
            )
            assert answer.status_code == 200

        asks = []
        for n, (name, priority) in enumerate([("b1", "batch"), ("b2", "batch"), ("i1", "interactive")], 1):
            asks.append(asyncio.create_task(ask(name, priority)))
            await until(lambda n=n: gateway.parts.pool.status()[0]["waiting"] == n)  # type: ignore[misc]
        await empty(gateway, holding, *[])
        await asyncio.gather(*asks)
        # As the engine saw them: answers that are ready together may arrive in any order.
        assert [call.body["messages"][0]["content"] for call in engine.calls][-3:] == ["i1", "b1", "b2"]


async def test_one_tenants_crowd_does_not_shut_out_another(tmp_path: Path) -> None:
    engine = FakeEngine(script=Script(token_s=0.01))
    async with running_gateway(
        tmp_path,
        engines={"local-8b": engine},
        tiers={"local-8b": {"max_num_seqs": 2}},
        policy=policy_file(tmp_path, queue_lock_timeout_ms=20_000),
        auth={"keys": [key_of("crowd"), key_of("lone")]},
    ) as gateway:

        async def ask(tenant: str) -> float:
            answer = await gateway.client.post(
                "/v1/chat/completions",
                json={"model": "local-8b", "messages": EASY, "max_tokens": 8},
                headers={"authorization": f"Bearer {tenant}"},
            )
            assert answer.status_code == 200
            return float(answer.headers["x-weighbridge-queue-ms"])

        crowd = [asyncio.create_task(ask("crowd")) for _ in range(30)]
        await until(lambda: gateway.parts.pool.status()[0]["waiting"] >= 20)
        lone = await ask("lone")
        waits = await asyncio.gather(*crowd)
        assert lone < sorted(waits)[len(waits) // 2], (lone, waits)


@pytest.mark.parametrize("egress", ["masked", "never"])
async def test_one_tenants_crowd_gives_up_a_place_in_a_full_queue(tmp_path: Path, egress: str) -> None:
    engine = FakeEngine(script=Script(first_gate=asyncio.Event()))
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines={"local-8b": engine},
            tiers={"local-8b": {"max_num_seqs": 1, "max_waiting": 2}},
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, egress=egress, queue_lock_timeout_ms=600_000),
            auth={"keys": [key_of("crowd"), key_of("lone")]},
        ) as gateway,
    ):

        def ask(tenant: str) -> asyncio.Task[Any]:
            call = gateway.client.post(
                "/v1/chat/completions",
                json={"model": "auto", "messages": EASY},
                headers={"authorization": f"Bearer {tenant}"},
            )
            return asyncio.create_task(call)

        def waiting() -> int:
            return int(gateway.parts.pool.status()[0]["waiting"])

        served = [ask("crowd")]
        await until(lambda: engine.load().unfinished == 1)
        for n in (1, 2):
            served.append(ask("crowd"))
            await until(lambda n=n: waiting() == n)  # type: ignore[misc]
        pushed_out = served.pop()
        served.append(ask("lone"))
        async with asyncio.timeout(10):
            answer = await pushed_out
        assert waiting() == 2 and not any(task.done() for task in served)
        if egress == "masked":
            assert way(gateway, answer) == [("local-8b", "queue_full"), ("commercial", "ok")]
        else:
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "queue_full")
            assert int(answer.headers["retry-after"]) >= 1 and recorder.connections == []
            assert way(gateway, answer) == [("local-8b", "queue_full")]
        assert gateway.parts.metrics.queue_refusals_total.labels("local-8b", "queue_full").value == 1
        assert engine.script.first_gate is not None
        engine.script.first_gate.set()
        for task in served:
            assert way(gateway, await task) == [("local-8b", "ok")]
        assert len(engine.calls) == len(served) and len(gateway.rows()) == len(served) + 1
