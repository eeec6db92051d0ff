"""The kill switch in the gate: wherever it is thrown, not one more byte leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.recorder import recording
from tests.unit.commercial.harness import CLOCK, KEY, Journal, Side, settle
from weighbridge.commercial.errors import EgressClosed
from weighbridge.commercial.gate import EgressGate
from weighbridge.config.ids import IdFactory
from weighbridge.config.settings import CommercialSettings

streamed = pytest.mark.parametrize("stream", [False, True])


@asynccontextmanager
async def switched(switched_off: Callable[[], bool]) -> AsyncIterator[Side]:
    async with recording() as recorder:
        settings = CommercialSettings(base_url=recorder.base_url, model="upstream", api_key=KEY)
        journal = Journal()
        gate = EgressGate(settings, journal, CLOCK, IdFactory(CLOCK), switched_off=switched_off)
        try:
            yield Side(gate, recorder, journal)
        finally:
            await gate.close()


async def send(here: Side, stream: bool) -> Any:
    return await (here.events if stream else here.complete)()


async def held_back(here: Side, stream: bool) -> None:
    with pytest.raises(EgressClosed) as closed:
        await send(here, stream)
    assert closed.value.by == "switched_off"
    await settle()
    assert here.recorder.requests == [] and here.recorder.everything == b""
    assert here.ctx.egress_id == "" and here.meter.exact


@streamed
async def test_thrown_before_there_is_neither_row_nor_connection(stream: bool) -> None:
    async with switched(lambda: True) as here:
        await held_back(here, stream)
        assert here.journal.rows == [] and here.recorder.connections == []


@streamed
async def test_thrown_while_the_row_is_written_there_is_no_connection(stream: bool) -> None:
    thrown = False

    def throw() -> None:
        nonlocal thrown
        thrown = True

    async with switched(lambda: thrown) as here:
        here.journal.before = throw
        await held_back(here, stream)
        assert len(here.journal.rows) == 1 and here.recorder.connections == []


@streamed
async def test_thrown_while_it_connects_not_a_byte_is_written(stream: bool) -> None:
    looks = 0

    def switched_off() -> bool:
        nonlocal looks
        looks += 1
        return looks > 2

    async with switched(switched_off) as here:
        await held_back(here, stream)
        assert len(here.recorder.connections) == 1
        looks = -1000
        assert await send(here, stream)
        assert len(here.recorder.requests) == 1


@streamed
async def test_thrown_before_a_kept_connection_is_used_again(stream: bool) -> None:
    answers = iter([False, False, False, False, False, True, False, False, False])
    async with switched(lambda: next(answers)) as here:
        await send(here, stream)
        sent = here.recorder.everything
        with pytest.raises(EgressClosed):
            await send(here, stream)
        await settle()
        assert here.recorder.everything == sent
        await send(here, stream)
        assert len(here.recorder.requests) == 2


async def test_an_answer_that_streams_goes_on() -> None:
    thrown = False
    async with switched(lambda: thrown) as here:
        events = here.stream()
        first = await anext(events)
        thrown = True
        assert first and [event async for event in events]
