"""Real vLLM engines killed and stopped under streams: the callers get their answers, whole."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.real_engines import RealFleet, core_of, hurt, real_gateway
from tests.support.running import Running
from tests.support.waiting import content, events, until
from weighbridge.pool.worker import Worker

pytestmark = pytest.mark.engine

STREAMS, TOKENS = 20, 64
NEAR = 0.3
"""Natural-log units by which a delivered token may be less likely than the best one when scored again."""


def tier(dtype: str) -> dict[str, dict[str, Any]]:
    return {
        "local-8b": {
            "replicas": 2,
            "dtype": dtype,
            "max_num_seqs": STREAMS,
            "max_model_len": 512,
            "kv_cache_memory_bytes": 512 << 20,
            "enforce_eager": True,
        }
    }


def question(n: int) -> dict[str, Any]:
    return {
        "model": "local-8b",
        "stream": True,
        "temperature": 0,
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": f"Tell me a story about the number {n} and a river."}],
    }


async def ask(gateway: Running, n: int) -> str:
    answer = await gateway.chat(**question(n))
    told = events(answer.text)
    assert answer.status_code == 200 and told[-1] == "[DONE]", answer.text[-300:]
    assert told[-2]["usage"]["completion_tokens"] == TOKENS
    assert len({event["id"] for event in told[:-1]}) == 1
    return content(answer.text)


async def all_asked(gateway: Running) -> list[str]:
    return await asyncio.gather(*(ask(gateway, n) for n in range(STREAMS)))


def workers(gateway: Running) -> list[Worker]:
    found = gateway.parts.pool.tier("local-8b")
    assert found is not None
    return list(found.workers)


def busiest(gateway: Running) -> Worker:
    return max(workers(gateway), key=lambda worker: worker.engine.load().unfinished)


async def midway(gateway: Running, fleet: RealFleet, calls_before: int) -> None:
    """Until every stream is in the middle of its answer."""

    def under_way() -> bool:
        calls = fleet.calls[calls_before:]
        return len(calls) == STREAMS and all(2 <= call.meter.completion < TOKENS - 8 for call in calls)

    await until(under_way, within_s=60)


async def killed_under(gateway: Running, fleet: RealFleet, how: signal.Signals) -> tuple[list[str], float]:
    """All streams, one of the two cores hurt in their midst; the answers, and seconds until it was taken for dead."""
    before = len(fleet.calls)
    asking = asyncio.create_task(all_asked(gateway))
    await midway(gateway, fleet, before)
    victim = busiest(gateway)
    at_work = victim.engine.load().unfinished
    began = time.perf_counter()
    hurt(core_of(victim), how)
    await until(lambda: not victim.serving, within_s=30)
    found_s = time.perf_counter() - began
    answers = await asking
    assert at_work >= 2 and len(fleet.calls) - before == STREAMS + at_work
    return answers, found_s


async def everybody_up(gateway: Running) -> None:
    await until(lambda: all(worker.serving for worker in workers(gateway)), within_s=300)


async def test_in_float32_the_answers_are_those_of_an_undisturbed_run(tmp_path: Path) -> None:
    async with real_gateway(tmp_path, tier("float32")) as (gateway, fleet):
        undisturbed = await all_asked(gateway)

        answers, found_s = await killed_under(gateway, fleet, signal.SIGKILL)
        assert answers == undisturbed
        assert found_s < 0.5, "callers know a dead core at once"
        await everybody_up(gateway)
        assert sorted(worker.restarts for worker in workers(gateway)) == [0, 1]

        answers, found_s = await killed_under(gateway, fleet, signal.SIGSTOP)
        assert answers == undisturbed
        print(f"a stopped core was found in {found_s:.1f} s")
        assert found_s < 10
        assert gateway.slots_in_use() == 0
        rows = gateway.rows()
        assert len(rows) == 3 * STREAMS
        assert all((row["outcome"], row["completion_tokens"]) == ("ok", TOKENS) for row in rows)
        assert all(0 < row["prompt_tokens"] < 100 for row in rows)


@pytest.mark.soak
async def test_in_bfloat16_every_token_could_have_come_undisturbed(tmp_path: Path) -> None:
    async with real_gateway(tmp_path, tier("bfloat16")) as (gateway, fleet):
        await killed_under(gateway, fleet, signal.SIGKILL)
        survivor = next(worker for worker in workers(gateway) if worker.serving)
        finished = {call.request_id: call for call in fleet.calls}
        assert len(finished) == STREAMS
        continued = len(fleet.calls) - STREAMS
        worst = 0.0
        for call in finished.values():
            assert call.trail is not None and len(call.trail.token_ids) == TOKENS
            worst = max(worst, await shortfall(survivor, call.body, call.trail.token_ids))
        print(f"{continued} streams continued; the least likely token was {worst:.3f} below the best one")
        assert worst <= NEAR


async def shortfall(worker: Worker, body: dict[str, Any], answer: list[int]) -> float:
    """How far the answer's tokens stay behind the most likely ones, at most, in one prefill of the whole."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    loaded = worker.engine._loaded  # type: ignore[attr-defined]
    request = await loaded.chat.request({**body, "stream": False, "stream_options": None})
    _, (prompt,) = await loaded.chat.renderer.render_chat(request)
    ids = [*prompt["prompt_token_ids"], *answer]
    params = SamplingParams(max_tokens=1, prompt_logprobs=1, temperature=0)
    # The engine as vLLM made it: our own `generate` knows only calls of ours.
    plain = super(type(loaded.engine), loaded.engine).generate
    async for output in plain(TokensPrompt(prompt_token_ids=ids), params, f"score-{answer[0]}-{len(ids)}"):
        scored = output.prompt_logprobs
    behind = 0.0
    for position in range(len(ids) - len(answer), len(ids)):
        options = scored[position]
        best = max(option.logprob for option in options.values())
        behind = max(behind, best - options[ids[position]].logprob)
    return behind
