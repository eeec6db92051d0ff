"""What the gate sends, in which order, and how it reads good answers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import zlib
from typing import Any

import pytest

from tests.support.recorder import (
    CACHED_TOKENS,
    MISSING_DONE,
    NO_USAGE,
    PROMPT_TOKENS,
    Mode,
    recording,
    slow,
    status,
)
from tests.unit.commercial.harness import CLOCK, KEY, Journal, masked, settle, side, text_of
from weighbridge.commercial.errors import SealBroken, UpstreamFailed
from weighbridge.commercial.gate import EgressContext, EgressGate
from weighbridge.config.deadline import Deadline
from weighbridge.config.ids import IdFactory
from weighbridge.config.settings import CommercialSettings
from weighbridge.config.usage import TokenMeter
from weighbridge.masking.request import MaskedRequest

ECHO = "You said: hello [NUM_ABCDEFGH] – 네, 알겠습니다. 😀"


class LedgerDown(Exception):
    pass


def broken_seal(stream: bool) -> MaskedRequest:
    request = masked(stream)
    return dataclasses.replace(request, body=request.body.replace(b"[NUM_ABCDEFGH]", b"1234567"))


async def test_a_whole_answer() -> None:
    async with side() as here:
        answer = await here.complete()
        assert answer["choices"][0]["message"]["content"] == ECHO
        assert here.meter == TokenMeter(PROMPT_TOKENS, 11, CACHED_TOKENS, exact=True)


async def test_a_streamed_answer() -> None:
    async with side() as here:
        events = await here.events()
        assert text_of(events) == ECHO
        assert events[-1]["choices"] == []
        assert events[-1]["usage"]["completion_tokens"] == 11
        assert here.meter == TokenMeter(PROMPT_TOKENS, 11, CACHED_TOKENS, exact=True)


async def test_the_headers_are_ours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with side() as here:
        await here.complete()
        await here.events()
        first, second = here.recorder.requests
        common = {
            "host": f"127.0.0.1:{here.recorder.port}",
            "authorization": f"Bearer {KEY}",
            "content-type": "application/json",
            "user-agent": "weighbridge",
            "x-request-id": "0190-request",
        }
        assert first.line == "POST /v1/chat/completions HTTP/1.1"
        assert first.body == masked().body
        size = {"content-length": str(len(first.body))}
        assert first.headers == {
            **common,
            **size,
            "accept": "application/json",
            "accept-encoding": "gzip, deflate",
        }
        assert second.headers["accept"] == "text/event-stream"
        assert second.headers["accept-encoding"] == "identity"
        assert second.headers.keys() == first.headers.keys()


async def test_without_a_key_none_is_sent() -> None:
    async with recording() as recorder:
        gate = EgressGate(
            CommercialSettings(base_url=recorder.base_url, model="m"), Journal(), CLOCK, IdFactory(CLOCK)
        )
        await gate.complete(masked(), EgressContext(1, "score", "p"), Deadline.after(CLOCK, 10), TokenMeter())
        assert "authorization" not in recorder.requests[0].headers
        await gate.close()


async def test_cookies_are_neither_kept_nor_sent() -> None:
    async with side(Mode(headers=(("set-cookie", "who=you"),))) as here:
        await here.complete()
        await here.complete()
        assert "cookie" not in here.recorder.requests[1].headers


@pytest.mark.parametrize("stream", [False, True])
async def test_a_broken_seal_opens_no_connection_and_writes_no_row(stream: bool) -> None:
    async with side() as here:
        with pytest.raises(SealBroken):
            await (here.events if stream else here.complete)(broken_seal(stream))
        await settle()
        assert here.recorder.connections == []
        assert here.journal.rows == []
        assert here.ctx.egress_id == ""


@pytest.mark.parametrize("stream", [False, True])
async def test_without_a_durable_row_nothing_leaves(stream: bool) -> None:
    def down() -> None:
        raise LedgerDown

    async with side() as here:
        here.journal.before = down
        with pytest.raises(LedgerDown):
            await (here.events if stream else here.complete)()
        await settle()
        assert here.recorder.connections == []
        assert here.ctx.egress_id == ""


@pytest.mark.parametrize("stream", [False, True])
async def test_no_connection_is_opened_before_the_row_is_durable(stream: bool) -> None:
    async with side() as here:
        durable = asyncio.Event()
        here.journal.before = durable.wait
        asked: asyncio.Task[Any] = asyncio.create_task((here.events if stream else here.complete)())
        await asyncio.sleep(0.1)
        assert here.recorder.connections == []
        durable.set()
        await asked
        assert len(here.recorder.connections) == 1
        (row,) = here.journal.rows
        assert (row.request_id, row.attempt, row.reason, row.policy_version) == (
            "0190-request",
            1,
            "score",
            "default@1",
        )
        assert (row.body_hash, row.detector_version, row.entities) == ("abc123", "d1", {"NUM": 1})
        assert row.body_bytes == len(here.recorder.requests[0].body)
        assert row.endpoint == f"{here.recorder.base_url}/chat/completions"
        assert row.egress_id == here.ctx.egress_id


async def test_a_journal_that_hangs_ends_with_the_deadline() -> None:
    async with side() as here:
        here.journal.before = asyncio.Event().wait
        with pytest.raises(UpstreamFailed) as failed:
            await here.complete(seconds=0.05)
        assert failed.value.kind == "timeout"
        assert here.recorder.connections == []


async def test_a_gate_without_an_endpoint_sends_nothing() -> None:
    journal = Journal()
    gate = EgressGate(CommercialSettings(), journal, CLOCK, IdFactory(CLOCK))
    assert not gate.configured
    with pytest.raises(UpstreamFailed):
        await gate.complete(masked(), EgressContext(1, "score", "p"), Deadline.after(CLOCK, 10), TokenMeter())
    assert journal.rows == []
    await gate.close()


async def test_a_request_is_sent_the_way_it_was_masked_for() -> None:
    async with side() as here:
        with pytest.raises(ValueError, match="masked for"):
            await here.complete(masked(stream=True))
        with pytest.raises(ValueError, match="masked for"):
            await here.events(masked(stream=False))
        assert here.recorder.connections == []


async def test_a_redirect_is_not_followed() -> None:
    async with recording() as elsewhere, side() as here:
        here.recorder.mode = status(307, b"", location=f"{elsewhere.base_url}/chat/completions")
        with pytest.raises(UpstreamFailed) as failed:
            await here.complete()
        assert (failed.value.kind, failed.value.status) == ("status", 307)
        assert elsewhere.connections == []


async def test_connections_are_used_again_after_whole_answers() -> None:
    async with side() as here:
        for _ in range(3):
            await here.complete()
            await here.events()
        assert len(here.recorder.connections) == 1
        assert len(here.recorder.requests) == 6


async def test_a_compressed_document_is_read() -> None:
    packer = zlib.compressobj(wbits=31)
    document = packer.compress(json.dumps({"choices": [{"index": 0}]}).encode()) + packer.flush()
    async with side(
        Mode("status", status=200, body=document, headers=(("content-encoding", "gzip"),))
    ) as here:
        assert await here.complete() == {"choices": [{"index": 0}]}


async def test_a_missing_done_is_no_fault_when_every_choice_ended() -> None:
    async with side(MISSING_DONE) as here:
        events = await here.events(masked(stream=True, n=2))
        assert text_of(events, 0) == text_of(events, 1) == ECHO


async def test_without_usage_content_events_are_counted() -> None:
    async with side(NO_USAGE) as here:
        await here.events()
        assert here.meter == TokenMeter(0, 11, 0, exact=False)
        other = TokenMeter()
        await here.gate.complete(masked(), here.ctx, Deadline.after(CLOCK, 10), other)
        assert other == TokenMeter(0, 0, 0, exact=False)


async def test_the_meter_runs_while_the_answer_comes() -> None:
    async with side(slow(5)) as here:
        counts = [here.meter.completion async for _ in here.stream()]
        assert counts[1:11] == list(range(1, 11))
        assert here.meter.exact


@pytest.mark.parametrize("leave", ["close", "cancel", "break"])
async def test_leaving_early_closes_the_connection_at_once(leave: str) -> None:
    async with side(slow(10)) as here:
        got = asyncio.Event()
        stream = here.stream()

        async def read() -> None:
            async for _ in stream:
                got.set()
                if leave == "break":
                    break

        task = asyncio.create_task(read())
        await got.wait()
        if leave == "cancel":
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        elif leave == "break":
            await task
            await stream.aclose()  # type: ignore[attr-defined]
        else:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await stream.aclose()  # type: ignore[attr-defined]
        await asyncio.wait_for(here.recorder.connections[0].closed.wait(), 5)
        here.recorder.mode = Mode()
        assert text_of(await here.events()) == ECHO
        assert len(here.recorder.connections) == 2


async def test_a_cancelled_wait_for_the_answer_closes_the_connection() -> None:
    async with side(Mode("stall")) as here:
        task = asyncio.create_task(here.complete())
        await here.recorder.until(lambda: len(here.recorder.requests) == 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.wait_for(here.recorder.connections[0].closed.wait(), 5)


async def test_closing_twice_is_fine() -> None:
    async with side() as here:
        await here.complete()
        await here.gate.close()
        await here.gate.close()
