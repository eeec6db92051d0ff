"""Several endpoints behind one gate: where each request goes, under which limits, and what a breaker learns of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.recorder import (
    CUT,
    OK,
    RESET,
    STALL,
    STALL_BODY,
    STATUS_429,
    STATUS_500,
    Mode,
    Recorder,
    recording,
)
from tests.support.recorder import status as answered
from tests.unit.commercial.harness import CLOCK, Journal, masked
from weighbridge.commercial.breaker import Standing
from weighbridge.commercial.errors import EgressClosed, SealBroken, UpstreamFailed, UpstreamRefused
from weighbridge.commercial.gate import EgressContext, EgressGate
from weighbridge.config.deadline import Deadline
from weighbridge.config.ids import IdFactory
from weighbridge.config.limits import ExchangeLimits
from weighbridge.config.settings import CommercialSettings, Endpoint
from weighbridge.config.usage import TokenMeter
from weighbridge.masking.errors import MaskingRefused

MOST = 3
PATIENT = ExchangeLimits(connect_s=5, headers_s=10, first_token_s=10, gap_s=10, document_s=10, total_s=20)


@dataclass
class Two:
    """A gate with the endpoints `main` and `second`, and the recorder of each."""

    gate: EgressGate
    main: Recorder
    second: Recorder
    journal: Journal
    told: list[tuple[str, bool]] = field(default_factory=list)
    off: bool = False

    async def go(
        self,
        to: str = "main",
        *,
        stream: bool = True,
        limits: ExchangeLimits = PATIENT,
        seconds: float = 20,
        request: Any = None,
        **ctx: Any,
    ) -> list[dict[str, Any]]:
        context = EgressContext(1, "score", "default@1", endpoint=to, limits=limits, **ctx)
        sealed = masked(stream=stream) if request is None else request
        deadline = Deadline.after(CLOCK, seconds)
        if not stream:
            return [json.loads(await self.gate.complete(sealed, context, deadline, TokenMeter()))]
        return [
            json.loads(event) async for event in self.gate.stream(sealed, context, deadline, TokenMeter())
        ]

    async def fails(self, *args: Any, **how: Any) -> UpstreamFailed:
        with pytest.raises(UpstreamFailed) as failed:
            await self.go(*args, **how)
        return failed.value

    def standing(self, name: str = "main") -> Standing:
        return self.gate.outlets[name].breaker.standing

    async def one_more_opens_it(self) -> None:
        """Whether exactly one failure is missing."""
        assert self.standing() is Standing.OPEN
        self.main.mode = STATUS_500
        await self.fails()
        assert self.standing() is Standing.RESTING


@asynccontextmanager
async def two(main: Mode = OK, second: Mode = OK, **more: Any) -> AsyncIterator[Two]:
    async with recording(main) as one, recording(second) as other:
        settings = CommercialSettings(
            base_url=one.base_url,
            model="upstream",
            api_key="sk-main",
            endpoints={"second": Endpoint(base_url=other.base_url, model="other", api_key="sk-second")},
            **{"breaker_failures": MOST, "breaker_rest_s": 600, **more},
        )
        journal = Journal()
        told: list[tuple[str, bool]] = []
        held: list[Two] = []
        gate = EgressGate(
            settings,
            journal,
            CLOCK,
            IdFactory(CLOCK),
            switched_off=lambda: bool(held) and held[0].off,
            on_passed_by=lambda name, passed_by: told.append((name, passed_by)),
        )
        held.append(Two(gate, one, other, journal, told))
        try:
            yield held[0]
        finally:
            await gate.close()


@pytest.mark.parametrize("stream", [False, True])
async def test_each_endpoint_gets_its_own_key_and_row(stream: bool) -> None:
    async with two() as here:
        await here.go("second", stream=stream)
        await here.go("main", stream=stream)
        assert [seen.headers["authorization"] for seen in here.second.requests] == ["Bearer sk-second"]
        assert [seen.headers["authorization"] for seen in here.main.requests] == ["Bearer sk-main"]
        assert [row.endpoint for row in here.journal.rows] == [
            f"{recorder.base_url}/chat/completions" for recorder in (here.second, here.main)
        ]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_endpoint_that_is_not_there_is_not_asked(stream: bool) -> None:
    async with two() as here:
        assert (await here.fails("gone", stream=stream)).kind == "connect"
        assert here.journal.rows == [] and here.main.connections == here.second.connections == []


@pytest.mark.parametrize(
    "mode", [STATUS_500, RESET, STALL, CUT, Mode("status", status=302)], ids=lambda mode: mode.name
)
async def test_failures_open_the_breaker_of_that_endpoint_alone(mode: Mode) -> None:
    quick = ExchangeLimits(headers_s=0.1, first_token_s=0.1, gap_s=5, document_s=0.1)
    async with two(mode) as here:
        for _ in range(MOST):
            assert here.standing() is Standing.OPEN
            await here.fails(limits=quick)
        assert here.gate.outlets.standings() == {"main": Standing.RESTING, "second": Standing.OPEN}
        assert here.told == [("main", True)]
        rows, connections = len(here.journal.rows), len(here.main.connections)
        passed = await here.fails()
        assert passed.kind == "resting" and passed.status is None
        assert passed.retry_after_s == pytest.approx(600, abs=30)
        assert (len(here.journal.rows), len(here.main.connections)) == (rows, connections), (
            "nothing was tried"
        )
        assert await here.go("second")


async def test_an_answer_or_a_refusal_in_between_begins_the_count_anew() -> None:
    async with two(STATUS_500) as here:
        for between in (OK, answered(400), answered(401)):
            here.main.script(*[STATUS_500] * (MOST - 1), between)
            for _ in range(MOST - 1):
                await here.fails()
            if between is OK:
                await here.go()
            else:
                with pytest.raises(UpstreamRefused):
                    await here.go()
        assert here.standing() is Standing.OPEN and here.told == []


async def test_a_rate_limit_with_a_time_counts_as_no_failure_and_is_kept_to() -> None:
    async with two(STATUS_429, breaker_failures=1) as here:
        assert (await here.fails()).status == 429
        assert here.standing() is Standing.WAITING and here.told == []
        passed = await here.fails()
        assert (passed.kind, len(here.main.requests)) == ("resting", 1)
        assert passed.retry_after_s == pytest.approx(7, abs=2)
        assert await here.go("second")


async def test_one_without_a_time_counts() -> None:
    async with two(answered(429)) as here:
        for _ in range(MOST):
            await here.fails()
        assert here.standing() is Standing.RESTING


@pytest.mark.parametrize("stream", [False, True])
async def test_one_at_a_time_finds_out_whether_it_is_well(stream: bool) -> None:
    async with two(STATUS_500, breaker_failures=1, breaker_rest_s=0.02) as here:
        await here.fails(stream=stream)
        here.main.mode = Mode("stall")
        await asyncio.sleep(0.05)
        trial = asyncio.create_task(here.go(stream=stream))
        await here.main.until(lambda: len(here.main.requests) == 2)
        for _ in range(5):
            assert (await here.fails(stream=stream)).kind == "resting"
        assert len(here.main.requests) == 2 and here.standing() is Standing.ON_TRIAL
        trial.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trial
        assert here.standing() is Standing.OPEN, "a trial whose caller left makes room"
        here.main.mode = OK
        await here.go(stream=stream)
        assert here.told == [("main", True), ("main", False)]


async def test_the_first_content_of_a_stream_ends_the_trial() -> None:
    async with two(STATUS_500, breaker_failures=1, breaker_rest_s=0.02) as here:
        await here.fails()
        here.main.mode = Mode(slow_ms=30)
        await asyncio.sleep(0.05)
        ctx = EgressContext(1, "score", "default@1", limits=PATIENT)
        events = here.gate.stream(masked(stream=True), ctx, Deadline.after(CLOCK, 20), TokenMeter())
        async for event in events:
            begun = json.loads(event)["choices"][0]["delta"].get("content")
            assert here.standing() is (Standing.OPEN if begun else Standing.ON_TRIAL)
            if begun:
                break
        assert here.standing() is Standing.OPEN and here.told[-1] == ("main", False)
        await events.aclose()


async def test_what_never_left_teaches_the_breaker_nothing() -> None:
    async def shut() -> bool:
        return False

    async with two(STATUS_500) as here:
        for _ in range(MOST - 1):
            await here.fails()
        with pytest.raises(EgressClosed):
            await here.go(is_open=shut)
        here.off = True
        with pytest.raises(EgressClosed):
            await here.go()
        here.off = False
        broken = masked(stream=True)
        object.__setattr__(broken, "body", broken.body + b" ")
        with pytest.raises(SealBroken):
            await here.go(request=broken)
        with pytest.raises(MaskingRefused):
            await here.go(request=masked(stream=True, text="call 010-1234-5678"))
        here.journal.before = lambda: asyncio.sleep(30)
        assert (await here.fails(limits=ExchangeLimits(total_s=0.05))).kind == "timeout", (
            "the ledger was slow"
        )
        here.journal.before = lambda: 1 / 0
        with pytest.raises(ZeroDivisionError):
            await here.go()
        here.journal.before = lambda: None
        assert len(here.main.requests) == MOST - 1
        await here.one_more_opens_it()


async def test_neither_does_a_request_whose_own_time_is_over_or_whose_caller_left() -> None:
    async with two(STATUS_500) as here:
        for _ in range(MOST - 1):
            await here.fails()
        here.main.mode = STALL
        for _ in range(MOST):
            assert (await here.fails(seconds=0.05)).kind == "timeout"
        left = asyncio.create_task(here.go())
        await here.main.until(lambda: len(here.main.requests) == 2 * MOST)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        await here.one_more_opens_it()


async def test_the_limit_on_the_whole_counts_against_the_endpoint() -> None:
    async with two(STALL) as here:
        for _ in range(MOST):
            assert (await here.fails(limits=ExchangeLimits(total_s=0.05))).kind == "timeout"
        assert here.standing() is Standing.RESTING


# --- each limit is the request's own

SHORT = 0.15


@pytest.mark.parametrize(
    ("mode", "stream", "limit"),
    [
        (STALL, True, "headers_s"),
        (STALL, True, "first_token_s"),
        (STALL_BODY, True, "first_token_s"),
        (STALL, False, "document_s"),
        (STALL_BODY, False, "gap_s"),
        (STALL, True, "total_s"),
        (STALL_BODY, True, "total_s"),
        (STALL, False, "total_s"),
    ],
)
async def test_one_limit_after_the_other_runs_out(mode: Mode, stream: bool, limit: str) -> None:
    wide = {
        name: 15.0 for name in ("connect_s", "headers_s", "first_token_s", "gap_s", "document_s", "total_s")
    }
    async with two(mode) as here:
        began = time.monotonic()
        failed = await here.fails(stream=stream, limits=ExchangeLimits(**{**wide, limit: SHORT}))
        assert failed.kind == ("timeout" if limit == "total_s" else "stall")
        assert SHORT * 0.9 <= time.monotonic() - began < 5
        assert await here.go("second", stream=stream, limits=PATIENT)


async def test_the_limit_for_a_documents_head_is_none_for_a_stream_and_the_other_way_round() -> None:
    slow = Mode(delay_ms=400)
    async with two(slow) as here:
        assert await here.go(stream=True, limits=ExchangeLimits(document_s=SHORT))
        tight = ExchangeLimits(headers_s=SHORT, first_token_s=SHORT)
        assert await here.go(stream=False, limits=tight)
