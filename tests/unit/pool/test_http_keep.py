"""Connections to a server of a tier: when one is used again, when never, and what of HTTP is understood."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from weighbridge.pool import http_connection, http_exchange, http_session
from weighbridge.pool.http_connection import Connection
from weighbridge.pool.http_exchange import Exchange, ExchangeLost, Session, open_session
from weighbridge.pool.http_session import Target

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

Serve = Callable[[int, int, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Answers one request that was read, given the numbers of its connection and of the request on it, from 1."""


class Server:
    """A server that the test writes, byte by byte."""

    port = 0

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self.connections = 0
        self.heads: list[bytes] = []
        self.open = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        number, requests = self.connections, 0
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                requests += 1
                await self._serve(number, requests, reader, writer)
                if writer.is_closing():
                    break
        self.open -= 1
        writer.close()


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[tuple[Server, Session]]:
    here = Server(serve)
    listener = await asyncio.start_server(here.take, "127.0.0.1", 0)
    here.port = listener.sockets[0].getsockname()[1]
    async with listener, open_session(()) as session:
        yield here, session


def answers(*pieces: bytes) -> Serve:
    """The same answer to every request, in pieces."""

    async def serve(_: int, __: int, ___: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)

    return serve


async def ask(here: Server, session: Session, *, keep: bool = True, over: bool = False) -> bytes:
    exchange = Exchange(session, b"", connect_s=5, idle_s=5, keep=keep)
    try:
        assert await exchange.send("GET", f"http://127.0.0.1:{here.port}/v1/x") == 200
        body = await exchange.read()
        if over:
            exchange.over()
        return body
    finally:
        exchange.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


async def test_a_connection_is_used_again_and_by_the_next_request_alone() -> None:
    async with serving(answers(OK)) as (here, session):
        for _ in range(3):
            assert await ask(here, session) == b"hi"
        assert here.connections == 1
        assert await asyncio.gather(ask(here, session), ask(here, session)) == [b"hi", b"hi"]
        assert here.connections == 2
    assert b"connection: keep-alive" in here.heads[0]


async def test_small_pieces_are_not_held_back() -> None:
    async with serving(answers(OK)) as (here, session):
        await ask(here, session)
        (connection,) = session._open
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_question_has_a_connection_of_its_own() -> None:
    async with serving(answers(OK)) as (here, session):
        await ask(here, session)
        await ask(here, session, keep=False)
        await ask(here, session, keep=False)
        assert here.connections == 3
        assert b"connection: close" in here.heads[1]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nhi",
        OK + b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nanswer",
        OK + b"garbage",
    ],
    ids=["closing", "old", "two answers", "garbage"],
)
async def test_a_connection_that_is_not_clean_is_not_used_again(answer: bytes) -> None:
    async with serving(answers(answer)) as (here, session):
        for _ in range(2):
            with suppress(ExchangeLost):
                assert await ask(here, session) == b"hi"
        assert here.connections == 2


