"""Several commercial endpoints: their order, their breakers, and what a refusal of one of them means."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support import recorder as rec
from tests.support.endpoints import HARD, events, site
from tests.support.recorder import OK

BOTH = pytest.mark.parametrize("streamed", [False, True])


def refusal(status: int, code: str) -> rec.Mode:
    return rec.status(status, json.dumps({"error": {"message": "provider text", "code": code}}).encode())


@BOTH
async def test_the_one_that_answers_is_the_one_that_is_told(tmp_path: Path, streamed: bool) -> None:
    async with site(tmp_path, rec.STATUS_500, OK) as here:
        answer = await here.ask(stream=streamed)
        assert answer.status_code == 200
        models = (
            {json.loads(data)["model"] for data in events(answer.text)[:-1]}
            if streamed
            else {answer.json()["model"]}
        )
        assert models == {"model-of-second"}
        (row,) = here.gateway.rows()
        assert (row["road"], row["attempts"], row["prompt_tokens"]) == ("commercial", 2, rec.PROMPT_TOKENS)
        # A row of the chain for each endpoint, with the hash of what it got.
        rows = here.gateway.egress()
        assert [egress["endpoint"] for egress in rows] == [
            f"{one.base_url}/chat/completions" for one in here.endpoints
        ]
        assert rows[0]["body_hash"] != rows[1]["body_hash"]
        (first,), (second,) = here.main.requests, here.second.requests
        assert {**first.json, "model": ""} == {**second.json, "model": ""}
        assert first.json["model"] == "upstream-model"
        await here.healthy()


async def test_every_endpoint_gets_the_masked_request(tmp_path: Path) -> None:
    async with site(tmp_path, rec.STATUS_500, rec.RESET, OK) as here:
        said = "Call me on 010-1234-5678, or write to kim@example.com."
        answer = await here.ask(messages=[{"role": "user", "content": said}])
        assert "010-1234-5678" in answer.json()["choices"][0]["message"]["content"]
        for one in here.endpoints:
            assert len(one.requests) == 1
            assert b"1234" not in one.requests[0].body and b"kim@" not in one.requests[0].body
        bodies = [json.dumps({**one.requests[0].json, "model": ""}) for one in here.endpoints]
        assert len(set(bodies)) == 1, "the same placeholders for all, made once"


async def test_order_and_weights_are_the_policys(tmp_path: Path) -> None:
    steps = [{"second": 3, "third": 1}, {"main": 1}]
    async with site(tmp_path, OK, OK, OK, policy={"endpoints": steps}) as here:
        for n in range(40):
            question = [{"role": "user", "content": f"Question number {'x' * n}"}]
            for _ in range(2):
                answer = await here.ask(messages=question)
                assert answer.status_code == 200
        served = Counter(
            seen.json["messages"][-1]["content"] for one in here.endpoints for seen in one.requests
        )
        assert set(served.values()) == {2}
        second, third = ({seen.body for seen in one.requests} for one in here.endpoints[1:])
        assert len(here.main.requests) == 0 and len(second) > len(third) > 0
        # One conversation, one endpoint.
        assert len(second) + len(third) == 40


async def test_the_last_step_is_for_the_last(tmp_path: Path) -> None:
    steps = [{"second": 1, "third": 1}, {"main": 1}]
    async with site(tmp_path, OK, rec.STATUS_500, rec.RESET, policy={"endpoints": steps}) as here:
        assert (await here.ask()).status_code == 200
        assert [len(one.requests) for one in here.endpoints] == [1, 1, 1]


# ---- refusals ----


@BOTH
@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_refusal_is_final_after_one_attempt(tmp_path: Path, status: int, streamed: bool) -> None:
    async with site(tmp_path, rec.status(status), OK) as here:
        answer = await here.ask(model="auto", messages=HARD, stream=streamed)
        assert answer.status_code == (status if status in (400, 422) else 502)
        assert "provider text" not in answer.text and str(status) in answer.json()["error"]["message"]
        assert (len(here.main.requests), len(here.second.requests)) == (1, 0)
        await here.healthy()


@BOTH
@pytest.mark.parametrize("code", ["content_filter", "content_policy_violation"])
async def test_a_content_policy_is_not_routed_around(tmp_path: Path, code: str, streamed: bool) -> None:
    async with site(tmp_path, refusal(400, code), OK) as here:
        answer = await here.ask(model="auto", messages=HARD, stream=streamed)
        assert answer.status_code == 400 and answer.json()["error"]["code"] == code
        assert (len(here.main.requests), len(here.second.requests)) == (1, 0)
        assert not any(engine.calls for engine in here.gateway.engines.values())


@BOTH
@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_targets_rejection_does_not_hide_the_real_failure(
    tmp_path: Path, status: int, streamed: bool
) -> None:
    async with site(tmp_path, rec.STALL, rec.status(status)) as here:
        answer = await here.ask(stream=streamed)
        assert answer.status_code == 504 and answer.json()["error"]["code"] == "upstream_stall"
        assert (len(here.main.requests), len(here.second.requests)) == (1, 1)
        await here.healthy()


@BOTH
async def test_a_prompt_too_long_goes_to_a_larger_window_only(tmp_path: Path, streamed: bool) -> None:
    too_long = refusal(400, "context_length_exceeded")
    windows = {"main": 8_000, "second": 8_000, "third": 32_000}
    async with site(tmp_path, too_long, OK, OK, windows=windows) as here:
        answer = await here.ask(stream=streamed)
        assert answer.status_code == 200
        assert [len(one.requests) for one in here.endpoints] == [1, 0, 1]
    (tmp_path / "narrow").mkdir()
    async with site(tmp_path / "narrow", too_long, OK, windows={"main": 8_000}) as here:
        answer = await here.ask(stream=streamed)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert [len(one.requests) for one in here.endpoints] == [1, 0]


# ---- breakers ----


async def test_a_dead_endpoint_is_passed_by_and_found_again(tmp_path: Path) -> None:
    quick = {"breaker_failures": 3, "breaker_rest_s": 0.4}
    async with site(tmp_path, rec.STATUS_500, OK, breaker=quick) as here:
        for _ in range(3):
            assert (await here.ask()).json()["model"] == "model-of-second"
        assert len(here.main.requests) == 3
        answer = await here.ask()
        assert answer.json()["model"] == "model-of-second"
        assert answer.headers["x-weighbridge-attempts"] == "1"
        assert len(here.main.requests) == 3, "passed by"
        here.main.mode = OK
        async with asyncio.timeout(5):
            while (await here.ask()).json()["model"] != "upstream-model":
                await asyncio.sleep(0.05)
        assert len(here.main.requests) == 4, "one found it well"
        assert (await here.ask()).json()["model"] == "upstream-model"


async def test_the_only_endpoint_has_a_breaker_too(tmp_path: Path) -> None:
    quick = {"breaker_failures": 2, "breaker_rest_s": 0.5}
    async with site(tmp_path, rec.STALL, breaker=quick) as here:
        for _ in range(2):
            assert (await here.ask()).status_code == 504
        here.main.mode = rec.delay(300)
        answer = await here.ask()
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "upstream_resting"
        assert int(answer.headers["retry-after"]) >= 1
        assert len(here.main.requests) == 2
        assert len(here.gateway.egress()) == 2, "what is not sent has no row"
        # A request that has a local road takes it at once.
        answer = await here.ask(model="auto", messages=HARD)
        assert answer.headers["x-weighbridge-road"] == "local-70b" and len(here.main.requests) == 2
        breaker = here.gateway.parts.gate.outlets["main"].breaker
        async with asyncio.timeout(5):
            while breaker.rest_s > 0:
                await asyncio.sleep(0.02)
        # Ten at once: one tries, the others pass by.
        answers = await asyncio.gather(*(here.ask() for _ in range(10)))
        assert sorted(answer.status_code for answer in answers) == [200] + [503] * 9
        assert len(here.main.requests) == 3
        assert (await here.ask()).status_code == 200


@BOTH
async def test_a_trial_that_its_caller_leaves_does_not_block_the_endpoint(
    tmp_path: Path, streamed: bool
) -> None:
    quick = {"breaker_failures": 1, "breaker_rest_s": 0.2}
    async with site(tmp_path, rec.STALL, breaker=quick) as here:
        assert (await here.ask()).status_code == 504
        breaker = here.gateway.parts.gate.outlets["main"].breaker
        async with asyncio.timeout(5):
            while breaker.rest_s > 0:
                await asyncio.sleep(0.02)
        here.main.mode = rec.delay(200)
        gone = asyncio.create_task(here.ask(stream=streamed))
        await here.main.until(lambda: len(here.main.requests) == 2)
        gone.cancel()
        await here.main.until(lambda: here.main.connections[-1].closed.is_set())
        here.main.mode = OK
        async with asyncio.timeout(5):
            while (await here.ask()).status_code != 200:
                await asyncio.sleep(0.02)


async def test_refusals_do_not_open_a_breaker(tmp_path: Path) -> None:
    async with site(tmp_path, rec.status(400), breaker={"breaker_failures": 2}) as here:
        for _ in range(4):
            assert (await here.ask()).status_code == 400
        assert len(here.main.requests) == 4


async def test_a_crowd_does_not_hammer_a_failing_endpoint(tmp_path: Path) -> None:
    async with site(tmp_path, rec.STATUS_500, server={"request_timeout_s": 3}) as here:
        answers = await asyncio.gather(*(here.ask() for _ in range(20)))
        assert {answer.status_code for answer in answers} <= {502, 503}
        # All of them were under way when it began to fail; each asked once, few a second time.
        assert len(here.main.requests) <= 25


# ---- what operators see ----


async def test_health_and_metrics_name_the_endpoint_that_is_passed_by(tmp_path: Path) -> None:
    async with site(tmp_path, rec.STATUS_500, OK, breaker={"breaker_failures": 1}) as here:

        async def seen() -> tuple[Any, str]:
            report = (await here.gateway.client.get("/health/ready")).json()
            return report["parts"]["commercial"]["endpoints"], (
                await here.gateway.client.get("/metrics")
            ).text

        endpoints, metrics = await seen()
        assert endpoints == {"main": "open", "second": "open"}
        assert 'weighbridge_commercial_endpoint_passed_by{endpoint="main"} 0.0' in metrics
        await here.ask()
        endpoints, metrics = await seen()
        assert endpoints == {"main": "resting", "second": "open"}
        assert 'weighbridge_commercial_endpoint_passed_by{endpoint="main"} 1.0' in metrics
        assert 'weighbridge_commercial_endpoint_passed_by{endpoint="second"} 0.0' in metrics
