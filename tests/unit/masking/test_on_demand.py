"""Detectors that nobody started: the first look brings them up, once for all who ask meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.made_up_nursery import with_detector
from tests.support.process import all_gone
from tests.support.waiting import until
from tests.unit.masking.fakes import Children, FakeChild
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking import masker as masker_module
from weighbridge.masking.detector_nursery import DetectorNursery
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.masker import Look, Masker

CLOCK = SystemClock()


class Held(Children):
    """Children that come when the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.tries = 0
        self.trying = asyncio.Event()

    async def begun(self) -> None:
        async with asyncio.timeout(5):
            await self.trying.wait()

    async def start(self) -> FakeChild:
        self.tries += 1
        self.trying.set()
        await self.gate.wait()
        return await super().start()


@asynccontextmanager
async def masker_of(children: Children, *, workers: int = 1) -> AsyncIterator[Masker]:
    settings = MaskingSettings(layers=[], without_names="mask", workers=workers)
    masker = Masker(settings, CLOCK, start_child=children.start)
    try:
        yield masker
    finally:
        await masker.close()


def look(masker: Masker, text: str = "a XXnoteXX b", *, within_s: float = 10) -> asyncio.Task[Look]:
    asked = masker.look(text, deadline=Deadline.after(CLOCK, within_s), conversation="c")
    return asyncio.create_task(asked)


async def refused(asked: asyncio.Task[Look]) -> str:
    with pytest.raises(MaskingRefused) as raised:
        async with asyncio.timeout(5):
            await asked
    return raised.value.reason


@pytest.mark.parametrize("workers", [1, 3])
async def test_all_who_ask_share_one_start(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    children = Held()
    async with masker_of(children, workers=workers) as masker:
        assert not masker.ready and children.tries == 0
        asked = [look(masker, f"{number} XXnoteXX") for number in range(20)]
        await children.begun()
        children.gate.set()
        assert all([len((await one).spans) == 1 for one in asked])
        assert masker.ready
        assert (await look(masker)).refused is None
        await masker.start()
        assert children.tries == len(children.started) == workers
    assert caplog.text.count("masking: layers") == 1
    assert all(child.killed for child in children.started)


async def test_who_is_cancelled_or_late_leaves_the_start_to_the_others() -> None:
    children = Held()
    async with masker_of(children) as masker:
        first, late, third = look(masker), look(masker, within_s=0.01), look(masker)
        await children.begun()
        first.cancel()
        assert await refused(late) == "timeout"
        children.gate.set()
        assert len((await third).spans) == 1
        assert first.cancelled() and children.tries == 1


async def test_a_start_that_nobody_waits_for_any_more_goes_on() -> None:
    children = Held()
    async with masker_of(children) as masker:
        only = look(masker)
        await children.begun()
        only.cancel()
        children.gate.set()
        await until(lambda: masker.ready)
        assert len((await look(masker)).spans) == 1 and children.tries == 1


async def test_a_failed_start_is_tried_again_by_the_next_look_and_by_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    children = Children()
    children.fail = True
    async with masker_of(children, workers=2) as masker:
        before = asyncio.all_tasks()
        for _ in range(2):
            assert [await refused(look(masker)), await refused(look(masker))] == ["detector_failed"] * 2
            assert asyncio.all_tasks() == before, "something goes on trying"
        assert "the next preview tries again" in caplog.text
        children.fail = False
        assert len((await look(masker)).spans) == 1
        assert len(children.started) == 2


async def test_one_process_of_two_is_enough_and_the_other_is_tried_again() -> None:
    class Alternating(Children):
        tries = 0

        async def start(self) -> FakeChild:
            self.tries += 1
            self.fail = self.tries == 1
            return await super().start()

    children = Alternating()
    async with masker_of(children, workers=2) as masker:
        assert len((await look(masker)).spans) == 1
        assert len(children.started) == 1
        assert (await look(masker)).refused is None
        await until(lambda: len(children.started) == 2)


async def test_a_start_at_boot_keeps_trying(caplog: pytest.LogCaptureFixture) -> None:
    children = Children()
    children.fail = True
    async with masker_of(children) as masker:
        assert await refused(look(masker)) == "detector_failed"
        await masker.start()
        assert not masker.ready and "next try in 0.2 s" in caplog.text
        children.fail = False
        await until(children.another.is_set)
        await until(lambda: masker.ready)


@pytest.mark.parametrize("at_boot", [False, True])
async def test_closing_while_they_start_refuses_who_waits_and_leaves_nothing(at_boot: bool) -> None:
    children = Held()
    async with masker_of(children) as masker:
        before = asyncio.all_tasks()
        starting = [asyncio.create_task(masker.start())] if at_boot else []
        asked = [look(masker) for _ in range(3)]
        await children.begun()
        await masker.close()
        assert [await refused(one) for one in asked] == ["detector_failed"] * 3
        await asyncio.gather(*starting)
        children.gate.set()
        assert await refused(look(masker)) == "detector_failed"
        await masker.start()
        assert asyncio.all_tasks() == before
        assert (children.tries, children.started, masker.ready) == (1, [], False)


async def test_closing_while_the_nursery_loads_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[DetectorNursery] = []

    def slow(*told: object) -> DetectorNursery:
        made.append(DetectorNursery(*told, with_detector(load="time.sleep(60)")))  # type: ignore[arg-type]
        return made[0]

    monkeypatch.setattr(masker_module, "DetectorNursery", slow)
    masker = Masker(MaskingSettings(layers=[], without_names="mask"), CLOCK)
    assert made[0].pid == -1
    asked = look(masker)
    await until(lambda: made[0].pid != -1)
    pid = made[0].pid
    await masker.close()
    assert not all_gone({pid}, 5)
    assert await refused(asked) == "detector_failed"
    assert made[0].pid == -1


async def test_the_first_look_sees_a_list_that_changed_since_the_boot(tmp_path: Path) -> None:
    path = tmp_path / "values.txt"
    path.write_text("Project Nightjar\n", encoding="utf-8")
    now = [100.0]

    class Clock:
        def monotonic(self) -> float:
            return now[0]

        def wall_ns(self) -> int:
            return 0

    settings = MaskingSettings(layers=[], without_names="mask", known_values={"default": path})
    children = Held()
    masker = Masker(settings, Clock(), start_child=children.start)
    path.write_text("Project Bittern\n", encoding="utf-8")
    before = masker.lists("default")
    now[0] += 3600
    asked = look(masker, "All about Project Bittern")
    await until(lambda: masker.lists("default") != before)
    children.gate.set()
    assert [kind for *_, kind in (await asked).spans] == ["KNOWN"]
    await masker.close()
