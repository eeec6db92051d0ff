"""The figures of a continued answer: every token of it once, whoever made it."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

from weighbridge.config.usage import TokenMeter
from weighbridge.pool.engine import Trail
from weighbridge.router.account import Account
from weighbridge.router.admitted import Admitted


def account() -> Account:
    anything: Any = Mock()
    made = Account(anything, ledger=anything, clock=anything, on_done=anything)
    made.try_road("local-8b")
    return made


def test_a_continued_answer_counts_what_was_handed_over_and_what_is_added() -> None:
    made = account()
    # Ten were made, eight handed over.
    made.meter.prompt, made.meter.cached, made.meter.completion = 50, 16, 10
    made.carry(Trail(token_ids=[1] * 8, prompt_tokens=50))
    assert made.usage == TokenMeter(50, 8, 16)
    made.try_road("local-8b")
    made.meter.prompt, made.meter.cached, made.meter.completion = 58, 32, 4
    assert made.usage == TokenMeter(50, 12, 16)
    made.carry(Trail(token_ids=[1] * 12, prompt_tokens=50))
    made.try_road("local-8b")
    made.meter.completion = 3
    assert made.usage == TokenMeter(50, 15, 16)


def test_tokens_that_are_made_again_count_once() -> None:
    made = account()
    trail = Trail(token_ids=[1] * 8, prompt_tokens=50)
    made.carry(trail)
    made.try_road("local-8b")
    # The next engine takes two off the end before it begins, and makes them anew.
    del trail.token_ids[6:]
    trail.dropped += 2
    made.meter.completion = 5
    assert made.usage.completion == 11
    trail.token_ids += [1] * 5
    made.carry(trail)
    made.try_road("local-8b")
    made.meter.completion = 1
    assert made.usage.completion == 12


class Rows:
    """A ledger that keeps what it is given, and the futures that others wait for."""

    def __init__(self) -> None:
        self.intents: list[tuple[object, asyncio.Future[None]]] = []

    def intent(self, row: object) -> asyncio.Future[None]:
        self.intents.append((row, asyncio.get_running_loop().create_future()))
        return self.intents[-1][1]


async def test_an_intent_whose_waiter_was_cancelled_is_waited_for_anew_by_the_next_road() -> None:
    anything: Any = Mock()
    ledger: Any = Rows()
    weighed: Any = Mock(score=None, reasons=(), road="local-8b")
    admitted: Any = Admitted("r", {}, 2, "auto", False, "t", "k", 0.0, 0)
    made = Account(admitted, ledger=ledger, clock=anything, on_done=anything)
    made.decided(weighed)
    waiting = asyncio.create_task(made.intent_durable())
    await asyncio.sleep(0)
    waiting.cancel()
    assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
    outward = asyncio.create_task(made.intent_durable(required=True))
    await asyncio.sleep(0)
    assert not outward.done(), "nothing leaves before the row is there"
    (first, given_up), (again, future) = ledger.intents
    assert first == again and given_up.cancelled()
    future.set_result(None)
    await outward
