"""A pattern that is slow on somebody's text costs time to that one alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.unit.masking.fakes import Children
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking.blocked import compile_blocked
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.masker import Masker
from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.rules import Rules

CLOCK = SystemClock()


class Slow:
    """On a text that begins with `slow` it takes until it is let go."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def found(self, texts: Sequence[str], *, within_s: float | None = None) -> bool:
        if not texts[0].startswith("slow"):
            return False
        if within_s is not None:
            raise TimeoutError
        self.begun.set()
        self.go.wait(20)
        return texts[0] == "slow and found"


@pytest.fixture
async def masker() -> AsyncIterator[Masker]:
    made = Masker(
        MaskingSettings(layers=[], without_names="mask", task_timeout_s=1),
        CLOCK,
        start_child=Children(lambda text: []).start,
    )
    await made.start()
    yield made
    await made.close()


async def mask(masker: Masker, text: str, blocked: Slow, seconds: float = 20) -> MaskedRequest:
    return await masker.mask(
        {"messages": [{"role": "user", "content": text}]},
        request_id="r",
        upstream_model="m",
        conversation="c",
        deadline=Deadline.after(CLOCK, seconds),
        rules=Rules(blocked=blocked),
    )


async def test_others_do_not_wait_for_a_slow_search(masker: Masker) -> None:
    blocked = Slow()
    slow = [asyncio.create_task(mask(masker, text, blocked)) for text in ("slow", "slow and found")]
    try:
        assert await asyncio.to_thread(blocked.begun.wait, 20)
        for text in ("Hello", "word " * 10_000):
            async with asyncio.timeout(20):
                assert await mask(masker, text, blocked)
        assert not any(task.done() for task in slow)
    finally:
        blocked.go.set()
    assert await slow[0]
    with pytest.raises(MaskingRefused, match="blocked_term"):
        await slow[1]


async def test_the_wait_for_a_slow_search_has_an_end(masker: Masker) -> None:
    blocked = Slow()
    try:
        for seconds in (20, 0.05):
            with pytest.raises(MaskingRefused, match="timeout"):
                await mask(masker, "slow", blocked, seconds)
    finally:
        blocked.go.set()


def test_a_short_look_tells_that_it_was_too_short() -> None:
    terms = compile_blocked(["secret word"], [r"(?:a|aa)+$"], 0.2)
    with pytest.raises(TimeoutError):
        terms.found(["a" * 60 + "!"], within_s=0.01)
    assert terms.found(["a" * 60 + "!"])
    assert terms.found(["a secret word"], within_s=0.01)
    assert not terms.found(["nothing here!"], within_s=5)
