"""Bytes to a server and whole answers back, for what no HTTP client would send."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def request_id(self) -> str:
        return self.headers.get("x-weighbridge-request-id", "")

    @property
    def error(self) -> dict[str, Any]:
        """The error object, checked for OpenAI's shape."""
        assert self.headers["content-type"] == "application/json"
        document = json.loads(self.body)
        assert set(document) == {"error"}
        error: dict[str, Any] = document["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert isinstance(error["message"], str) and error["message"]
        assert isinstance(error["type"], str) and error["type"]
        assert all(isinstance(error[name], str | None) for name in ("param", "code"))
        return error


@dataclass(frozen=True)
class Heard:
    """What came on one connection. closed: the server ended it. rest: bytes after the last whole answer."""

    answers: list[Answer]
    rest: bytes
    closed: bool


async def exchange(port: int, *sent: bytes, patience_s: float = 20.0) -> Heard:
    """Send the pieces, each in a write of its own, and read until the server closes or `patience_s` have passed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = bytearray()
    closed = False
    try:
        async with asyncio.timeout(patience_s):
            reading = asyncio.ensure_future(_read(reader, data))
            try:
                for piece in sent:
                    writer.write(piece)
                    await writer.drain()
            except ConnectionError:
                # It was refused before all of it was sent; what was said of it is being read.
                pass
            await reading
            closed = True
    except TimeoutError:
        pass
    finally:
        writer.transport.abort()
    answers, rest = parse(bytes(data))
    return Heard(answers, rest, closed)


async def _read(reader: asyncio.StreamReader, into: bytearray) -> None:
    try:
        while piece := await reader.read(65536):
            into += piece
    except ConnectionError:
        pass


def parse(data: bytes) -> tuple[list[Answer], bytes]:
    """The whole answers in `data`, interim ones left out, and what is left."""
    answers: list[Answer] = []
    while (end := data.find(b"\r\n\r\n")) >= 0:
        lines = data[:end].decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        at = end + 4
        if status < 200:
            data = data[at:]
            continue
        if "content-length" in headers:
            stop = at + int(headers["content-length"])
            body = data[at:stop]
        elif headers.get("transfer-encoding") == "chunked":
            found = _chunks(data, at)
            if found is None:
                break
            body, stop = found
        else:
            body, stop = data[at:], len(data)
        if stop > len(data):
            break
        answers.append(Answer(status, headers, body))
        data = data[stop:]
    return answers, data


def _chunks(data: bytes, at: int) -> tuple[bytes, int] | None:
    body = bytearray()
    while (end := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:end], 16)
        if len(data) < end + 4 + size:
            return None
        body += data[end + 2 : end + 2 + size]
        at = end + 4 + size
        if size == 0:
            return bytes(body), at
    return None
