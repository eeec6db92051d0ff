"""The tests' own event loop: time jumps, order holds, a loop with nothing to do is told."""

from __future__ import annotations

import asyncio

import pytest

from tests.support import virtual_time
from tests.support.virtual_time import VirtualClock, run_virtual


def test_hours_pass_in_no_time_and_in_order() -> None:
    async def main() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []
        clock = VirtualClock()

        async def note(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, clock.monotonic()))

        await asyncio.gather(note("c", 7200), note("a", 0.1), note("b", 3600), note("b2", 3600))
        assert clock.wall_ns() == 1_700_000_000_000_000_000 + 7200 * 10**9
        return seen

    assert run_virtual(main()) == [("a", 0.1), ("b", 3600), ("b2", 3600), ("c", 7200)]


def test_timeouts_work_on_it() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(86_400):
                await asyncio.sleep(10**9)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 86_400


def test_a_loop_that_waits_for_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "_STUCK_S", 0.05)

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="nothing will ever happen"):
        run_virtual(main())


def test_a_thread_can_wake_it() -> None:
    async def main() -> int:
        return await asyncio.to_thread(lambda: 7)

    assert run_virtual(main()) == 7
