"""The queue before the detector processes: every fault is a refusal."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.masking.fakes import Children, FakeChild
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.masking import detector_pool as pool_module
from weighbridge.masking.detector_pool import DetectorPool
from weighbridge.masking.detector_queue import Speculation
from weighbridge.masking.errors import MaskingRefused, Reason
from weighbridge.masking.slices import Slice, cut

pytestmark = pytest.mark.slow

CLOCK = SystemClock()


def soon(seconds: float = 10) -> Deadline:
    return Deadline.after(CLOCK, seconds)


@asynccontextmanager
async def pool_of(
    children: Children, *, workers: int = 1, max_queue: int = 4, limit_s: float = 10
) -> AsyncIterator[DetectorPool]:
    pool = DetectorPool(children.start, workers=workers, max_queue=max_queue, task_timeout_s=limit_s)
    await pool.start()
    try:
        yield pool
    finally:
        await pool.close()


async def refusal(asked: Coroutine[Any, Any, object]) -> Reason:
    with pytest.raises(MaskingRefused) as raised:
        await asked
    return raised.value.reason


async def test_texts_go_in_and_spans_come_out() -> None:
    async with pool_of(Children()) as pool:
        assert pool.ready
        assert pool.about.detector_version == "fake-1"
        assert await pool.find(["a XXbXX c", "none"], soon()) == [[(2, 7, "PHONE")], []]


async def test_a_full_queue_refuses_and_an_abandoned_place_is_free_again() -> None:
    children = Children()
    async with pool_of(children, max_queue=1) as pool:
        child = children.started[0]
        child.free.clear()
        running = asyncio.create_task(pool.find(["one"], soon()))
        await child.busy.wait()
        waiting = asyncio.create_task(pool.find(["two"], soon()))
        await asyncio.sleep(0)
        assert await refusal(pool.find(["three"], soon())) == "overloaded"
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        again = asyncio.create_task(pool.find(["four"], soon()))
        child.free.set()
        assert await running == [[]]
        assert await again == [[]]
        assert [list(asked) for asked in child.asked] == [["one"], ["four"]]


async def test_a_task_that_overruns_is_refused_and_its_process_replaced() -> None:
    children = Children()
    async with pool_of(children, limit_s=0.05) as pool:
        children.started[0].free.clear()
        children.another.clear()
        assert await refusal(pool.find(["slow"], soon())) == "timeout"
        await children.another.wait()
        assert children.started[0].killed
        assert await pool.find(["XXaXX"], soon()) == [[(0, 5, "PHONE")]]


async def test_a_request_past_its_deadline_is_refused_and_the_process_kept() -> None:
    children = Children()
    async with pool_of(children) as pool:
        child = children.started[0]
        child.free.clear()
        assert await refusal(pool.find(["late"], soon(0.05))) == "timeout"
        child.free.set()
        assert await pool.find(["next"], soon()) == [[]]
        assert len(children.started) == 1


async def test_a_process_that_dies_at_work_refuses_that_request_alone() -> None:
    children = Children()
    async with pool_of(children) as pool:
        child = children.started[0]
        child.free.clear()
        running = asyncio.create_task(pool.find(["one"], soon()))
        await child.busy.wait()
        waiting = asyncio.create_task(pool.find(["two"], soon()))
        await asyncio.sleep(0)
        child.ended.set()
        assert await refusal(running) == "detector_failed"
        assert await waiting == [[]]
        assert len(children.started) == 2


async def test_a_process_that_dies_idle_is_replaced_before_anybody_asks() -> None:
    children = Children()
    async with pool_of(children) as pool:
        children.another.clear()
        children.started[0].ended.set()
        await children.another.wait()
        assert await pool.find(["XXaXX"], soon()) == [[(0, 5, "PHONE")]]


async def test_without_any_process_requests_are_refused_at_once_and_starting_is_tried_again() -> None:
    children = Children()
    children.fail = True
    async with pool_of(children) as pool:
        assert not pool.ready
        assert await refusal(pool.find(["a"], soon())) == "detector_failed"
        children.fail = False
        await asyncio.wait_for(children.another.wait(), 10)
        await asyncio.sleep(0)
        assert await pool.find(["a"], soon()) == [[]]


async def test_when_the_last_process_cannot_be_replaced_waiting_requests_are_refused() -> None:
    children = Children()
    async with pool_of(children) as pool:
        child = children.started[0]
        child.free.clear()
        running = asyncio.create_task(pool.find(["one"], soon()))
        await child.busy.wait()
        waiting = asyncio.create_task(pool.find(["two"], soon()))
        await asyncio.sleep(0)
        children.fail = True
        child.ended.set()
        assert await refusal(running) == "detector_failed"
        assert await refusal(waiting) == "detector_failed"


async def test_a_detector_that_raises_is_a_refusal() -> None:
    def broken(text: str) -> list[tuple[int, int, str]]:
        raise MaskingRefused("detector_failed")

    children = Children(broken)
    async with pool_of(children) as pool:
        assert await refusal(pool.find(["a"], soon())) == "detector_failed"
        assert len(children.started) == 1


async def test_a_fault_of_our_own_while_serving_does_not_end_the_keeping_of_processes() -> None:
    def broken(text: str) -> list[tuple[int, int, str]]:
        raise KeyError(text)

    children = Children(broken)
    async with pool_of(children) as pool:
        for _ in range(2):
            assert await refusal(pool.find(["a"], soon())) == "detector_failed"
        assert len(children.started) >= 2


async def test_closing_refuses_what_waits_and_ends_every_process() -> None:
    children = Children()
    async with pool_of(children, workers=2) as pool:
        for child in children.started:
            child.free.clear()
        asked = [asyncio.create_task(pool.find([str(n)], soon())) for n in range(4)]
        await asyncio.gather(*(child.busy.wait() for child in children.started))
        await pool.close()
        assert [await refusal(task) for task in asked] == ["detector_failed"] * 4
        assert all(child.killed for child in children.started)
        assert await refusal(pool.find(["x"], soon())) == "detector_failed"


async def test_a_large_request_is_served_in_slices_and_small_ones_go_between() -> None:
    children = Children()
    async with pool_of(children, max_queue=8) as pool:
        child = children.started[0]
        child.free.clear()
        words = " ".join(["word"] * 20_000) + " XXaXX"
        large = asyncio.create_task(pool.find([words], soon(), owner="a"))
        await child.busy.wait()
        small = asyncio.create_task(pool.find(["XXbXX"], soon(), owner="b"))
        same = asyncio.create_task(pool.find(["XXcXX"], soon(), owner="a"))
        await asyncio.sleep(0)
        child.free.set()
        assert await small == [[(0, 5, "PHONE")]]
        assert await same == [[(0, 5, "PHONE")]]
        assert await large == [[(len(words) - 5, len(words), "PHONE")]]
        order = [list(asked) for asked in child.asked]
        assert order[1:3] == [["XXbXX"], ["XXcXX"]]
        assert len(order) > 5
        assert max(sum(map(len, asked)) for asked in order) < 20_000


async def test_a_small_request_takes_the_place_of_the_largest_in_a_full_queue() -> None:
    children = Children()
    async with pool_of(children, max_queue=1) as pool:
        child = children.started[0]
        child.free.clear()
        running = asyncio.create_task(pool.find(["one"], soon()))
        await child.busy.wait()
        large = asyncio.create_task(pool.find(["x" * 5000], soon()))
        await asyncio.sleep(0)
        small = asyncio.create_task(pool.find(["x"], soon()))
        assert await refusal(large) == "overloaded"
        child.free.set()
        assert await running == await small == [[]]


async def test_long_texts_are_cut_and_united_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[bool] = []

    def noting(work: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any) -> Any:
            beside.append(threading.current_thread() is not threading.main_thread())
            return work(*args)

        return noted

    for name in ("cut", "unite"):
        monkeypatch.setattr(pool_module, name, noting(getattr(pool_module, name)))
    long = "a XXbXX c " * 5_000
    async with pool_of(Children()) as pool:
        assert await pool.find(["a XXbXX c"], soon()) == [[(2, 7, "PHONE")]]
        assert beside == [False, False]
        (spans,) = await pool.find([long], soon())
        assert spans == [(at + 2, at + 7, "PHONE") for at in range(0, len(long), 10)]
        await pool.find(["short"] * 1_000, soon())
        assert beside[2:] == [True] * 4


async def test_a_pool_that_ends_while_a_text_is_cut_refuses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    go, cutting = threading.Event(), threading.Event()

    def slowly(texts: Sequence[str]) -> list[Slice]:
        cutting.set()
        assert go.wait(10)
        return cut(texts)

    monkeypatch.setattr(pool_module, "cut", slowly)
    async with pool_of(Children()) as pool:
        asked = asyncio.create_task(refusal(pool.find(["word " * 20_000], soon())))
        while not cutting.is_set():
            await asyncio.sleep(0.001)
        await pool.close()
        go.set()
        assert await asked == "detector_failed"


async def test_a_speculative_request_waits_for_others_until_it_is_promoted() -> None:
    children = Children()
    async with pool_of(children, max_queue=8) as pool:
        child = children.started[0]
        child.free.clear()
        running = asyncio.create_task(pool.find(["one"], soon()))
        await child.busy.wait()
        guesses = [Speculation(), Speculation()]
        guessed = [
            asyncio.create_task(pool.find([f"guess {n}"], soon(), speculation=guess))
            for n, guess in enumerate(guesses)
        ]
        real = asyncio.create_task(pool.find(["a much longer real one"], soon()))
        await asyncio.sleep(0)
        guesses[1].promote()
        child.free.set()
        assert await asyncio.gather(running, *guessed, real) == [[[]]] * 4
        assert [asked[0] for asked in child.asked] == ["one", "guess 1", "a much longer real one", "guess 0"]


async def test_a_speculative_request_may_be_cancelled_and_its_place_is_free() -> None:
    children = Children()
    async with pool_of(children, max_queue=1) as pool:
        child = children.started[0]
        child.free.clear()
        running = asyncio.create_task(pool.find(["one"], soon()))
        await child.busy.wait()
        guess = asyncio.create_task(pool.find(["guess"], soon(), speculation=Speculation()))
        await asyncio.sleep(0)
        guess.cancel()
        await asyncio.gather(guess, return_exceptions=True)
        another = asyncio.create_task(pool.find(["again"], soon(), speculation=Speculation()))
        await asyncio.sleep(0)
        child.free.set()
        assert await running == await another == [[]]


async def test_a_speculative_request_is_the_first_to_be_refused() -> None:
    children = Children()
    async with pool_of(children, max_queue=1) as pool:
        child = children.started[0]
        child.free.clear()
        running = asyncio.create_task(pool.find(["one"], soon()))
        await child.busy.wait()
        guess = asyncio.create_task(pool.find(["x"], soon(), speculation=Speculation()))
        await asyncio.sleep(0)
        assert await refusal(pool.find(["y"], soon(), speculation=Speculation())) == "overloaded"
        real = asyncio.create_task(pool.find(["x" * 5_000], soon()))
        assert await refusal(guess) == "overloaded"
        child.free.set()
        assert await running == await real == [[]]


async def test_the_time_limit_of_a_speculative_request_runs_from_its_promotion() -> None:
    async def never() -> FakeChild:
        await asyncio.Event().wait()
        raise AssertionError

    pool = DetectorPool(never, workers=1, max_queue=4, task_timeout_s=0.2)
    starting = asyncio.create_task(pool.start())
    await asyncio.sleep(0)
    try:
        guess = Speculation()
        asked = asyncio.create_task(pool.find(["guess"], soon(), speculation=guess))
        assert await refusal(pool.find(["real"], soon())) == "timeout"
        assert not asked.done()
        guess.promote()
        began = time.monotonic()
        assert await refusal(asked) == "timeout"
        assert 0.1 < time.monotonic() - began < 5
        assert await refusal(pool.find(["late"], soon(0.05), speculation=Speculation())) == "timeout"
    finally:
        starting.cancel()
        await pool.close()


async def test_what_was_speculative_is_known_afterwards() -> None:
    children = Children()
    async with pool_of(children) as pool:
        assert await pool.find(["XXaXX"], soon(), speculation=Speculation()) == [[(0, 5, "PHONE")]]
        assert await pool.find(["XXaXX"], soon()) == [[(0, 5, "PHONE")]]
        assert len(children.started[0].asked) == 1


async def test_processes_that_die_before_they_work_are_not_started_without_end() -> None:
    children = Children()

    async def stillborn() -> FakeChild:
        child = await children.start()
        child.ended.set()
        return child

    pool = DetectorPool(stillborn, workers=1, max_queue=4, task_timeout_s=10)
    await pool.start()
    try:
        await asyncio.sleep(0.5)
        assert 2 <= len(children.started) <= 5
    finally:
        await pool.close()


async def test_a_process_that_cannot_be_killed_does_not_end_the_keeping_of_processes() -> None:
    class Unkillable(FakeChild):
        async def kill(self) -> None:
            raise RuntimeError

    children = Children()

    async def start() -> FakeChild:
        child = await children.start() if children.started else Unkillable()
        if not children.started:
            children.started.append(child)
        return child

    pool = DetectorPool(start, workers=1, max_queue=4, task_timeout_s=10)
    await pool.start()
    try:
        children.started[0].ended.set()
        await asyncio.wait_for(children.another.wait(), 10)
        assert await pool.find(["XXaXX"], soon()) == [[(0, 5, "PHONE")]]
    finally:
        await pool.close()
