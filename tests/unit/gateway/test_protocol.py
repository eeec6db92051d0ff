"""What the server does with bytes that are not one plain HTTP/1.1 request after another."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest
import uvloop

from tests.unit.gateway.fakes import chat_body
from tests.unit.gateway.served import Running, response_of, running
from weighbridge.gateway import protocol
from weighbridge.router.admitted import Admitted, Sink

pytestmark = pytest.mark.slow


@pytest.fixture
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    return uvloop.EventLoopPolicy()


def refused(answer: tuple[int, dict[str, str], bytes]) -> str:
    """The id of the refusal, checked whole."""
    status, headers, body = answer
    assert (status, headers["connection"]) == (400, "close")
    assert headers["content-type"] == "application/json"
    error = msgspec.json.decode(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == "invalid_http"
    return headers["x-weighbridge-request-id"]


UPGRADES = {
    "h2c": (
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA",
    ),
    "websocket": ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    "repeated": ("connection: keep-alive", "UPGRADE: h2c", "upgrade: x", "Connection: upgrade"),
}


@pytest.mark.parametrize("headers", UPGRADES.values(), ids=UPGRADES.keys())
@pytest.mark.parametrize("apart", [False, True])
async def test_an_upgrade_is_ignored_and_the_body_read(headers: tuple[str, ...], apart: bool) -> None:
    async with running() as here:
        reader, writer = await here.open()
        inside = here.request(chat_body())
        whole = here.request(b'{"a":"' + inside.replace(b'"', b"'") + b'"}', *headers)
        head, end, body = whole.partition(b"\r\n\r\n")
        if apart:
            writer.write(head + end)
            while not here.underway.count:
                await asyncio.sleep(0.01)
            writer.write(body)
        else:
            writer.write(whole)
        # The body holds a request; it must be read as a body, which is no good, and never as a request.
        assert (await response_of(reader))[0] == 400
        good = here.request(chat_body(), *headers)
        writer.write(good + good + here.request(b"{"))
        pieces = [await reader.readuntil(b"0\r\n\r\n") for _ in range(2)]
        assert all(b'{"a":1}' in piece for piece in pieces)
        assert (await response_of(reader))[0] == 400
        assert len(here.dispatch.requests) == 2
        writer.close()


async def test_an_upgrade_leaves_a_chunked_body_chunked() -> None:
    async with running() as here:
        reader, writer = await here.open()
        body = chat_body()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{here.port}\r\nUpgrade: h2c\r\n"
        chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        writer.write(head.encode() + b"Connection: upgrade\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        assert b" 200 " in await reader.readline()
        writer.close()


NOT_HTTP = {
    "garbage": b"GARBAGE\r\n\r\n",
    "tunnel": b"CONNECT other.example:443 HTTP/1.1\r\nHost: other.example\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01",
    "two framings": b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
    "not ASCII": "GET /가 HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
}


@pytest.mark.parametrize("sent", NOT_HTTP.values(), ids=NOT_HTTP.keys())
async def test_what_is_not_http_is_refused_as_json_and_the_connection_closed(sent: bytes) -> None:
    async with running() as here:
        reader, writer = await here.open()
        writer.write(sent + here.request(chat_body()))
        assert refused(await response_of(reader)) == "id-http"
        assert await reader.read() == b""
        assert here.dispatch.requests == []
        writer.close()


async def test_garbage_waits_for_the_good_requests_before_it(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as here:
        reader, writer = await here.open()
        writer.write(here.request(chat_body()) * 5 + b"GARBAGE\r\n\r\n" + here.request(chat_body()))
        for _ in range(5):
            assert b'{"a":1}' in await reader.readuntil(b"0\r\n\r\n")
        refused(await response_of(reader))
        assert await reader.read() == b""
        assert len(here.dispatch.requests) == 5
        writer.close()
    assert "unexpected" not in caplog.text


async def test_garbage_never_lands_inside_an_answer() -> None:
    go = asyncio.Event()

    async def waits(request: Admitted, sink: Sink) -> None:
        await sink.start(200, [])
        await sink.write(b"first ")
        await go.wait()
        await sink.write(b"last")
        await sink.end()

    async with running(waits) as here:
        reader, writer = await here.open()
        writer.write(here.request(chat_body(stream=True)))
        await reader.readuntil(b"first \r\n")
        writer.write(b"GARBAGE\r\n\r\n")
        await garbage_seen(here)
        go.set()
        assert await reader.readuntil(b"0\r\n\r\n") == b"4\r\nlast\r\n0\r\n\r\n"
        refused(await response_of(reader))
        writer.close()


async def garbage_seen(here: Running) -> None:
    (connection,) = here.server.server_state.connections
    while not connection._deaf:  # type: ignore[union-attr]
        await asyncio.sleep(0.01)


BROKEN = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"-1\r\nabc\r\n0\r\n\r\n",
)


@pytest.mark.parametrize("before", [0, 2])
async def test_a_body_that_breaks_its_framing_is_refused(
    before: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as here:
        reader, writer = await here.open()
        writer.write(here.request(b"{") * before + BROKEN[0])
        if not before:
            while not here.underway.count:
                await asyncio.sleep(0.01)
        writer.write(BROKEN[1])
        for _ in range(before):
            assert (await response_of(reader))[0] == 400
        refused(await response_of(reader))
        assert await reader.read() == b""
        writer.close()
        assert here.dispatch.requests == []
    assert "unexpected" not in caplog.text


async def test_leaving_ends_the_request_that_runs_though_more_are_queued() -> None:
    async def endless(request: Admitted, sink: Sink) -> None:
        await asyncio.Event().wait()

    async with running(endless) as here:
        _, writer = await here.open()
        writer.write(here.request(chat_body()) * 2)
        await here.dispatch.began.wait()
        writer.close()
        async with asyncio.timeout(5):
            await here.dispatch.ended.wait()
        assert here.dispatch.ends == ["CancelledError"]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_http_1_0_caller_gets_the_answer_without_chunks(stream: bool) -> None:
    async with running() as here:
        reader, writer = await here.open()
        writer.write(
            here.request(chat_body(stream=stream), "Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0")
        )
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head
        assert body == (b'data: {"a":1}\n\ndata: [DONE]\n\n' if stream else b'{"a":1}')
        writer.close()


async def test_an_http_1_0_caller_gets_declared_lengths_as_they_are() -> None:
    async with running() as here:
        reader, writer = await here.open()
        writer.write(here.request(b"{").replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert (await response_of(reader))[0] == 400
        assert await reader.read() == b""
        writer.close()


async def test_a_body_nobody_reads_may_not_dribble_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "UNREAD_BODY_TIMEOUT_S", 0.1)
    async with running() as here:
        reader, writer = await here.open()
        writer.write(b"GET /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n")
        assert (await response_of(reader))[0] == 405
        async with asyncio.timeout(5):
            try:
                while not reader.at_eof():
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(0.01)
            except ConnectionError:
                pass
        writer.close()


async def test_a_thrown_away_body_that_ends_in_time_keeps_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "UNREAD_BODY_TIMEOUT_S", 0.2)
    async with running() as here:
        reader, writer = await here.open()
        writer.write(b"GET /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
        assert (await response_of(reader))[0] == 405
        writer.write(b"abc")
        await asyncio.sleep(0.4)
        writer.write(here.request(b"{"))
        assert (await response_of(reader))[0] == 400
        writer.close()


async def test_a_refusal_is_logged_by_its_id_and_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        async with running() as here:
            reader, writer = await here.open()
            writer.write(b"PLANTED-TEXT\r\n\r\n")
            refused(await response_of(reader))
            writer.close()
    assert "request id-http: refused as HTTP" in caplog.text
    assert "PLANTED" not in caplog.text


async def test_a_cut_still_drops_a_connection_whose_answer_nobody_reads() -> None:
    """Bytes that are no request behind a running one must not shield it from being given up."""

    async def pours(request: Admitted, sink: Sink) -> None:
        await sink.start(200, [])
        while True:
            await sink.write(b"x" * 65536)

    async with running(pours, slow_reader_timeout_s=0.2) as here:
        _, writer = await here.open()
        writer.write(here.request(chat_body(stream=True)) + b"GARBAGE\r\n\r\n")
        async with asyncio.timeout(10):
            await here.dispatch.ended.wait()
            while here.underway.count or here.server.server_state.connections:
                await asyncio.sleep(0.01)
        writer.close()
