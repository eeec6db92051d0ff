"""What decision and bookkeeping cost a request, the scorer left out: a bound that a careless line would break."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.cost import in_references
from tests.support.ledger_rows import CHAIN_KEY
from weighbridge.config.clock import SystemClock
from weighbridge.config.ids import IdFactory
from weighbridge.config.roads import LOCAL_8B, LOCAL_ROADS
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.metrics import Metrics
from weighbridge.policies.loader import shipped
from weighbridge.router.account import Account
from weighbridge.router.admitted import Admitted
from weighbridge.router.answer import content_headers
from weighbridge.router.decision import Facts, decide, why_not
from weighbridge.router.difficulty.score import Assessment
from weighbridge.router.roads import Weighed
from weighbridge.router.walk import Walk

MOST = 1.3
"""Reference loops, of about 46 µs on the machine that the budget of 60 µs is for. Half of it was measured."""

POLICY = shipped("default")
WEIGHT = Assessment(0.3123, "chat", "en", ())


async def test_decision_and_bookkeeping_of_a_request_stay_in_budget(tmp_path: Path) -> None:
    clock, metrics = SystemClock(), Metrics()
    ledger = Ledger.open(tmp_path / "ledger.sqlite3", clock=clock, chain_key=CHAIN_KEY, metrics=metrics)
    new_id = IdFactory(clock).new
    body = {"model": "auto", "messages": [{"role": "user", "content": "Hello"}]}
    done: list[asyncio.Future[None]] = []

    def count(account: Account) -> None:
        metrics.request_done(
            road=account.road or "none",
            outcome=account.outcome,
            seconds=account.total_ms / 1000,
            ttft_seconds=None if account.ttft_ms is None else account.ttft_ms / 1000,
            prompt_tokens=account.usage.prompt,
            cached_tokens=account.usage.cached,
            completion_tokens=account.usage.completion,
        )

    def one() -> Any:
        request = Admitted(
            request_id=new_id(),
            body=body,
            body_bytes=100,
            model="auto",
            stream=False,
            tenant="default",
            key_id="bench",
            admitted_at=clock.monotonic(),
            admitted_ns=clock.wall_ns(),
        )
        facts = Facts("default", LOCAL_ROADS, True, {}, None, False, "bench", None, None, False)
        why = why_not(WEIGHT, POLICY, facts)
        decision = decide("auto", WEIGHT, POLICY, facts, why)
        account = Account(request, ledger=ledger, clock=clock, on_done=count)
        account.decided(Weighed(WEIGHT, POLICY, decision))
        walk = Walk(decision)
        account.try_road(walk.road)
        account.meter.prompt, account.meter.completion = 230, 120
        account.tried("ok", "")
        account.outcome, account.status, account.ttft_ms = "ok", 200, account.elapsed_ms()
        done.append(account.close())
        return [*content_headers(False), *account.headers()]

    assert [name for name, _ in one()][1:3] == [b"x-weighbridge-request-id", b"x-weighbridge-road"]
    cost = in_references(one, 100)
    await asyncio.gather(*done)
    assert metrics.requests_total.labels(LOCAL_8B, "ok").value == len(done)
    await ledger.close()
    assert cost < MOST, f"{cost:.2f} reference loops"
