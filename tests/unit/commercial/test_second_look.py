"""A hole in masking does not get past the gate."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.commercial.harness import CLOCK, masked, settle, side, text_of
from tests.unit.masking.fakes import Children
from weighbridge.commercial import gate
from weighbridge.commercial.errors import UpstreamFailed
from weighbridge.config.deadline import Deadline
from weighbridge.config.offload import MASKING
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking import filling, masked_text, second_look
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.masker import Masker
from weighbridge.masking.seal import seal_request
from weighbridge.masking.vault import Vault

LONG = "그래서 말인데요 and so on. " * 400


@pytest.fixture
async def blind(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Masker]:
    """A masker whose detectors find nothing and that does not look between what they found."""
    for module in (masked_text, filling):
        monkeypatch.setattr(module, "remains", lambda text: [])
    made = Masker(
        MaskingSettings(layers=[], without_names="mask"), CLOCK, start_child=Children(lambda text: []).start
    )
    await made.start()
    yield made
    await made.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("padding", ["", LONG], ids=["inline", "lane"])
@pytest.mark.parametrize(
    "value",
    ["010-1234-5678", "kim@corp", "1990년 3월 5일", "12가 3456", "https://intra/x", "M1234567", "a＠b"],
)
async def test_a_planted_hole_sends_nothing(blind: Masker, value: str, padding: str, stream: bool) -> None:
    async with side() as here:
        request = await blind.mask(
            {"messages": [{"role": "user", "content": f"{padding}{value}입니다"}], "stream": stream},
            request_id="r",
            upstream_model="upstream",
            conversation="c",
            deadline=Deadline.after(CLOCK, 10),
        )
        assert value.encode() in request.body
        with pytest.raises(MaskingRefused) as refused:
            await (here.events if stream else here.complete)(request)
        assert refused.value.reason == "second_look"
        assert value not in repr(refused.value) and refused.value.__cause__ is None
        await settle()
        assert here.recorder.connections == [] and here.journal.rows == []
        assert here.ctx.egress_id == ""


async def test_what_masking_did_well_goes_out(blind: Masker) -> None:
    for text in ("hello", LONG):
        async with side() as here:
            request = await blind.mask(
                {"messages": [{"role": "user", "content": text}], "stream": True},
                request_id="r",
                upstream_model="upstream",
                conversation="c",
                deadline=Deadline.after(CLOCK, 10),
            )
            assert text[:10] in text_of(await here.events(request))


def sealed(body: bytes) -> Any:
    return seal_request(
        request_id="r",
        body=body,
        stream=False,
        entities={},
        detector_version="d",
        body_hash="h",
        vault=Vault({}),
    )


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model":"other-2024-01-01"}', b'{"a":1234567}'])
async def test_a_body_that_is_not_what_it_should_be_stays(body: bytes) -> None:
    async with side() as here:
        with pytest.raises(MaskingRefused):
            await here.complete(sealed(body))
        assert here.recorder.connections == [] and here.journal.rows == []


@pytest.mark.parametrize("padding", ["", LONG], ids=["inline", "lane"])
async def test_a_look_that_fails_refuses(monkeypatch: pytest.MonkeyPatch, padding: str) -> None:
    def broken(text: str) -> Any:
        raise ValueError(f"cannot read {text}")

    monkeypatch.setattr(second_look, "leftovers", broken)
    async with side() as here:
        with pytest.raises(MaskingRefused) as refused:
            await here.complete(masked(text=f"a secret 1 {padding}"))
        assert refused.value.reason == "second_look" and "secret" not in repr(refused.value.__cause__)
        assert refused.value.__suppress_context__
        assert here.recorder.connections == [] and here.journal.rows == []


async def test_long_bodies_are_looked_at_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    real = MASKING.run

    async def noted(work: Any, *args: Any, **more: Any) -> Any:
        ran.append(1)
        return await real(work, *args, **more)

    monkeypatch.setattr(gate.MASKING, "run", noted)
    async with side() as here:
        await here.complete(masked(text="short"))
        assert ran == []
        await here.complete(masked(text=LONG))
        assert ran == [1]


async def test_a_lane_that_is_busy_ends_with_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(gate.MASKING, "run", never)
    async with side() as here:
        with pytest.raises(UpstreamFailed) as failed:
            await here.complete(masked(text=LONG), seconds=0.05)
        assert failed.value.kind == "timeout"
        assert here.recorder.connections == [] and here.journal.rows == []


async def test_the_model_of_the_configuration_may_look_like_a_date() -> None:
    async with side(model="gpt-2024-08-06") as here:
        body = {"model": "gpt-2024-08-06", "messages": [{"role": "user", "content": "hello"}]}
        await here.complete(sealed(json.dumps(body).encode()))
        assert len(here.recorder.requests) == 1
