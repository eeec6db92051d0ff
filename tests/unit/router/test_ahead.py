"""The mask that is made while a request waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from weighbridge.masking.detector_queue import Speculation
from weighbridge.masking.errors import MaskingRefused, Reason
from weighbridge.router import ahead
from weighbridge.router.ahead import MaskAhead


class Masking:
    """Makes masks when told to; each is a string of its own."""

    def __init__(self) -> None:
        self.asked: list[Speculation | None] = []
        self.begun = asyncio.Event()
        self.let = asyncio.Event()
        self.cancelled = 0
        self.refuse: list[Reason] = []

    async def mask(self, speculation: Speculation | None) -> Any:
        self.asked.append(speculation)
        self.begun.set()
        number = len(self.asked)
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.refuse:
            raise MaskingRefused(self.refuse.pop(0))
        return f"mask {number}"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "BEGIN_AFTER_S", 0)


async def begun() -> tuple[Masking, MaskAhead]:
    masking = Masking()
    made = MaskAhead(masking.mask)
    with made.waiting():
        await masking.begun.wait()
    return masking, made


async def test_a_wait_begins_it_and_need_promotes_it() -> None:
    masking, made = await begun()
    speculation = masking.asked[0]
    assert speculation is not None and not speculation.promoted
    needed = asyncio.create_task(made.masked())
    await asyncio.sleep(0)
    assert speculation.promoted
    masking.let.set()
    assert await needed == "mask 1"
    assert len(masking.asked) == 1


async def test_a_second_wait_begins_no_second_one() -> None:
    masking, made = await begun()
    with made.waiting():
        for _ in range(5):
            await asyncio.sleep(0)
    assert len(masking.asked) == 1
    made.drop()


async def test_a_short_wait_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "BEGIN_AFTER_S", 3600)
    masking = Masking()
    masking.let.set()
    made = MaskAhead(masking.mask)
    with made.waiting():
        await asyncio.sleep(0)
    assert masking.asked == []
    assert await made.masked() == "mask 1"
    assert masking.asked == [None]


async def test_what_is_not_needed_is_cancelled_and_made_anew_when_it_is() -> None:
    masking, made = await begun()
    made.drop()
    made.drop()
    await asyncio.sleep(0)
    masking.let.set()
    assert await made.masked() == "mask 2"
    assert masking.cancelled == 1
    assert masking.asked[1] is None


async def test_a_request_that_had_to_give_way_is_masked_again() -> None:
    masking, made = await begun()
    masking.refuse = ["overloaded"]
    masking.let.set()
    assert await made.masked() == "mask 2"


async def test_a_refusal_for_what_is_in_it_stands() -> None:
    masking, made = await begun()
    masking.refuse = ["credentials"]
    masking.let.set()
    with pytest.raises(MaskingRefused, match="credentials"):
        await made.masked()
    assert len(masking.asked) == 1


async def test_a_cancelled_caller_ends_it() -> None:
    masking, made = await begun()
    needed = asyncio.create_task(made.masked())
    await asyncio.sleep(0)
    needed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await needed
    assert masking.cancelled == 1


async def test_one_made_under_what_has_changed_since_is_not_used() -> None:
    masking, under = Masking(), ["old"]
    made = MaskAhead(masking.mask, lambda: under[0])
    with made.waiting():
        await masking.begun.wait()
    masking.let.set()
    await asyncio.sleep(0)
    under[0] = "new"
    assert await made.masked() == "mask 2"
    assert [speculation is None for speculation in masking.asked] == [False, True]


class Lists:
    """What a mask depends on."""

    def __init__(self) -> None:
        self.edition = 1

    def __call__(self) -> int:
        return self.edition


async def test_a_made_mask_is_used_again_by_the_next_attempt() -> None:
    masking, lists = Masking(), Lists()
    masking.let.set()
    made = MaskAhead(masking.mask, lists)
    assert [await made.masked() for _ in range(3)] == ["mask 1"] * 3
    masking, made = await begun()
    masking.let.set()
    assert [await made.masked() for _ in range(3)] == ["mask 1"] * 3


async def test_a_made_mask_is_not_used_when_the_lists_have_changed() -> None:
    masking, lists = Masking(), Lists()
    masking.let.set()
    made = MaskAhead(masking.mask, lists)
    assert await made.masked() == "mask 1"
    lists.edition = 2
    assert [await made.masked() for _ in range(2)] == ["mask 2"] * 2


async def test_neither_is_one_that_was_begun_under_other_lists() -> None:
    masking, lists = Masking(), Lists()
    made = MaskAhead(masking.mask, lists)
    with made.waiting():
        await masking.begun.wait()
    lists.edition = 2
    masking.let.set()
    assert await made.masked() == "mask 2"
    await asyncio.sleep(0)
    assert masking.cancelled == 1 and masking.asked[1] is None


async def test_a_wait_after_it_was_made_begins_none_and_hides_no_change() -> None:
    masking, lists = Masking(), Lists()
    masking.let.set()
    made = MaskAhead(masking.mask, lists)
    assert await made.masked() == "mask 1"
    lists.edition = 2
    with made.waiting():
        for _ in range(5):
            await asyncio.sleep(0)
    assert len(masking.asked) == 1
    assert await made.masked() == "mask 2"


async def test_a_dropped_mask_is_not_used_again() -> None:
    masking = Masking()
    masking.let.set()
    made = MaskAhead(masking.mask)
    assert await made.masked() == "mask 1"
    made.drop()
    assert await made.masked() == "mask 2"


async def test_a_refusal_is_not_kept_where_the_next_attempt_may_succeed() -> None:
    masking = Masking()
    masking.refuse = ["overloaded"]
    masking.let.set()
    made = MaskAhead(masking.mask)
    with pytest.raises(MaskingRefused, match="overloaded"):
        await made.masked()
    assert await made.masked() == "mask 2"
