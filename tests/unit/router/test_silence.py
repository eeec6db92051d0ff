"""An engine that goes silent is noticed. Time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.virtual_time import run_virtual
from weighbridge.router.failover import LocalLate
from weighbridge.router.silence import Silence

FIRST_S, GAP_S = 8.0, 4.0


async def events(at: list[float]) -> AsyncIterator[bool]:
    """Events at these times, then silence; the first is no content where its time is below zero."""
    for when in at:
        await asyncio.sleep(max(0.0, abs(when) - asyncio.get_running_loop().time()))
        yield when > 0
    await asyncio.Event().wait()


def late(
    at: list[float], first_s: float = FIRST_S, gap_s: float = GAP_S, *, write_s: float = 0.0
) -> tuple[str, float]:
    """Which limit was over, and when; each event takes `write_s` to hand on."""

    async def main() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        try:
            with Silence(first_s, gap_s) as silence:
                async for content in events(at):
                    silence.events += 1
                    if content:
                        silence.begun = silence.away = True
                        await asyncio.sleep(write_s)
                        silence.away = False
        except LocalLate as exc:
            task = asyncio.current_task()
            assert task is not None and task.cancelling() == 0
            return exc.limit, loop.time()
        raise AssertionError("a silent engine went unnoticed")

    return run_virtual(main())


@pytest.mark.parametrize("at", [[], [-1.0], [-1.0, -3.0, -5.0, -7.5]])
def test_the_first_content_has_its_limit_whatever_else_comes(at: list[float]) -> None:
    limit, when = late(at)
    assert limit == "first_token_late" and FIRST_S <= when <= FIRST_S * 1.25


@pytest.mark.parametrize("last", [0.1, 1.0, 5.0, 7.9])
@pytest.mark.parametrize(("first_s", "gap_s"), [(8.0, 4.0), (120.0, 4.0), (8.0, 60.0), (10.0, 10.0)])
def test_the_gap_after_it_has_its_own(last: float, first_s: float, gap_s: float) -> None:
    limit, when = late([last], first_s, gap_s)
    assert limit == "stalled"
    slack = min(first_s, gap_s) / 4
    assert last + gap_s <= when <= last + gap_s + 2 * slack + 1e-9


def test_every_event_counts_anew() -> None:
    times = [3.9 * n for n in range(1, 30)]
    limit, when = late(times)
    assert limit == "stalled" and times[-1] + GAP_S <= when <= times[-1] + 1.5 * GAP_S


def test_a_caller_who_does_not_read_is_no_silent_engine() -> None:
    limit, when = late([1.0, 2.0], write_s=500.0)
    assert limit == "stalled" and when >= 1001.0 + GAP_S


def test_an_answer_in_time_leaves_nothing_behind() -> None:
    async def main() -> None:
        with Silence(FIRST_S, GAP_S) as silence:
            silence.events += 1
            silence.begun = True
        await asyncio.sleep(100 * FIRST_S)

    run_virtual(main())


def test_an_error_of_the_engine_stays_what_it_is() -> None:
    async def main() -> None:
        with pytest.raises(KeyError), Silence(FIRST_S, GAP_S):
            await asyncio.sleep(1)
            raise KeyError("x")
        await asyncio.sleep(100)

    run_virtual(main())


def test_what_it_cleans_up_with_may_fail_and_the_task_goes_on() -> None:
    async def main() -> None:
        with pytest.raises(KeyError), Silence(FIRST_S, GAP_S):
            try:
                await asyncio.Event().wait()
            finally:
                raise KeyError("x")
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        await asyncio.sleep(1)

    run_virtual(main())


@pytest.mark.parametrize("at", [1.0, FIRST_S])
def test_a_cancelled_request_is_cancelled_and_not_late(at: float) -> None:
    async def main() -> None:
        async def serve() -> None:
            with Silence(FIRST_S, GAP_S):
                await asyncio.Event().wait()

        task = asyncio.create_task(serve())
        # At the very moment at which the limit is over too.
        asyncio.get_running_loop().call_at(at, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())


@pytest.mark.parametrize("outer_s", [2.0, FIRST_S])
def test_a_timeout_around_it_is_told_apart(outer_s: float) -> None:
    async def main() -> None:
        with pytest.raises((TimeoutError, LocalLate)) as told:
            async with asyncio.timeout(outer_s):
                with Silence(FIRST_S, GAP_S):
                    await asyncio.Event().wait()
        if outer_s < FIRST_S:
            assert told.type is TimeoutError
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        await asyncio.sleep(1)

    run_virtual(main())
