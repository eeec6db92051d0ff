"""The figures of a continued answer: every token of it once, whoever made it."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

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
    weighed: Any = Mock(score=None, reasons=(), road="local-8b", risks=(None, None))
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


@pytest.mark.parametrize(
    ("events", "tokens", "expected"),
    [((10.0, 10.6), 4, 200.0), ((10.0, 10.6), 1, None), ((10.0, 10.6), 0, None), ((None, 10.6), 4, None)],
    ids=["tokens", "one token", "none", "not streamed"],
)
def test_the_time_of_a_token_is_that_of_those_after_the_first(
    events: tuple[float | None, float], tokens: int, expected: float | None
) -> None:
    made, ended = account(), list[Any]()
    made._ledger.completion = ended.append  # type: ignore[assignment, method-assign]
    made._clock = Mock(**{"monotonic.return_value": 1.0, "wall_ns.return_value": 1})
    made.request = Admitted("r", {}, 2, "auto", True, "t", "k", 0.0, 0)
    made.meter.completion = tokens
    made.first_event, made.last_event = events
    made.close()
    (row,) = ended
    assert row.tpot_ms == (expected if expected is None else pytest.approx(expected))


def test_an_attempt_names_only_whom_it_asked() -> None:
    made, tried = account(), list[Any]()
    made._ledger.attempt = tried.append  # type: ignore[assignment, method-assign]
    made._clock = Mock(**{"wall_ns.return_value": 1})
    made.request = Admitted("r", {}, 2, "auto", True, "t", "k", 0.0, 0)
    made.asks("0", "a-model")
    made.worker_us = 70
    made.tried("engine_unavailable", "")
    made.try_road("local-70b")
    made.tried("queue_timeout", "")
    assert [(row.backend, row.model, row.worker_us) for row in tried] == [("0", "a-model", 70), ("", "", 0)]
