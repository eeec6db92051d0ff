"""A hand-driven ASGI connection: the test decides when body pieces arrive, when it reads, when it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class Connection:
    """One HTTP request as an ASGI server would present it.

    Args:
        pieces: body pieces, all there at once. None leaves the body to `deliver`.
        local: the peer is loopback.
    """

    def __init__(
        self,
        method: str = "POST",
        path: str = "/v1/chat/completions",
        *,
        pieces: Iterable[bytes] | None = (b"",),
        headers: Mapping[str, str] | None = None,
        local: bool = True,
        cuttable: bool = True,
    ) -> None:
        names = {"host": "127.0.0.1:8080"} | dict(headers or {})
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in names.items()],
            "client": ("127.0.0.1", 50000) if local else ("192.0.2.7", 50000),
            "server": ("127.0.0.1", 8080),
            "state": {},
        }
        self.was_cut = False
        if cuttable:
            self.scope["extensions"] = {"weighbridge.cut": self._cut}
        self.sent: list[dict[str, Any]] = []
        self.body_messages_read = 0
        self.reading = asyncio.Event()
        self.reading.set()
        self.wrote = asyncio.Event()
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._gone = asyncio.Event()
        if pieces is not None:
            all_pieces = list(pieces)
            for n, piece in enumerate(all_pieces):
                self.deliver(piece, more=n + 1 < len(all_pieces))

    def deliver(self, piece: bytes, *, more: bool) -> None:
        self._inbox.put_nowait({"type": "http.request", "body": piece, "more_body": more})

    def leave(self) -> None:
        """The caller closes the connection."""
        self._gone.set()
        self.reading.set()
        self._inbox.put_nowait({"type": "http.disconnect"})

    def _cut(self) -> None:
        self.was_cut = True
        self.leave()

    async def receive(self) -> dict[str, Any]:
        if self._gone.is_set() and self._inbox.empty():
            return {"type": "http.disconnect"}
        message = await self._inbox.get()
        if message["type"] == "http.request":
            self.body_messages_read += 1
        return message

    async def send(self, message: dict[str, Any]) -> None:
        await self.reading.wait()
        if self._gone.is_set():
            return
        self.sent.append(message)
        self.wrote.set()
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            # As uvicorn does: whoever still listens is told that the request is over.
            self._inbox.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def complete(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body", True) is False

    @property
    def error(self) -> dict[str, Any]:
        error = msgspec.json.decode(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error
