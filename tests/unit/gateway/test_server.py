"""The route behind the real server: uvicorn, uvloop and real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from pathlib import Path

import httpx
import msgspec
import pytest
import uvloop

from tests.unit.gateway import tls
from tests.unit.gateway.fakes import chat_body, hello
from tests.unit.gateway.served import response_of, running
from weighbridge.gateway import protocol
from weighbridge.gateway.listening import SEND_BUFFER_BYTES
from weighbridge.gateway.protocol import MAX_HEAD_BYTES
from weighbridge.router.admitted import Admitted, ClientGone, Sink


@pytest.fixture
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    return uvloop.EventLoopPolicy()


async def test_stream_and_document_come_through() -> None:
    async with running() as here, httpx.AsyncClient(trust_env=False) as client:
        whole = await client.post(here.url, content=chat_body())
        assert (whole.status_code, whole.json()) == (200, {"a": 1})
        assert whole.headers["x-weighbridge-request-id"] == "id-1"
        assert "server" not in whole.headers
        stream = await client.post(here.url, content=chat_body(stream=True))
        assert stream.text == 'data: {"a":1}\n\ndata: [DONE]\n\n'


async def test_a_connection_is_used_on_after_errors() -> None:
    async with running() as here:
        reader, writer = await here.open()
        for body, status in [
            (b"{", 400),
            (chat_body(model="none"), 404),
            (b"x" * 5000, 413),
            (chat_body(messages=[]), 400),
        ]:
            writer.write(here.request(body))
            got, headers, _ = await response_of(reader)
            assert (got, headers.get("connection")) == (status, None)
        writer.write(here.request(chat_body()))
        assert b" 200 " in await reader.readline()
        writer.close()
        assert len(here.dispatch.requests) == 1


async def test_a_body_over_the_limit_is_refused_before_it_is_sent() -> None:
    async with running() as here:
        reader, writer = await here.open()
        head = here.request(b"", "Expect: 100-continue").replace(
            b"Content-Length: 0", b"Content-Length: 999999999"
        )
        writer.write(head)
        status, headers, body = await response_of(reader)
        assert (status, headers["connection"]) == (413, "close")
        assert msgspec.json.decode(body)["error"]["code"] == "request_too_large"
        assert await reader.read() == b""
        writer.close()


async def test_a_chunked_body_is_cut_off_at_the_limit() -> None:
    async with running() as here:
        reader, writer = await here.open()
        writer.write(
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{here.port}\r\n".encode()
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + b"800\r\n"
            + b"x" * 0x800
            + b"\r\n"
            + b"801\r\n"
            + b"x" * 0x801
            + b"\r\n"
        )
        status, headers, _ = await response_of(reader)
        assert (status, headers["connection"]) == (413, "close")
        writer.close()


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
async def test_other_methods_are_405_with_allow(method: str) -> None:
    async with running() as here, httpx.AsyncClient(trust_env=False) as client:
        response = await client.request(method, here.url)
        assert (response.status_code, response.headers["allow"]) == (405, "POST")
        if method != "HEAD":
            assert response.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("stream", [True, False])
async def test_closing_the_socket_cancels_the_work_within_a_second(stream: bool) -> None:
    async def working(request: Admitted, sink: Sink) -> None:
        if request.stream:
            await sink.start(200, [])
            await sink.write(b"data: 1\n\n")
        await asyncio.Event().wait()

    async with running(working) as here:
        reader, writer = await here.open()
        writer.write(here.request(chat_body(stream=stream)))
        await here.dispatch.began.wait()
        if stream:
            await reader.readuntil(b"data: 1")
        writer.close()
        async with asyncio.timeout(1):
            await here.dispatch.ended.wait()
        assert here.dispatch.ends == ["CancelledError"]


@pytest.mark.parametrize("size", [100_000, 150_000, 250_000])
async def test_closing_the_socket_is_noticed_after_a_large_body_that_came_at_once(size: int) -> None:
    async def working(request: Admitted, sink: Sink) -> None:
        await asyncio.Event().wait()

    async with running(working, max_body_bytes=1 << 20) as here:
        reader, writer = await here.open()
        request = here.request(chat_body(user="x" * size), "Expect: 100-continue")
        head, _, body = request.partition(b"\r\n\r\n")
        writer.write(head + b"\r\n\r\n")
        # Now the route waits for the body.
        await reader.readuntil(b"100 Continue\r\n\r\n")
        writer.write(body)
        await here.dispatch.began.wait()
        writer.close()
        async with asyncio.timeout(1):
            await here.dispatch.ended.wait()
        assert here.dispatch.ends == ["CancelledError"]


async def test_a_reader_who_stops_reading_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    sent = 0

    async def pours(request: Admitted, sink: Sink) -> None:
        nonlocal sent
        await sink.start(200, [])
        while True:
            await sink.write(b"x" * 8192)
            sent += 8192

    async def until_gone(request: Admitted, sink: Sink) -> None:
        with pytest.raises(ClientGone) as caught:
            await pours(request, sink)
        assert caught.value.code == "slow_reader"

    with caplog.at_level(logging.DEBUG, logger="uvicorn"):
        async with running(until_gone, slow_reader_timeout_s=0.2) as here:
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(client, ("127.0.0.1", here.port))
                await loop.sock_sendall(client, here.request(chat_body(stream=True)))
                async with asyncio.timeout(5):
                    await here.dispatch.ended.wait()
                    while here.underway.count or here.server.server_state.connections:
                        await asyncio.sleep(0.01)
                assert here.dispatch.ends == ["ok"]
                assert here.slow_readers.value == 1
    # Bounded: our kernel buffer, the transport's, and what the caller's kernel took.
    assert sent < 16 * SEND_BUFFER_BYTES
    assert "without completing" not in caplog.text


async def test_an_answer_that_breaks_off_is_cut_not_ended(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(request: Admitted, sink: Sink) -> None:
        await sink.start(200, [])
        await sink.write(b"data: 1\n\n")
        raise RuntimeError("planted-text")

    async with running(breaks) as here, httpx.AsyncClient(trust_env=False) as client:
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            await client.post(here.url, content=chat_body(stream=True))
    assert "planted" not in caplog.text


async def test_no_exception_reaches_the_servers_log_with_its_text(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as here, httpx.AsyncClient(trust_env=False) as client:
        response = await client.get(f"http://127.0.0.1:{here.port}/other")
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
    assert "RuntimeError" in caplog.text
    assert "planted" not in caplog.text


async def test_shutdown_lets_an_answer_finish_and_refuses_new_connections() -> None:
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
        await reader.readuntil(b"first ")
        here.server.should_exit = True
        while not here.underway.draining:
            await asyncio.sleep(0.01)
        with pytest.raises(OSError):
            await here.open()
        go.set()
        rest_of_it = await reader.read()
        assert b"last" in rest_of_it
        assert rest_of_it.endswith(b"0\r\n\r\n")
        writer.close()
        async with asyncio.timeout(5):
            await here.ended


async def test_shutdown_cuts_what_is_not_done_at_the_limit() -> None:
    async def endless(request: Admitted, sink: Sink) -> None:
        await sink.start(200, [])
        await sink.write(b"data: 1\n\n")
        await asyncio.Event().wait()

    async with running(endless, drain_s=0.05) as here:
        reader, writer = await here.open()
        writer.write(here.request(chat_body(stream=True)))
        await reader.readuntil(b"data: 1")
        here.server.should_exit = True
        rest_of_it = await reader.read()
        assert b"shutting_down" in rest_of_it
        assert b"[DONE]" not in rest_of_it
        writer.close()
        async with asyncio.timeout(5):
            await here.ended
        assert here.dispatch.ends == ["CancelledError"]


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with running() as here:
        reader, writer = await here.open()
        writer.write(here.request(b"{") + here.request(chat_body(model="none")) + here.request(b"["))
        assert [(await response_of(reader))[0] for _ in range(3)] == [400, 404, 400]
        writer.close()


async def test_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_text(tls.CERTIFICATE)
    key.write_text(tls.KEY)
    async with running(tls=(certificate, key)) as here:
        trust = ssl.create_default_context(cafile=str(certificate))
        async with httpx.AsyncClient(trust_env=False, verify=trust) as client:
            answer = await client.post(here.url.replace("http:", "https:"), content=chat_body())
            assert (answer.status_code, answer.json()) == (200, {"a": 1})


@pytest.mark.parametrize(
    "endless", [b"x: " + b"y" * 2048, b"x: y\r\n" * 256], ids=["one header", "many headers"]
)
async def test_endless_headers_are_cut_off(endless: bytes) -> None:
    async with running() as here:
        reader, writer = await here.open()
        writer.write(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof() and sent < 64 * MAX_HEAD_BYTES:
                writer.write(endless if sent == 0 or endless.endswith(b"\n") else endless[3:])
                sent += len(endless)
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()
        assert sent < 64 * MAX_HEAD_BYTES


async def test_large_headers_within_the_bound_are_taken() -> None:
    async with running() as here, httpx.AsyncClient(trust_env=False) as client:
        for _ in range(3):
            answer = await client.post(
                here.url, content=chat_body(), headers={"x": "y" * (MAX_HEAD_BYTES // 2)}
            )
            assert answer.status_code == 200


@pytest.mark.parametrize("sent", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nhost"])
async def test_a_connection_without_a_request_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.05)
    async with running() as here:
        reader, writer = await here.open()
        writer.write(sent)
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_a_second_request_that_stops_halfway_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.05)
    async with running() as here:
        reader, writer = await here.open()
        writer.write(here.request(b"{"))
        assert (await response_of(reader))[0] == 400
        writer.write(b"POST /v1/chat")
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_the_head_timer_does_not_end_a_request_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.05)

    async def slow(request: Admitted, sink: Sink) -> None:
        await asyncio.sleep(0.2)
        await hello(request, sink)

    async with running(slow) as here, httpx.AsyncClient(trust_env=False) as client:
        assert (await client.post(here.url, content=chat_body())).status_code == 200
