"""Everything a provider can do wrong, before and after the first event."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from typing import Any

import pytest

from tests.support.recorder import (
    CUT,
    ERROR_EVENT,
    MALFORMED,
    NOT_JSON,
    RESET,
    STALL,
    STALL_BODY,
    STATUS_429,
    STATUS_500,
    Mode,
    delay,
    slow,
    status,
)
from tests.unit.commercial.harness import Side, masked, side, text_of
from weighbridge.commercial.errors import UpstreamFailed, UpstreamRefused

pytestmark = pytest.mark.slow

PATIENT = {"connect_s": 5, "headers_s": 10, "first_token_s": 10, "document_s": 10, "gap_s": 10, "total_s": 20}
QUICK = {**PATIENT, "headers_s": 0.3, "first_token_s": 0.3, "document_s": 0.3, "gap_s": 0.3}


async def failure(here: Side, stream: bool, seconds: float = 20) -> tuple[UpstreamFailed, int]:
    """How it failed, and how many events came before."""
    seen = 0
    with pytest.raises(UpstreamFailed) as failed:
        if stream:
            async for _ in here.stream(seconds=seconds):
                seen += 1
        else:
            await here.complete(seconds=seconds)
    assert "provider text" not in str(failed.value)
    assert failed.value.__cause__ is None
    assert failed.value.__context__ is None or failed.value.__suppress_context__
    return failed.value, seen


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("mode", "kind", "code", "wait"),
    [
        (STATUS_500, "status", 500, None),
        (STATUS_429, "status", 429, 7.0),
        (status(503, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"), "status", 503, 0.0),
        (status(502, b"<html>", retry_after="soon"), "status", 502, None),
        (status(204, b""), "status", 204, None),
        (RESET, "reset", None, None),
        (STALL, "stall", None, None),
        (STALL_BODY, "stall", None, None),
        (NOT_JSON, "malformed", None, None),
        (Mode("status", status=200, body=b"[]"), "malformed", None, None),
        (Mode("status", status=200, body=b'{"choices": []}'), "malformed", None, None),
    ],
)
async def test_faults_before_any_answer(
    mode: Mode, kind: str, code: int | None, wait: float | None, stream: bool
) -> None:
    async with side(mode, **(QUICK if kind == "stall" else PATIENT)) as here:
        failed, seen = await failure(here, stream)
        assert (failed.kind, failed.status, failed.retry_after_s, seen) == (kind, code, wait, 0)
        assert len(here.recorder.requests) == 1


@pytest.mark.parametrize(
    ("mode", "kind", "seen"),
    [
        (CUT, "cut", 3),
        (MALFORMED, "malformed", 3),
        (ERROR_EVENT, "status", 3),
        (Mode("cut", after=0), "cut", 1),
    ],
)
async def test_faults_in_the_middle_of_a_stream(mode: Mode, kind: str, seen: int) -> None:
    async with side(mode, **PATIENT) as here:
        failed, came = await failure(here, stream=True)
        assert (failed.kind, came) == (kind, seen)
        assert not here.meter.exact or here.meter.completion == 0
        here.recorder.mode = Mode()
        assert text_of(await here.events()).startswith("You said")


@pytest.mark.parametrize(("mode", "kind"), [(CUT, "cut"), (MALFORMED, "malformed"), (ERROR_EVENT, "status")])
async def test_faults_in_a_document(mode: Mode, kind: str) -> None:
    async with side(mode, **PATIENT) as here:
        failed, _ = await failure(here, stream=False)
        assert failed.kind == kind


@pytest.mark.parametrize("stream", [False, True])
async def test_nobody_listens(stream: bool) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        async with side(port=held.getsockname()[1], **PATIENT) as here:
            assert (await failure(here, stream))[0].kind == "connect"
            assert len(here.journal.rows) == 1


async def test_a_connection_that_is_never_accepted_ends_with_the_connect_limit() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        began = time.monotonic()
        limits = {**PATIENT, "connect_s": 0.2}
        async with side(port=full.getsockname()[1], **limits) as here:
            assert (await failure(here, stream=True))[0].kind == "connect"
        assert time.monotonic() - began < 5
        for one in crowd:
            one.close()


async def test_the_limit_for_the_head_counts_from_the_sent_request() -> None:
    async with side(STALL, connect_s=30, headers_s=0.2, first_token_s=30, gap_s=30) as here:
        began = time.monotonic()
        assert (await failure(here, stream=True))[0].kind == "stall"
        assert 0.15 < time.monotonic() - began < 3


async def test_each_limit_is_its_own() -> None:
    async with side(slow(150), headers_s=5, first_token_s=5, gap_s=0.05) as here:
        failed, seen = await failure(here, stream=True)
        assert (failed.kind, seen) == ("stall", 2)
    async with side(slow(20), headers_s=0.5, first_token_s=0.5, gap_s=0.5) as here:
        # Longer in all than either limit: neither is a limit on the whole.
        here.recorder.mode = Mode(slow_ms=60, reply="x" * 48)
        assert len(await here.events()) == 15


@pytest.mark.parametrize("by", ["total", "deadline"])
async def test_the_total_limit_and_the_deadline_end_a_stream_that_goes_on(by: str) -> None:
    async with side(Mode(slow_ms=50, reply="x" * 400), total_s=0.8 if by == "total" else 30) as here:
        failed, seen = await failure(here, stream=True, seconds=0.8 if by == "deadline" else 30)
        assert failed.kind == "timeout"
        assert seen > 1


async def test_a_deadline_that_has_passed_opens_no_connection() -> None:
    async with side() as here:
        failed, _ = await failure(here, stream=True, seconds=0)
        assert failed.kind == "timeout"
        assert here.recorder.connections == []


async def test_the_deadline_ends_the_wait_for_a_late_answer() -> None:
    async with side(delay(5_000)) as here:
        failed, _ = await failure(here, stream=False, seconds=0.2)
        assert failed.kind == "timeout"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("code", "ours", "type_"),
    [
        (400, 400, "invalid_request_error"),
        (413, 413, "invalid_request_error"),
        (422, 422, "invalid_request_error"),
        (401, 502, "server_error"),
        (403, 502, "server_error"),
        (404, 502, "server_error"),
    ],
)
async def test_a_refusal_names_the_code_and_nothing_else(
    code: int, ours: int, type_: str, stream: bool
) -> None:
    async with side(status(code), **PATIENT) as here:
        with pytest.raises(UpstreamRefused) as refused:
            await (here.events if stream else here.complete)()
        error = refused.value
        assert (error.status, error.type, error.upstream_status) == (ours, type_, code)
        assert error.upstream_code == "invalid_value"
        assert "provider text" not in f"{error} {error.message} {error.__cause__} {error.__context__}"
        assert error.code == ("invalid_value" if ours == code else "upstream_refused")


@pytest.mark.parametrize(
    "code", ["010-1234-5678", "User said hello", "x" * 80, "01012345678", 400, None, ["a"], "", "a\nb"]
)
async def test_a_code_that_is_no_plain_word_is_not_repeated(code: Any) -> None:
    body = json.dumps({"error": {"message": "provider text", "code": code}}).encode()
    async with side(status(400, body)) as here:
        with pytest.raises(UpstreamRefused) as refused:
            await here.complete()
        assert refused.value.upstream_code is None
        assert refused.value.code == "upstream_refused"
        assert refused.value.message == "The commercial API refused the request (HTTP 400)."


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error": "no"}', b"x" * 200_000])
async def test_a_refusal_in_any_other_form(body: bytes) -> None:
    async with side(status(400, body)) as here:
        with pytest.raises(UpstreamRefused) as refused:
            await here.complete()
        assert refused.value.upstream_code is None


async def _serve(answer: bytes, **settings: Any) -> list[str]:
    """The kinds of failure, whole and streamed, of an endpoint that sends these bytes and closes."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    kinds = []
    async with side(port=server.sockets[0].getsockname()[1], **{**PATIENT, **settings}) as here:
        for stream in (False, True):
            kinds.append((await failure(here, stream))[0].kind)
    server.close()
    return kinds


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n"


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        (b"", ["reset", "reset"]),
        (b"SSH-2.0-OpenSSH\r\n\r\n", ["malformed", "malformed"]),
        (b"HTTP/1.1 999999 x\r\n\r\n", ["malformed", "malformed"]),
        (HEAD + b"content-length: 500\r\n\r\nshort", ["cut", "cut"]),
        (HEAD + b"content-length: -5\r\n\r\n", ["malformed", "malformed"]),
        (HEAD + b"transfer-encoding: chunked\r\n\r\nZZ\r\nxx", ["malformed", "malformed"]),
        (HEAD + b"content-encoding: gzip\r\ncontent-length: 5\r\n\r\nplain", ["cut", "cut"]),
        (HEAD + b"\r\n", ["malformed", "cut"]),
        (HEAD + b"\r\ndata: [DONE]\n\n", ["malformed", "cut"]),
        (HEAD + b"\r\ndata: 7\n\n", ["malformed", "malformed"]),
        (HEAD + b"\r\ndata: \xff\xfe\n\n", ["malformed", "malformed"]),
        (
            HEAD + b'\r\ndata: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n',
            ["malformed", "cut"],
        ),
    ],
)
async def test_endpoints_that_speak_something_else(answer: bytes, kinds: list[str]) -> None:
    assert await _serve(answer) == kinds


async def test_an_event_without_end_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weighbridge.commercial.coming.MAX_EVENT_BYTES", 1000)
    monkeypatch.setattr("weighbridge.commercial.gate.MAX_DOCUMENT_BYTES", 1000)
    assert await _serve(HEAD + b"\r\ndata: " + b"x" * 5000) == ["malformed", "malformed"]


async def test_one_choice_of_two_is_not_the_whole_answer() -> None:
    one = b'\r\ndata: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + one)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with side(port=server.sockets[0].getsockname()[1], **PATIENT) as here:
        assert len(await here.events()) == 1
        with pytest.raises(UpstreamFailed) as failed:
            await here.events(masked(stream=True, n=2))
        assert failed.value.kind == "cut"
    server.close()
