"""A limit on waiting that leaves work which does not wait alone."""

from __future__ import annotations

import asyncio

import pytest

from weighbridge.gateway.waiting import within


async def test_work_that_does_not_wait_arms_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_timer(*_: object) -> None:
        raise AssertionError("a timer was made")

    monkeypatch.setattr(asyncio, "timeout", no_timer)

    async def quick() -> int:
        return 7

    assert await within(quick(), 1.0) == 7


async def test_work_that_waits_ends_with_its_result() -> None:
    async def two_waits() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "done"

    assert await within(two_waits(), 5.0) == "done"


async def test_work_that_waits_too_long_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(TimeoutError):
        await within(forever(), 0.01)
    assert cancelled.is_set()


async def test_errors_pass_before_and_after_the_first_wait() -> None:
    async def fails(waits: int) -> None:
        for _ in range(waits):
            await asyncio.sleep(0)
        raise LookupError(waits)

    for waits in (0, 1, 3):
        with pytest.raises(LookupError):
            await within(fails(waits), 5.0)


async def test_an_error_thrown_in_can_be_survived() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "cleaned"
        return "never"

    task = asyncio.create_task(within(stubborn(), 5.0))
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "cleaned"


async def test_a_future_will_do() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, 3)
    assert await within(future, 5.0) == 3
