"""A commercial API that writes down every byte it is sent, and misbehaves on demand.

A raw HTTP/1.1 server on 127.0.0.1 in the test's own event loop (`Recorder`) or in a thread of its own (`threaded`). It
answers chat completions with a sentence that repeats the last user message, so that placeholders come back.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

PROMPT_TOKENS, CACHED_TOKENS = 11, 3
_OWN_LINES = re.compile(rb"(?i)\r\n(?:x-request-id|host): [^\r\n]*")


@dataclass(frozen=True)
class Mode:
    """What to do with one request.

    name: `ok`; `status` (answers `status` with `body` and `headers`); `reset` (RST before any answer); `stall` (no
    answer at all); `stall_body` (a head and nothing more); `cut` (closes after `after` content events, no `[DONE]`);
    `malformed` (broken JSON after `after` content events); `missing_done` (a whole answer without `[DONE]`);
    `error_event` (an error in the stream after `after` content events); `no_usage`; `not_json`; `raw` (the bytes in
    `raw` as they are, head and all, with its numbers as seconds to wait in between; then the connection is closed).
    delay_ms: before the head. slow_ms: before every content event. piece: content is sent in this many characters an
    event. reply: what to say instead of the echo. tool: the reply comes as the `to` of a tool call's arguments. cuts: a
    stream's bytes are sent in pieces that end at these places, whatever event or character they cut; others that cut
    nothing are left out.
    """

    name: str = "ok"
    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    after: int = 2
    delay_ms: float = 0
    slow_ms: float = 0
    piece: int = 4
    reply: str | None = None
    tool: bool = False
    cuts: tuple[int, ...] | None = None
    raw: tuple[bytes | float, ...] = ()


def raw(*steps: bytes | float) -> Mode:
    """These bytes as they are; a number waits so many seconds."""
    return Mode("raw", raw=steps)


def status(code: int, body: bytes | None = None, **headers: str) -> Mode:
    """An HTTP error."""
    default = json.dumps({"error": {"message": "provider text", "code": "invalid_value"}}).encode()
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Mode("status", status=code, body=default if body is None else body, headers=named)


OK = Mode()
STATUS_500, STATUS_429 = status(500), status(429, retry_after="7")
RESET, STALL, STALL_BODY = Mode("reset"), Mode("stall"), Mode("stall_body")
CUT, MALFORMED, MISSING_DONE, ERROR_EVENT = (
    Mode("cut"),
    Mode("malformed"),
    Mode("missing_done"),
    Mode("error_event"),
)
NO_USAGE, NOT_JSON = Mode("no_usage"), Mode("not_json")


def slow(ms: float) -> Mode:
    """`ms` milliseconds before every content event."""
    return Mode(slow_ms=ms)


def delay(ms: float) -> Mode:
    """`ms` milliseconds before the head of the answer."""
    return Mode(delay_ms=ms)


@dataclass
class Seen:
    """One request as it came."""

    line: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)
    """When it was whole, in seconds."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Connection:
    """One accepted connection: every byte received, the requests in it, and whether the other side is gone."""

    raw: bytearray = field(default_factory=bytearray)
    requests: list[Seen] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)


