"""A process that has read much makes room for a fresh one: libraries keep every word they ever met."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.support.waiting import until
from tests.unit.masking.fakes import Children
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.masking import detector_pool as pool_module
from weighbridge.masking.detector_pool import DetectorPool
from weighbridge.masking.errors import MaskingRefused

CLOCK = SystemClock()


async def test_a_worn_process_is_replaced_between_two_tasks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool_module, "_WORN_CHARS", 20)
    children = Children()
    pool = DetectorPool(children.start, workers=1, max_queue=16, task_timeout_s=10)
    await pool.start()
    try:
        texts = [f"XXabcXX {number}" for number in range(8)]
        with caplog.at_level(logging.INFO):
            waiting = (pool.find([text], Deadline.after(CLOCK, 10)) for text in texts)
            assert await asyncio.gather(*waiting) == [[[(0, 7, "PHONE")]]] * 8
        # Three texts of nine characters each.
        assert [len(child.asked) for child in children.started] == [3, 3, 2]
        assert [child.killed for child in children.started] == [True, True, False]
        assert "lost" not in caplog.text and "could not be started" not in caplog.text
    finally:
        await pool.close()


async def test_one_that_wears_out_with_its_first_task_is_not_taken_for_a_broken_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_module, "_WORN_CHARS", 1)
    monkeypatch.setattr(pool_module, "_FIRST_PAUSE_S", 3600)
    children = Children()
    pool = DetectorPool(children.start, workers=1, max_queue=16, task_timeout_s=10)
    await pool.start()
    try:
        for number in range(5):
            async with asyncio.timeout(10):
                await pool.find([f"text {number}"], Deadline.after(CLOCK, 10))
    finally:
        await pool.close()
    assert len(children.started) in (5, 6)


async def test_where_no_other_can_be_started_none_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_WORN_CHARS", 1)
    children = Children()
    pool = DetectorPool(children.start, workers=1, max_queue=4, task_timeout_s=10)
    await pool.start()
    try:
        children.fail = True
        await pool.find(["text"], Deadline.after(CLOCK, 10))
        await until(lambda: not pool.ready)
        with pytest.raises(MaskingRefused, match="detector_failed"):
            await pool.find(["more"], Deadline.after(CLOCK, 10))
        children.fail = False
        await until(lambda: pool.ready)
        assert await pool.find(["again"], Deadline.after(CLOCK, 10)) == [[]]
    finally:
        await pool.close()
