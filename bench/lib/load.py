"""`python -m bench.lib.load`: asks over keep-alive connections, in a process of its own so that its CPU does not count.

A job holds `url`, `headers`, `bodies` (JSON texts), `concurrency`, and `seconds` or `count`; see `bench.lib.asking`.
Anything but a whole answer with status 200 fails the job.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import uvloop

from bench.lib.answering import jobs, say
from bench.lib.asking import keep_asking

REQUEST_LIMIT_S = 60.0
_LENGTH = b"content-length: "


class Wrong(Exception):
    """An answer that is not a whole 200."""


class Caller(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, requests: list[bytes], streaming: list[bool]) -> None:
        self._requests = requests
        self._streaming = streaming
        self._data = b""
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: Any) -> None:  # uvloop's are no subclass of asyncio's
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data
        if self._done is not None and not self._done.done() and self._whole():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(Wrong(f"connection lost after {self._data[:300]!r}"))

    def _whole(self) -> bool:
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end:
            return False
        at = head.lower().find(_LENGTH)
        if at >= 0:
            return len(body) >= int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0])
        return body.endswith(b"0\r\n\r\n")

    async def ask(self, turn: int) -> int:
        """The number of events of a stream, `[DONE]` included; 0 for a document.

        Raises:
            Wrong: not 200, or not whole.
        """
        self._data = b""
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(self._requests[turn])
        async with asyncio.timeout(REQUEST_LIMIT_S):
            await self._done
        data = self._data
        if not data.startswith(b"HTTP/1.1 200") or (self._streaming[turn] and b"data: [DONE]" not in data):
            raise Wrong(repr(data[:600]))
        return data.count(b"data: ")


async def run(job: dict[str, Any]) -> dict[str, Any]:
    where = urlsplit(job["url"])
    host, port = str(where.hostname), int(where.port or 80)
    requests = [_request(where.path, f"{host}:{port}", job["headers"], body) for body in job["bodies"]]
    streaming = ['"stream": true' in body for body in job["bodies"]]
    loop = asyncio.get_running_loop()
    callers = []
    try:
        for _ in range(job["concurrency"]):
            _, caller = await loop.create_connection(lambda: Caller(requests, streaming), host, port)
            callers.append(caller)
        return await keep_asking(job, [caller.ask for caller in callers])
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
