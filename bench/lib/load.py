"""`python -m bench.lib.load`: asks over keep-alive connections, in a process of its own so that its CPU does not count.

A job holds `url`, `headers`, `bodies` (JSON texts), `concurrency`, and `seconds` or `count`; see `bench.lib.asking`.
With `tokens` true the events are the answers' completion tokens, which streams must then report; `request_limit_s` is
how long one answer may take (60). Every `FRESH` in a body is another word of its length in each request, so that
nobody can answer from what was found in an earlier one. Anything but a whole answer with status 200 fails the job.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import uvloop

from bench.lib.answering import jobs, say
from bench.lib.asking import keep_asking
from bench.lib.usage import completion_tokens

REQUEST_LIMIT_S = 60.0
FRESH = "(fresh!)"
_FRESH = FRESH.encode()
_LENGTH = b"content-length: "
_LAST = b"0\r\n\r\n"


def words() -> Iterator[bytes]:
    """Words that can be spoken, of eight letters; none twice in 24 million, and from somewhere else every time."""
    syllables = [f"{first}{second}" for first in "bdfghklmnprstv" for second in "aeiou"]
    base = len(syllables)
    # Prime to their number, so that one word does not look like the one before.
    for number in itertools.count(random.randrange(base**4), 7_368_787):
        places = (number // base**place % base for place in range(4))
        yield "".join(syllables[place] for place in places).encode()


_WORDS = words()


class Wrong(Exception):
    """An answer that is not a whole 200."""


class Caller(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, requests: list[bytes], streaming: list[bool], limit_s: float) -> None:
        self._requests = requests
        self._streaming = streaming
        self._limit_s = limit_s
        self._data = bytearray()
        self._body_at: int | None = None
        self._ends_at: int | None = None
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: Any) -> None:  # uvloop's are no subclass of asyncio's
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._done is not None and not self._done.done() and self._whole():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(Wrong(f"connection lost after {bytes(self._data[:300])!r}"))

    def _whole(self) -> bool:
        if self._body_at is None:
            # Once an answer; looking for the head again with every token would cost more than the rest together.
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return False
            self._body_at = end + 4
            head = bytes(self._data[: end + 2]).lower()
            at = head.find(_LENGTH)
            if at >= 0:
                self._ends_at = self._body_at + int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
        if self._ends_at is not None:
            return len(self._data) >= self._ends_at
        return len(self._data) >= self._body_at + len(_LAST) and self._data.endswith(_LAST)

    async def ask(self, turn: int) -> int:
        """The number of events of a stream, `[DONE]` included; 0 for a document.

        Raises:
            Wrong: not 200, or not whole.
        """
        self._data = bytearray()
        self._body_at = self._ends_at = None
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(self._requests[turn].replace(_FRESH, next(_WORDS)))
        async with asyncio.timeout(self._limit_s):
            await self._done
        data = self._data
        if not data.startswith(b"HTTP/1.1 200") or (self._streaming[turn] and b"data: [DONE]" not in data):
            raise Wrong(repr(bytes(data[:600])))
        return data.count(b"data: ")

    async def ask_tokens(self, turn: int) -> int:
        """The completion tokens the answer reports. Raises: Wrong, also where it reports none."""
        await self.ask(turn)
        made = completion_tokens(self._data)
        if made is None:
            raise Wrong("an answer without usage")
        return made


async def run(job: dict[str, Any]) -> dict[str, Any]:
    where = urlsplit(job["url"])
    host, port = str(where.hostname), int(where.port or 80)
    requests = [_request(where.path, f"{host}:{port}", job["headers"], body) for body in job["bodies"]]
    streaming = ['"stream": true' in body for body in job["bodies"]]
    limit_s = job.get("request_limit_s", REQUEST_LIMIT_S)
    loop = asyncio.get_running_loop()
    callers: list[Caller] = []
    try:
        for _ in range(job["concurrency"]):
            _, caller = await loop.create_connection(lambda: Caller(requests, streaming, limit_s), host, port)
            callers.append(caller)
        askers = [caller.ask_tokens if job.get("tokens") else caller.ask for caller in callers]
        return await keep_asking(job, askers)
    finally:
        for caller in callers:
            caller.transport.close()


def _request(path: str, host: str, headers: dict[str, str], body: str) -> bytes:
    data = body.encode()
    lines = [f"POST {path} HTTP/1.1", f"host: {host}", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"content-length: {len(data)}", "", ""]
    return "\r\n".join(lines).encode() + data


async def main() -> None:
    say({})
    async for job in jobs():
        try:
            said = await run(job)
        except* (Wrong, TimeoutError, OSError) as failed:
            said = {"failed": repr(failed.exceptions[0])}
        say(said)


if __name__ == "__main__":
    uvloop.run(main())