async def test_what_comes_unasked_ends_an_idle_connection() -> None:
    async def serve(number: int, _: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()
        if number == 1:
            await asyncio.sleep(0.02)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged")

    async with serving(serve) as (here, session):
        assert await ask(here, session) == b"hi"
        await until(lambda: here.open == 0)
        assert await ask(here, session) == b"hi"
        assert here.connections == 2


async def test_a_connection_that_the_server_closed_meanwhile_costs_no_request() -> None:
    async def serve(
        _: int, requests: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if requests == 1:
            writer.write(OK)
        else:
            # It was about to close when the request came.
            writer.close()

    async with serving(serve) as (here, session):
        for _ in range(3):
            assert await ask(here, session) == b"hi"
        assert here.connections == 3


async def test_only_a_used_connection_that_was_lost_at_once_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def serve(
        number: int, requests: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if number == 1 and requests == 1:
            writer.write(OK)
        else:
            writer.close()

    async with serving(serve) as (here, session):
        await ask(here, session)
        monkeypatch.setattr(http_exchange, "_STALE_S", -1.0)
        with pytest.raises(ExchangeLost) as late:
            await ask(here, session)
        assert (late.value.kind, here.connections) == ("reset", 1)
        with pytest.raises(ExchangeLost) as fresh:
            await ask(here, session)
        assert (fresh.value.kind, here.connections) == ("reset", 2)


async def test_a_request_that_was_ended_meanwhile_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve(
        _: int, requests: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if requests == 1:
            writer.write(OK)
        else:
            writer.close()

    async with serving(serve) as (here, session):
        await ask(here, session)
        exchange = Exchange(session, b"", connect_s=5, idle_s=5, keep=True)
        drop = session.drop

        def drop_and_end(connection: Connection) -> None:
            monkeypatch.undo()
            exchange.end()
            drop(connection)

        monkeypatch.setattr(session, "drop", drop_and_end)
        with pytest.raises(ExchangeLost) as lost:
            await exchange.send("GET", f"http://127.0.0.1:{here.port}/")
        exchange.close()
        assert (lost.value.kind, here.connections) == ("ended", 1)


async def test_a_request_that_was_ended_as_its_connection_came_up_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(answers(OK)) as (here, session):
        exchange = Exchange(session, b"", connect_s=5, idle_s=5)
        connect = session.connect

        async def connect_and_end(target: Target, limit_s: float) -> Connection:
            connection = await connect(target, limit_s)
            exchange.end()
            return connection

        monkeypatch.setattr(session, "connect", connect_and_end)
        with pytest.raises(ExchangeLost) as lost:
            await exchange.send("GET", f"http://127.0.0.1:{here.port}/")
        exchange.close()
        await until(lambda: here.connections == 1 and here.open == 0)
        assert lost.value.kind == "ended" and not here.heads and not session._open


async def test_a_connection_whose_request_was_not_taken_whole_is_not_used_again() -> None:
    read = asyncio.Event()

    async def serve(_: int, __: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await writer.drain()
        await read.wait()

    async with serving(serve) as (here, session):
        for _ in range(2):
            exchange = Exchange(session, b"", connect_s=5, idle_s=5, keep=True)
            await exchange.send("POST", f"http://127.0.0.1:{here.port}/", b"x" * 16_000_000)
            assert await exchange.read() == b"hi"
            exchange.close()
        assert here.connections == 2
        read.set()


async def test_an_answer_that_has_begun_is_never_asked_for_again() -> None:
    async def serve(
        _: int, requests: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(OK if requests == 1 else b"HTTP/1.1 200 OK\r\ncontent-le")
        if requests == 2:
            writer.close()

    async with serving(serve) as (here, session):
        await ask(here, session)
        with pytest.raises(ExchangeLost):
            await ask(here, session)
        assert here.connections == 1


async def test_idle_and_old_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answers(OK)) as (here, session):
        monkeypatch.setattr(http_session, "_IDLE_S", 0.05)
        await ask(here, session)
        await until(lambda: here.open == 0)
        monkeypatch.setattr(http_session, "_IDLE_S", 5.0)
        monkeypatch.setattr(http_session, "_AGE_S", 0.0)
        await ask(here, session)
        await until(lambda: here.open == 0)
        assert here.connections == 2


async def test_a_session_that_closes_leaves_no_connection() -> None:
    async with serving(answers(OK)) as (here, session):
        await ask(here, session)
        assert here.open == 1
        await session.close()
        await until(lambda: here.open == 0)
        with pytest.raises(ExchangeLost) as lost:
            await ask(here, session)
        assert lost.value.kind == "ended"


async def test_the_last_bytes_of_an_answer_that_is_over_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end = asyncio.Event()

    async def serve(_: int, __: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(CHUNKED + b"2\r\nhi\r\n")
        await writer.drain()
        await end.wait()
        writer.write(b"0\r\n\r\n")

    async def first_piece() -> bytes:
        exchange = Exchange(session, b"", connect_s=5, idle_s=5, keep=True)
        await exchange.send("GET", f"http://127.0.0.1:{here.port}/")
        piece = await exchange.piece()
        exchange.over()
        exchange.close()
        return piece

    async with serving(serve) as (here, session):
        assert await first_piece() == b"hi"
        end.set()
        await until(lambda: bool(session._idle))
        assert await first_piece() == b"hi"
        assert here.connections == 1
        await until(lambda: bool(session._idle))
        # One whose end does not come is given up.
        end.clear()
        monkeypatch.setattr(http_exchange, "_LAST_BYTES_S", 0.05)
        assert await first_piece() == b"hi"
        await until(lambda: not session._open)
        end.set()
        await until(lambda: here.open == 0)


async def test_much_that_comes_after_an_answer_that_is_over_stops_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_connection, "_HIGH_BYTES", 4)
    end = asyncio.Event()

    async def serve(
        _: int, requests: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(CHUNKED + b"2\r\nhi\r\n")
        await end.wait()
        writer.write(b"a\r\n0123456789\r\n0\r\n\r\n")

    async with serving(serve) as (here, session):
        exchange = Exchange(session, b"", connect_s=5, idle_s=5, keep=True)
        await exchange.send("GET", f"http://127.0.0.1:{here.port}/")
        assert await exchange.piece() == b"hi"
        exchange.over()
        end.set()
        await until(lambda: bool(session._idle))
        assert await ask(here, session) == b"hi0123456789"
        assert here.connections == 1


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK, b"hi"),
        (CHUNKED + b"1;x=y\r\nh\r\n1\r\ni\r\n0\r\ntrailer: x\r\n\r\n", b"hi"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
            % (len(gzip.compress(b"hi" * 500_000, mtime=0)), gzip.compress(b"hi" * 500_000, mtime=0)),
            b"hi" * 500_000,
        ),
    ],
    ids=["interim", "chunks", "empty", "packed"],
)
@pytest.mark.parametrize("bytewise", [False, True])
async def test_every_sound_framing_is_read(answer: bytes, body: bytes, bytewise: bool) -> None:
    pieces = [answer[at : at + 1] for at in range(len(answer))] if bytewise else [answer]
    async with serving(answers(*pieces)) as (here, session):
        for _ in range(2):
            assert await ask(here, session) == body
        assert here.connections == 1


async def test_a_trailer_is_no_header() -> None:
    answer = CHUNKED.replace(b"\r\n\r\n", b"\r\nx: 1\r\n\r\n") + b"2\r\nhi\r\n0\r\nx: 2\r\ny: 3\r\n\r\n"
    async with serving(answers(answer)) as (here, session):
        exchange = Exchange(session, b"", connect_s=5, idle_s=5)
        await exchange.send("GET", f"http://127.0.0.1:{here.port}/")
        assert await exchange.read() == b"hi"
        assert (exchange.header("x"), exchange.header("y")) == ("1", "")
        exchange.close()


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    async def serve(_: int, __: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhi")
        writer.close()

    async with serving(serve) as (here, session):
        assert await ask(here, session) == b"hi"
        assert await ask(here, session) == b"hi"
        assert here.connections == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 70_000, "malformed"),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi", "malformed"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\nhi", "malformed"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nhi", "malformed"),
        (CHUNKED + b"zz\r\n", "malformed"),
        (b"SSH-2.0-x\r\n", "malformed"),
    ],
    ids=["head", "upgrade", "lengths", "encoding", "not packed", "chunk", "no http"],
)
async def test_what_is_not_sound_is_lost(answer: bytes, kind: str) -> None:
    async with serving(answers(answer)) as (here, session):
        with pytest.raises(ExchangeLost) as lost:
            await ask(here, session)
        assert lost.value.kind == kind
        assert not session._open


@pytest.mark.parametrize("cut", [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", CHUNKED + b"5\r\nhi"])
async def test_an_answer_that_breaks_off_is_cut(cut: bytes) -> None:
    async def serve(_: int, __: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(cut)
        writer.close()

    async with serving(serve) as (here, session):
        with pytest.raises(ExchangeLost) as lost:
            await ask(here, session)
        assert lost.value.kind == "cut"


async def test_a_server_waits_while_its_answer_is_not_read() -> None:
    written = 0

    async def serve(_: int, __: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 64000000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x" * 64_000)
            await writer.drain()
            written += 64_000

    async with serving(serve) as (here, session):
        exchange = Exchange(session, b"", connect_s=5, idle_s=5)
        await exchange.send("GET", f"http://127.0.0.1:{here.port}/")
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.05)
        assert written < 16_000_000
        size = 0
        while piece := await exchange.piece():
            size += len(piece)
        assert size == 64_000_000
        exchange.close()


class Reading(asyncio.Transport):
    """Notes whether it is read from."""

    reading = True

    def write(self, data: object) -> None:
        pass

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


async def test_a_server_waits_while_what_it_packed_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "_HIGH_BYTES", 100)
    monkeypatch.setattr(http_connection, "_UNPACKED_BYTES", 10)
    body = random.Random(0).randbytes(1_000)
    packed = gzip.compress(body, mtime=0)
    transport, connection = Reading(), Connection(lambda _: None)
    connection.connection_made(transport)
    connection.ask(b"")
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"
    connection.data_received(head % len(packed) + packed)
    read = await connection.piece(5)
    assert len(read) == 10 and not transport.reading
    while piece := await connection.piece(5):
        read += piece
    assert read == body and transport.reading
