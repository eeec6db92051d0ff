"""`python -m bench.lib.upstream PACE_S`: a chat-completions API that costs as little as Python allows.

Every answer is made beforehand. A stream has the number of chunks that `max_tokens` asks for, `PACE_S` seconds apart,
each written by itself; a model that types is what a proxy has to keep up with.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

import uvloop

from bench.lib.answering import say, until_closed

ID = "chatcmpl-bench"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": *true')
_TOKENS = re.compile(rb'"max_(?:completion_)?tokens": *(\d+)')

_TEXT = "The parcel left our warehouse on Monday and should reach you within two working days. " * 4
DOCUMENT = json.dumps(
    {
        "id": ID,
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "bench-model",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": _TEXT}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 120, "completion_tokens": 64, "total_tokens": 184},
    }
).encode()
WHOLE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(DOCUMENT)
) + DOCUMENT
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)


def _plain(choices: list[object], **more: object) -> bytes:
    body = {
        "id": ID,
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "bench-model",
        "choices": choices,
        **more,
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _event(choices: list[object], **more: object) -> bytes:
    return _chunk(_plain(choices, **more))


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _choice(delta: object, reason: str | None = None) -> dict[str, object]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


ROLE_EVENT = _plain([_choice({"role": "assistant", "content": ""})])
WORD_EVENT = _plain([_choice({"content": " parcel"})])
ROLE, WORD = _chunk(ROLE_EVENT), _chunk(WORD_EVENT)
LAST = (
    _event([_choice({}, "stop")])
    + _event([], usage={"prompt_tokens": 120, "completion_tokens": 64, "total_tokens": 184})
    + _chunk(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests come one after the other."""

    pace_s = 0.0

    def __init__(self) -> None:
        self._pending = b""
        self._left = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:  # uvloop's are no subclass of asyncio's
        self._transport = transport
        self._loop = asyncio.get_running_loop()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._pending += data
        end = self._pending.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._pending, 0, end)
        whole = end + 4 + (int(length[1]) if length else 0)
        if len(self._pending) < whole:
            return
        request, self._pending = self._pending[:whole], self._pending[whole:]
        if not _STREAM.search(request, end):
            self._transport.write(WHOLE)
            return
        asked = _TOKENS.search(request, end)
        self._left = int(asked[1]) if asked else 16
        self._due = self._loop.time()
        self._transport.write(HEAD + ROLE)
        self._next()

    def _next(self) -> None:
        if self._left == 0:
            self._transport.write(LAST)
            return
        self._left -= 1
        self._transport.write(WORD)
        self._due += self.pace_s
        self._timer = self._loop.call_at(self._due, self._next)


async def main() -> None:
    Connection.pace_s = float(sys.argv[1])
    server = await asyncio.get_running_loop().create_server(Connection, "127.0.0.1", 0)
    say({"port": server.sockets[0].getsockname()[1]})
    await until_closed()


if __name__ == "__main__":
    uvloop.run(main())
