"""A time limit around what one task waits for."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.virtual_time import run_virtual
from weighbridge.config.time_limit import TimeLimit


def test_what_takes_too_long_ends_with_a_timeout_at_its_limit() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        limit = TimeLimit(2.0)
        with pytest.raises(TimeoutError), limit:
            await asyncio.sleep(60)
        assert loop.time() - began == pytest.approx(2.0)
        assert limit.expired
        task = asyncio.current_task()
        assert task is not None and not task.cancelling()

    run_virtual(main())


def test_what_ends_in_time_leaves_nothing_behind() -> None:
    async def main() -> None:
        with TimeLimit(2.0) as limit:
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        assert not limit.expired

    run_virtual(main())


def test_an_error_of_the_block_is_its_own() -> None:
    async def main() -> None:
        with pytest.raises(KeyError), TimeLimit(2.0):
            raise KeyError

    run_virtual(main())


def test_a_cancellation_from_outside_stays_one() -> None:
    async def main() -> None:
        async def work() -> None:
            with TimeLimit(5.0):
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())


def test_a_cancellation_from_outside_at_the_very_limit_goes_on() -> None:
    async def main() -> None:
        async def work() -> None:
            with TimeLimit(5.0):
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        asyncio.get_running_loop().call_later(5.0, task.cancel)
        await asyncio.sleep(6)
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())


def test_the_outer_of_two_limits_ends_both() -> None:
    async def main() -> None:
        inner = TimeLimit(5.0)
        with pytest.raises(TimeoutError), TimeLimit(2.0), inner:
            await asyncio.sleep(60)
        assert not inner.expired

    run_virtual(main())


def test_it_needs_a_task() -> None:
    async def main() -> None:
        said: list[str] = []

        def outside() -> None:
            try:
                TimeLimit(1.0).__enter__()
            except RuntimeError as exc:
                said.append(str(exc))

        asyncio.get_running_loop().call_soon(outside)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert said == ["a time limit needs a task"]

    run_virtual(main())
