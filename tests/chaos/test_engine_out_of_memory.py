"""An engine dies of memory under load, as the kernel ends it: everybody else leaves masked, in time, with a record."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_overflow import digits, label_request, planted, said
from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import recording
from tests.support.running import policy_file, running_gateway
from tests.support.waiting import until
from weighbridge.config.deadline import Deadline
from weighbridge.masking.rules import Rules

REQUESTS, SLOTS, LOCK_MS = 40, 4, 1500


@pytest.mark.parametrize("dies_at_s", [0.3, 1.4])
async def test_who_waits_leaves_masked_within_a_tenth_of_a_second_of_the_lock(
    tmp_path: Path, dies_at_s: float
) -> None:
    engine = FakeEngine(script=Script(first_gate=asyncio.Event()))
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines={"local-8b": engine},
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=LOCK_MS, outward={"refuse": []}),
            tiers={"local-8b": {"max_num_seqs": SLOTS}},
            pool={"restart_backoff_s": 60},
        ) as gateway,
    ):
        await gateway.parts.masker.mask(
            label_request(0, False),
            request_id="warm",
            upstream_model="m",
            conversation="c",
            deadline=Deadline.after(gateway.parts.clock, 10),
            rules=Rules(refused=frozenset()),
        )
        began = time.perf_counter()
        asking = [asyncio.create_task(gateway.chat(**label_request(n, n % 2 == 0))) for n in range(REQUESTS)]
        await until(lambda: gateway.parts.pool.status()[0]["waiting"] == REQUESTS - SLOTS)
        await asyncio.sleep(max(0.0, dies_at_s - (time.perf_counter() - began)))
        engine.kill()
        answers: list[Any] = await asyncio.gather(*asking)

        sent = recorder.everything.decode()
        for n, answer in enumerate(answers):
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-weighbridge-road"] == "commercial"
            for value in planted(n).values():
                assert value in said(answer, n % 2 == 0)
                assert value not in sent and digits(value) not in digits(sent)
        rows = {row["request_id"]: row for row in gateway.rows()}
        assert len(rows) == REQUESTS
        outward = {row["request_id"]: row for row in gateway.egress()}
        for answer in answers:
            request_id = answer.headers["x-weighbridge-request-id"]
            row, egress = rows[request_id], outward[request_id]
            assert (row["outcome"], row["road"]) == ("ok", "commercial")
            tried = [(a["road"], a["outcome"]) for a in gateway.attempts(request_id)]
            assert tried[0][1] in ("engine_unavailable", "not_ready", "queue_timeout")
            assert tried[-1] == ("commercial", "ok")
            # The lock lets nobody wait past its deadline.
            assert row["queue_ms"] <= LOCK_MS + 100
            assert egress["reason"] in ("worker_lost", "queue_lock_timeout")
        assert gateway.slots_in_use() == 0
