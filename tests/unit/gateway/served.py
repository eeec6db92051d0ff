"""The chat route behind the real server on a real socket, and a reader of its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.unit.gateway.fakes import Count, FakeDispatch, Script, chat_route, hello
from weighbridge.config.settings import AuthSettings
from weighbridge.gateway.concurrency import Concurrency
from weighbridge.gateway.front import CHAT_PATH, Front
from weighbridge.gateway.listening import bind, listen
from weighbridge.gateway.protocol import ConnectionLimits
from weighbridge.gateway.server import GatewayServer, make_server
from weighbridge.gateway.underway import Underway


@dataclass
class Running:
    server: GatewayServer
    dispatch: FakeDispatch
    slow_readers: Count
    underway: Underway
    port: int
    ended: asyncio.Task[None]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/chat/completions"

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    def request(self, body: bytes, *headers: str) -> bytes:
        lines = [
            "POST /v1/chat/completions HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            f"Content-Length: {len(body)}",
            *headers,
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def rest(scope, receive, send):  # type: ignore[no-untyped-def]
    """Stands in for FastAPI: a lifespan, and nothing else."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    raise RuntimeError("planted-text")


def answering(body: bytes):  # type: ignore[no-untyped-def]
    """Stands in for FastAPI: whatever is asked, the answer is `body`."""

    async def answer(scope, receive, send):  # type: ignore[no-untyped-def]
        if scope["type"] == "lifespan":
            await rest(scope, receive, send)
            return
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", b"%d" % len(body))],
            }
        )
        await send({"type": "http.response.body", "body": body})

    return answer


@asynccontextmanager
async def running(
    script: Script = hello,
    *,
    limits: ConnectionLimits | None = None,
    answer: bytes | None = None,
    concurrency: Concurrency | None = None,
    auth: AuthSettings | None = None,
    drain_s: float = 5.0,
    max_body_bytes: int = 4096,
    slow_reader_timeout_s: float = 5.0,
    tls: tuple[Path, Path] | None = None,
) -> AsyncIterator[Running]:
    underway = Underway()
    route, dispatch, count = chat_route(
        script,
        underway=underway,
        max_body_bytes=max_body_bytes,
        slow_reader_timeout_s=slow_reader_timeout_s,
        concurrency=concurrency,
        auth=auth,
    )
    sock = bind("127.0.0.1", 0)
    listen(sock)
    app = Front({CHAT_PATH: route}, rest if answer is None else answering(answer), lambda: "id-rest")
    certfile, keyfile = tls or (None, None)
    server = make_server(
        app,
        underway=underway,
        drain_timeout_s=drain_s,
        new_id=lambda: "id-http",
        limits=limits,
        tls_certfile=certfile,
        tls_keyfile=keyfile,
    )
    task = asyncio.create_task(server.serve(sockets=[sock]))
    while not server.started:
        await asyncio.sleep(0.01)
    here = Running(server, dispatch, count, underway, sock.getsockname()[1], task)
    try:
        yield here
    finally:
        server.should_exit = True
        async with asyncio.timeout(10):
            await task


async def response_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """One response with a content length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in head[1:] if line)}
    body = await reader.readexactly(int(headers["content-length"]))
    return int(head[0].split()[1]), headers, body