class Recorder:
    """The server. `mode` is the standing one; `script` queues modes for the next requests."""

    def __init__(self) -> None:
        self.mode = OK
        self.connections: list[Connection] = []
        self.port = 0
        self.served = 0
        self._script: deque[Mode] = deque()
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Condition()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def requests(self) -> list[Seen]:
        return [seen for connection in self.connections for seen in connection.requests]

    @property
    def everything(self) -> bytes:
        """Every byte received so far, all connections one after the other."""
        return b"\n".join(bytes(connection.raw) for connection in self.connections)

    @property
    def said(self) -> bytes:
        """The same without the request's id and our own address, whose digits could be anybody's."""
        return _OWN_LINES.sub(b"", self.everything)

    def script(self, *modes: Mode) -> None:
        """The next requests, one mode each; after them `mode` holds again."""
        self._script.extend(modes)

    async def until(self, true: Callable[[], bool], timeout_s: float = 10) -> None:
        """Wait until `true()`; looked at whenever a byte arrives or a connection ends."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(true)

    def choose(self, seen: Seen, connection: Connection) -> Mode:
        """What to do with a request that has come whole; for subclasses to judge."""
        return self._script.popleft() if self._script else self.mode

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._handlers):
            task.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def __aenter__(self) -> Recorder:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection()
        self.connections.append(connection)
        task = asyncio.ensure_future(self._serve(connection, reader, writer))
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)

    async def _serve(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await self._tell()
        try:
            while (seen := await self._read(connection, reader)) is not None:
                mode = self.choose(seen, connection)
                keep = await self._answer(mode, seen, connection, reader, writer)
                self.served += 1
                if not keep:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            connection.closed.set()
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _read(self, connection: Connection, reader: asyncio.StreamReader) -> Seen | None:
        pending = bytearray()

        async def more() -> bool:
            data = await reader.read(65536)
            connection.raw.extend(data)
            pending.extend(data)
            if data:
                await self._tell()
            return bool(data)

        while b"\r\n\r\n" not in pending:
            if not await more():
                return None
        head, _, body = bytes(pending).partition(b"\r\n\r\n")
        line, *rest = head.decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (row.partition(":") for row in rest)
        }
        length = int(headers.get("content-length", "0"))
        missing = length - len(body)
        while missing > 0:
            before = len(pending)
            if not await more():
                return None
            missing -= len(pending) - before
        body = bytes(pending).partition(b"\r\n\r\n")[2][:length]
        seen = Seen(line, headers, body)
        connection.requests.append(seen)
        await self._tell()
        return seen

    async def _answer(
        self,
        mode: Mode,
        seen: Seen,
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request; whether the connection may serve another."""
        if mode.delay_ms:
            await asyncio.sleep(mode.delay_ms / 1000)
        if mode.name == "reset":
            _reset(writer)
            return False
        if mode.name == "stall":
            await _hold(connection, reader)
            return False
        if mode.name == "raw":
            for step in mode.raw:
                if isinstance(step, bytes):
                    writer.write(step)
                    await writer.drain()
                elif await _left_within(connection, reader, step):
                    return False
            return False
        if mode.name == "status":
            _write_head(writer, mode.status, "application/json", len(mode.body), mode.headers)
            writer.write(mode.body)
            await writer.drain()
            return True
        request = seen.json
        if request.get("stream"):
            return await self._stream(mode, request, connection, reader, writer)
        return await self._document(mode, request, connection, reader, writer)

    async def _document(
        self,
        mode: Mode,
        request: dict[str, Any],
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        reply = mode.reply if mode.reply is not None else echo(request)
        document: dict[str, Any] = {
            "id": "chatcmpl-recorded",
            "object": "chat.completion",
            "created": 1,
            "model": request["model"],
            "choices": [
                {
                    "index": index,
                    "message": {"role": "assistant", "content": reply},
                    "finish_reason": "stop",
                }
                for index in range(request.get("n") or 1)
            ],
        }
        if mode.name != "no_usage":
            document["usage"] = usage(len(_pieces(reply, mode.piece)) * (request.get("n") or 1))
        if mode.name == "error_event":
            document = {"error": {"message": "provider text", "code": 500}}
        body = json.dumps(document, ensure_ascii=False).encode()
        if mode.name in ("malformed", "not_json"):
            body = body[: len(body) // 2]
        _write_head(writer, 200, "application/json", len(body), mode.headers)
        if mode.name == "stall_body":
            await writer.drain()
            await _hold(connection, reader)
            return False
        if mode.name == "cut":
            writer.write(body[: len(body) // 2])
            await writer.drain()
            return False
        writer.write(body)
        await writer.drain()
        return True

    async def _stream(
        self,
        mode: Mode,
        request: dict[str, Any],
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        kind = "application/json" if mode.name == "not_json" else "text/event-stream"
        _write_head(writer, 200, kind, None, mode.headers)
        await writer.drain()
        if mode.name == "stall_body":
            await _hold(connection, reader)
            return False
        if mode.cuts is not None:
            await _write_pieces(writer, b"".join(stream_events(request, mode)), mode.cuts)
            return True
        for number, event in enumerate(stream_events(request, mode)):
            if mode.name == "cut" and number > mode.after:
                return False
            if mode.slow_ms and number:
                await asyncio.sleep(mode.slow_ms / 1000)
            _write_chunk(writer, event)
            await writer.drain()
        _write_chunk(writer, b"")
        await writer.drain()
        return True


def echo(request: dict[str, Any]) -> str:
    """The sentence that repeats the last user message."""
    for message in reversed(request.get("messages", [])):
        if message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, list):
                content = " ".join(part.get("text", "") for part in content)
            return f"You said: {content} – 네, 알겠습니다. 😀"
    return "You said nothing."


def usage(completion_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": completion_tokens,
        "total_tokens": PROMPT_TOKENS + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS},
    }


def stream_events(request: dict[str, Any], mode: Mode) -> Iterator[bytes]:
    """The whole events of a streamed answer: one with the role, the content, the ends, usage, `[DONE]`."""
    reply = mode.reply if mode.reply is not None else echo(request)
    count = request.get("n") or 1

    def chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
        document = {
            "id": "chatcmpl-recorded",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": request["model"],
            "choices": choices,
            **more,
        }
        return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"

    def delta(index: int, fields: dict[str, Any], reason: str | None = None) -> list[dict[str, Any]]:
        return [{"index": index, "delta": fields, "finish_reason": reason}]

    for index in range(count):
        yield chunk(delta(index, {"role": "assistant", "content": ""}))
    if mode.tool:
        reply = json.dumps({"to": reply})
    pieces = _pieces(reply, mode.piece)
    for number, piece in enumerate(pieces):
        if number == mode.after and mode.name == "malformed":
            yield b'data: {"id": "chatcmpl-recorded", "choices": [{"index"\n\n'
        if number == mode.after and mode.name == "error_event":
            yield b'data: {"error": {"message": "provider text", "code": 500}}\n\n'
        for index in range(count):
            said = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
            yield chunk(delta(index, said if mode.tool else {"content": piece}))
    for index in range(count):
        yield chunk(delta(index, {}, "stop"))
    if mode.name != "no_usage" and (request.get("stream_options") or {}).get("include_usage"):
        yield chunk([], usage=usage(len(pieces) * count))
    if mode.name != "missing_done":
        yield b"data: [DONE]\n\n"


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


async def _left_within(connection: Connection, reader: asyncio.StreamReader, seconds: float) -> bool:
    """Wait; whether the other side closed meanwhile."""
    try:
        async with asyncio.timeout(seconds):
            await _hold(connection, reader)
    except TimeoutError:
        return False
    return True


async def _hold(connection: Connection, reader: asyncio.StreamReader) -> None:
    """Say nothing until the other side closes."""
    while data := await reader.read(65536):
        connection.raw.extend(data)


def _reset(writer: asyncio.StreamWriter) -> None:
    """End the connection with RST instead of FIN."""
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _write_head(
    writer: asyncio.StreamWriter,
    code: int,
    content_type: str,
    length: int | None,
    headers: tuple[tuple[str, str], ...],
) -> None:
    lines = [f"HTTP/1.1 {code} Recorded", f"content-type: {content_type}"]
    lines.append("transfer-encoding: chunked" if length is None else f"content-length: {length}")
    lines.extend(f"{name}: {value}" for name, value in headers)
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())


def _write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def _write_pieces(writer: asyncio.StreamWriter, body: bytes, cuts: tuple[int, ...]) -> None:
    """Each piece in a packet of its own, read before the next one is written as far as this loop's turns allow."""
    edges = (0, *(at for at in cuts if 0 < at < len(body)), len(body))
    for first, last in pairwise(edges):
        _write_chunk(writer, body[first:last])
        await writer.drain()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    _write_chunk(writer, b"")
    await writer.drain()


@asynccontextmanager
async def recording(mode: Mode = OK) -> AsyncIterator[Recorder]:
    """A recorder in the running loop."""
    async with Recorder() as recorder:
        recorder.mode = mode
        yield recorder


@contextmanager
def threaded(mode: Mode = OK) -> Iterator[Recorder]:
    """A recorder in a thread of its own, for tests whose own loop is busy or that have none."""
    up = threading.Event()
    held: list[Recorder] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        recorder = Recorder()
        recorder.mode = mode
        await recorder.start()
        held.append(recorder)
        up.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(serve())
        loop.run_forever()

    thread = threading.Thread(target=run, name="recorder")
    thread.start()
    up.wait(10)
    try:
        yield held[0]
    finally:
        asyncio.run_coroutine_threadsafe(held[0].stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
