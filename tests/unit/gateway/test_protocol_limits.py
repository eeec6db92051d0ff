"""What one connection may cost, and heads and bodies that two servers could read in two ways."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest
import uvloop

from tests.support.raw_http import exchange
from tests.unit.gateway.fakes import chat_body
from tests.unit.gateway.served import Running, response_of, running
from weighbridge.gateway import protocol
from weighbridge.gateway.framing import MAX_HEAD_BYTES, MAX_HEADERS, MAX_TARGET_BYTES
from weighbridge.gateway.protocol import MAX_PIPELINED, SPARE_BODY_BYTES, ConnectionLimits

pytestmark = pytest.mark.slow

BODY = chat_body()
HOST = b"Host: 127.0.0.1\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
SIZED = b"Content-Length: %d\r\n" % len(BODY)
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
LAST = POST + SIZED + b"Connection: close\r\n\r\n" + BODY
"""A sound request behind the other one: on a connection that is in doubt it must get no answer."""


@pytest.fixture
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    return uvloop.EventLoopPolicy()


AMBIGUOUS = {
    "length and chunks": POST + SIZED + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS,
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\n" + SIZED + b"\r\n" + CHUNKS,
    "two equal lengths": POST + SIZED * 2 + b"\r\n" + BODY,
    "two lengths": POST + SIZED + b"Content-Length: 3\r\n\r\n" + BODY,
    "a list of lengths": POST + b"Content-Length: 3, 3\r\n\r\n" + BODY,
    "a signed length": POST + b"Content-Length: +3\r\n\r\n" + BODY,
    "a length in hexadecimals": POST + b"Content-Length: 0x3\r\n\r\n" + BODY,
    "a length with a gap": POST + b"Content-Length: 1 0\r\n\r\n" + BODY,
    "no length": POST + b"Content-Length: \r\n\r\n" + BODY,
    "a length beyond all bounds": POST + b"Content-Length: 99999999999999999999999\r\n\r\n" + BODY,
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKS,
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n" + CHUNKS,
    "chunked, then another": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNKS,
    "another, then chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKS,
    "another line, then chunked": POST
    + b"Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    + CHUNKS,
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n" + CHUNKS,
    "a vertical tab": POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + CHUNKS,
    "a coding after a space": POST + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNKS,
    "a length after a space": POST + b"Content-Length : 3\r\n\r\n" + BODY,
    "a folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNKS,
    "a folded header": POST + b"X: a\r\n b\r\n" + SIZED + b"\r\n" + BODY,
    "a line before the first": b"POST / HTTP/1.1\r\n X: y\r\n" + HOST + SIZED + b"\r\n" + BODY,
    "bare line feeds": (POST + SIZED + b"\r\n").replace(b"\r\n", b"\n") + BODY,
    "one bare line feed": POST + b"X: y\n" + SIZED + b"\r\n" + BODY,
    "a bare carriage return": POST + b"X: y\rZ: a\r\n" + SIZED + b"\r\n" + BODY,
    "a zero byte": POST + b"X: a\x00b\r\n" + SIZED + b"\r\n" + BODY,
    "a header without name": POST + b": a\r\n" + SIZED + b"\r\n" + BODY,
    "a header without colon": POST + b"abc\r\n" + SIZED + b"\r\n" + BODY,
    "two hosts": POST + b"Host: other.example\r\n" + SIZED + b"\r\n" + BODY,
    "no host": POST.replace(HOST, b"") + SIZED + b"\r\n" + BODY,
    "another host in the address": POST.replace(b" /", b" http://other.example/") + SIZED + b"\r\n" + BODY,
    "chunks with HTTP/1.0": CHUNKED.replace(b"/1.1", b"/1.0") + CHUNKS,
    "a chunk of 0x": CHUNKED + b"0x" + CHUNKS,
    "a signed chunk": CHUNKED + b"+" + CHUNKS,
    "a chunk after a space": CHUNKED + b" " + CHUNKS,
    "a chunk of all bits": CHUNKED + b"1%016x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n",
    "a chunk ended by a line feed": CHUNKED + CHUNKS.replace(b"\r\n", b"\n", 1),
    "a chunk longer than said": CHUNKED + b"3\r\n" + BODY + b"\r\n0\r\n\r\n",
    "an extension with a line feed": CHUNKED + CHUNKS.replace(b"\r\n", b";a\n", 1),
    "a length in a trailer": CHUNKED + CHUNKS[:-2] + b"Content-Length: 5\r\n\r\n",
    "a coding in a trailer": CHUNKED + CHUNKS[:-2] + b"Transfer-Encoding: chunked\r\n\r\n",
}


@pytest.mark.parametrize("apart", [False, True])
async def test_what_can_be_read_in_two_ways_is_refused_and_nothing_after_it_answered(apart: bool) -> None:
    async with running() as here:
        for name, sent in AMBIGUOUS.items():
            pieces = [bytes([byte]) for byte in sent] if apart and len(sent) < 400 else [sent]
            heard = await exchange(here.port, *pieces, LAST)
            assert heard.closed, name
            assert [answer.status for answer in heard.answers] == [400], name
            assert heard.answers[0].error["code"] == "invalid_http", name
            assert heard.rest == b"", name
        assert here.dispatch.requests == []


SOUND = {
    "tabs around a length": POST + b"Content-Length:\t%d \t\r\n\r\n" % len(BODY) + BODY,
    "another case": POST + b"TRANSFER-ENCODING: ChUnKeD\r\n\r\n" + CHUNKS,
    "zeros before a chunk's size": CHUNKED + b"000" + CHUNKS,
    "an extension": CHUNKED + CHUNKS.replace(b"\r\n", b';a=b;c="d"\r\n', 1),
    "a trailer": CHUNKED + CHUNKS[:-2] + b"X-Weighbridge-Priority: none of ours\r\n\r\n",
    "empty lines before": b"\r\n\r\n" + POST + SIZED + b"\r\n" + BODY,
}


async def test_what_is_merely_unusual_is_answered_once_and_the_connection_used_on() -> None:
    async with running() as here:
        for name, sent in SOUND.items():
            heard = await exchange(here.port, sent + LAST)
            assert [answer.status for answer in heard.answers] == [200, 200], name
            assert heard.rest == b"", name


TOO_MUCH = {
    "headers": (431, "headers_too_large", POST + b"x: y\r\n" * MAX_HEADERS + b"\r\n"),
    "a header": (431, "headers_too_large", POST + b"x: " + b"y" * MAX_HEAD_BYTES + b"\r\n\r\n"),
    "an address": (
        414,
        "uri_too_long",
        b"GET /" + b"a" * MAX_TARGET_BYTES + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    ),
    "HTTP/2": (505, "http_version_not_supported", b"GET / HTTP/2.0\r\n" + HOST + b"\r\n"),
    "HTTP/0.9": (505, "http_version_not_supported", b"GET /\r\n\r\n"),
    "an extension": (
        400,
        "invalid_http",
        CHUNKED + b"3;" + b"a" * (SPARE_BODY_BYTES * 8) + b"\r\nabc\r\n0\r\n\r\n",
    ),
    "trailers": (400, "invalid_http", CHUNKED + CHUNKS[:-2] + b"a: b\r\n" * SPARE_BODY_BYTES + b"\r\n"),
}


@pytest.mark.parametrize(("status", "code", "sent"), TOO_MUCH.values(), ids=TOO_MUCH.keys())
async def test_too_much_of_it_is_refused(status: int, code: str, sent: bytes) -> None:
    async with running() as here:
        reader, writer = await here.open()
        writer.write(sent)
        got, headers, body = await response_of(reader)
        assert (got, headers["connection"]) == (status, "close")
        assert msgspec.json.decode(body)["error"]["code"] == code
        writer.close()
        assert here.dispatch.requests == []


async def test_small_chunks_are_taken_where_they_carry_something() -> None:
    async with running() as here:
        body = chat_body(user="u" * 3000)
        chunks = b"".join(b"8\r\n%b\r\n" % body[at : at + 8] for at in range(0, len(body) // 8 * 8, 8))
        rest = body[len(body) // 8 * 8 :]
        tail = b"%x\r\n%b\r\n" % (len(rest), rest) if rest else b""
        heard = await exchange(here.port, CHUNKED, chunks, tail + b"0\r\n\r\n" + LAST)
        assert [answer.status for answer in heard.answers] == [200, 200]


async def test_requests_in_a_row_are_bounded() -> None:
    go = asyncio.Event()

    async def waits(request: object, sink: object) -> None:
        await go.wait()
        await sink.start(200, [(b"content-length", b"2")])  # type: ignore[attr-defined]
        await sink.write(b"ok")  # type: ignore[attr-defined]
        await sink.end()  # type: ignore[attr-defined]

    async with running(waits) as here:
        heard = asyncio.ensure_future(exchange(here.port, (POST + SIZED + b"\r\n" + BODY) * 200))
        await here.dispatch.began.wait()
        go.set()
        answers = (await heard).answers
    assert [answer.status for answer in answers] == [200] * (MAX_PIPELINED + 1) + [400]
    assert len(here.dispatch.requests) == MAX_PIPELINED + 1


async def test_one_connection_too_many_is_told_to_come_again() -> None:
    reasons: list[str] = []
    async with running(limits=ConnectionLimits(most=2, refused=reasons.append)) as here:
        kept = [await here.open() for _ in range(2)]
        for _, writer in kept:
            writer.write(here.request(b"{"))
        for reader, _ in kept:
            assert (await response_of(reader))[0] == 400
        heard = await exchange(here.port, LAST)
        assert [answer.status for answer in heard.answers] == [503]
        assert heard.answers[0].error["code"] == "gateway_busy"
        assert heard.answers[0].headers["retry-after"] == "1"
        assert reasons == ["connections"]
        assert here.dispatch.requests == []
        kept[0][1].close()
        await gone(here, 1)
        assert [answer.status for answer in (await exchange(here.port, LAST)).answers] == [200]
        kept[1][1].close()


async def gone(here: Running, left: int) -> None:
    async with asyncio.timeout(5):
        while len(here.server.server_state.connections) > left:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"\r\n" * 50], ids=["nothing", "a line end", "line ends"])
async def test_an_idle_connection_is_closed_whatever_was_sent_between_requests(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as here:
        here.server.config.timeout_keep_alive = 0.1  # type: ignore[assignment]
        reader, writer = await here.open()
        writer.write(here.request(b"{"))
        assert (await response_of(reader))[0] == 400
        writer.write(sent)
        await closed(reader)
        writer.close()


async def test_a_connection_whose_body_was_thrown_away_is_idle_afterwards() -> None:
    async with running() as here:
        here.server.config.timeout_keep_alive = 0.1  # type: ignore[assignment]
        reader, writer = await here.open()
        writer.write(b"GET /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")
        assert (await response_of(reader))[0] == 405
        writer.write(b"abc")
        await closed(reader)
        writer.close()


async def closed(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""


async def test_an_answer_that_nobody_takes_does_not_hold_its_connection() -> None:
    """One outside of the completions, which have a limit of their own."""
    big = b"x" * 8_000_000

    async with running(limits=ConnectionLimits(stalled_s=0.1), answer=big) as here:
        for close in (b"", b"Connection: close\r\n"):
            _, writer = await here.open()
            writer.write((b"GET /big HTTP/1.1\r\n" + HOST + close + b"\r\n") * 3)
            async with asyncio.timeout(5):
                while not here.server.server_state.connections:
                    await asyncio.sleep(0.005)
            await gone(here, 0)
            writer.close()


async def test_the_last_of_an_answer_does_not_hold_a_closed_connection() -> None:
    """Too little to be pressed back for, as it stands in the buffer of a connection that has been closed."""
    async with running(limits=ConnectionLimits(stalled_s=0.1), answer=b"x" * 8_000_000) as here:
        _, writer = await here.open()
        async with asyncio.timeout(5):
            while not here.server.server_state.connections:
                await asyncio.sleep(0.005)
        (connection,) = here.server.server_state.connections
        connection.transport.set_write_buffer_limits(high=1 << 30)  # type: ignore[union-attr]
        writer.write(b"GET /big HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        await gone(here, 0)
        writer.close()


async def test_an_answer_that_is_taken_slowly_comes_whole() -> None:
    big = b"x" * 3_000_000
    async with running(limits=ConnectionLimits(stalled_s=0.3), answer=big) as here:
        reader, writer = await here.open()
        writer.write(b"GET /big HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        got = 0
        await reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(30):
            while piece := await reader.read(200_000):
                got += len(piece)
                await asyncio.sleep(0.05)
        assert got == len(big)
        writer.close()


async def test_the_head_has_a_limit_of_time_that_dribbling_does_not_stretch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.2)
    async with running() as here:
        reader, writer = await here.open()
        began = asyncio.get_running_loop().time()
        with contextlib.suppress(ConnectionError):
            for byte in POST + b"x: " + b"y" * 10_000:
                if reader.at_eof():
                    break
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - began < 5
        writer.close()
