"""What an operator is shown of a text, and where the search for blocked terms runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Sequence

import pytest

from tests.unit.masking.fakes import Children, FakeChild
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking import masker as masker_module
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.masker import Look, Masker
from weighbridge.masking.rules import Rules
from weighbridge.masking.wire import Ready

CLOCK = SystemClock()


@pytest.fixture
async def masker() -> AsyncIterator[Masker]:
    settings = MaskingSettings(layers=[], without_names="mask", max_chars=50_000)
    made = Masker(settings, CLOCK, start_child=Children().start)
    await made.start()
    yield made
    await made.close()


async def look(masker: Masker, text: str, **rules: object) -> Look:
    return await masker.look(
        text,
        deadline=Deadline.after(CLOCK, 10),
        rules=Rules(**rules),  # type: ignore[arg-type]
        conversation="c",
    )


async def test_a_value_is_shown_masked(masker: Masker) -> None:
    seen = await look(masker, "a XXnoteXX b")
    assert seen.spans == ((2, 10, "PHONE"),)
    assert seen.masked.startswith("a [PHONE_") and seen.refused is None


@pytest.mark.parametrize(
    ("text", "rules", "refused"),
    [
        ("a" * 50_001, {}, "too_large"),
        ("a" * 11, {"max_chars": 10}, "too_large"),
        ("half \ud83d", {}, "unknown_field_type"),
    ],
)
async def test_what_a_request_would_be_refused_for_before_anything_is_looked_for(
    masker: Masker, text: str, rules: dict[str, object], refused: str
) -> None:
    assert await look(masker, text, **rules) == Look("", (), refused)  # type: ignore[arg-type]


async def test_an_empty_text_may_leave(masker: Masker) -> None:
    assert await look(masker, "") == Look("", (), None)


async def test_a_long_text_is_put_together_beside_the_event_loop(
    masker: Masker, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    really = masker_module.with_leftovers

    def leftovers(*args: object) -> object:
        threads.append(threading.current_thread())
        return really(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(masker_module, "with_leftovers", leftovers)
    assert (await look(masker, "word " * 9_000)).refused is None
    assert threads and threading.main_thread() not in threads


class Blocked:
    """Keeps everything in, and notes where it was asked."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def found(self, texts: Sequence[str], *, within_s: float | None = None) -> bool:
        self.threads.append(threading.current_thread())
        return True


async def test_the_search_for_blocked_terms_never_holds_the_event_loop(masker: Masker) -> None:
    blocked = Blocked()
    assert (await look(masker, "short", blocked=blocked)).refused == "blocked_term"
    with pytest.raises(MaskingRefused, match="blocked_term"):
        await masker.mask(
            {"messages": [{"role": "user", "content": "short"}]},
            request_id="r",
            upstream_model="m",
            conversation="c",
            deadline=Deadline.after(CLOCK, 10),
            rules=Rules(blocked=blocked),
        )
    assert len(blocked.threads) == 2 and threading.main_thread() not in blocked.threads


@pytest.mark.parametrize(
    ("without_names", "consequence"),
    [("refuse", "so such prose does not leave"), ("mask", "it leaves with them")],
)
async def test_the_start_says_what_is_missing_and_what_follows(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, without_names: str, consequence: str
) -> None:
    caplog.set_level(logging.INFO)
    ready = Ready("v", ("structured",), {"kiwi": "kiwipiepy is not installed"}, frozenset({"en"}))
    monkeypatch.setattr(FakeChild, "ready", ready)
    settings = MaskingSettings.model_validate({"layers": [], "without_names": without_names})
    made = Masker(settings, CLOCK, start_child=Children().start)
    await made.start()
    await made.close()
    assert "layer kiwi is missing: kiwipiepy is not installed" in caplog.text
    assert "no layer finds names in Korean prose" in caplog.text and consequence in caplog.text
