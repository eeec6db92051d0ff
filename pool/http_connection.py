"""One HTTP/1.1 connection to a server of a tier: what is written on it, and what comes back, piece by piece.

Small on purpose: requests are written whole, answers are read as they come, and nothing else of HTTP is spoken. The
parsing is httptools' (llhttp, as in Node).
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Any, Final, Literal

import httptools

LostKind = Literal["refused", "address", "connect", "reset", "stall", "cut", "malformed", "ended"]
"""How an exchange was lost.

- refused: nobody listens there.
- address: the name leads outside the private network; nothing was connected.
- connect: no connection (name, TCP, TLS, or its time limit).
- reset: the connection was lost before an answer began.
- stall: nothing came for too long.
- cut: the answer broke off.
- malformed: what came is not what the protocol says.
- ended: this side ended it.
"""

_MAX_HEAD_BYTES: Final = 65_536
_HIGH_BYTES: Final = 262_144
"""So much waits to be read at most, about; then the server is made to wait."""
_UNPACKED_BYTES: Final = 262_144
"""A piece of a compressed body is at most so long when unpacked."""
_PACKED: Final = frozenset({b"gzip", b"x-gzip", b"deflate"})


class ExchangeLost(Exception):
    """No whole answer came. Holds no byte of what did come."""

    def __init__(self, kind: LostKind) -> None:
        super().__init__(f"the exchange was lost: {kind}")
        self.kind: LostKind = kind


class Connection(asyncio.Protocol):
    """Answers come one after the other; between two of them the connection is idle.

    Args:
        on_idle: called when an answer that was `part`ed with has come to its end, and when an idle connection is lost.
    """

    def __init__(self, on_idle: Callable[[Connection], None]) -> None:
        self._on_idle = on_idle
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._parser: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._paused = False
        self._unpack: Any = None
        self._head_bytes = 0
        self._head = self._whole = self._sound = self._parted = False
        self.lost: LostKind | None = None
        """Why nothing more will come; None while the connection is up."""
        self._lost_at: float | None = None
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        """Names in small letters."""
        self.made_at = self.idle_since = self._loop.time()
        """In seconds of the event loop."""

    # ---- called by the exchange ----

    @property
    def reusable(self) -> bool:
        """The answer is whole, its request was taken whole, and another one may be asked for."""
        clean = self._whole and self._sound and self.lost is None
        return clean and not self._transport.get_write_buffer_size()

    @property
    def heard(self) -> bool:
        """Whether any byte of the present answer has come."""
        return self._head_bytes > 0

    def silent_for(self, since: float) -> float:
        """Seconds from `since` to the loss of the connection, or to now."""
        return (self._lost_at or self._loop.time()) - since

    def ask(self, request: bytes) -> float:
        """Write a request; its answer is read by `head` and `piece`. Returns when that was."""
        self._parser = httptools.HttpResponseParser(self)
        self._unpack = None
        self._head_bytes = 0
        self._head = self._whole = self._sound = self._parted = False
        self.status = 0
        self.headers = {}
        self._transport.write(request)
        return self._loop.time()

    async def head(self, limit_s: float | None) -> int:
        """Wait for the head of the answer; its status.

        Args:
            limit_s: seconds in which some of it must come.

        Raises:
            ExchangeLost: reset, stall, malformed or ended.
        """
        while not self._head:
            if self.lost is not None:
                raise ExchangeLost(self.lost)
            await self._wait(limit_s)
        return self.status

    async def piece(self, limit_s: float) -> bytes:
        """What has come of the body, waiting for it at most `limit_s` seconds; empty at its end.

        Raises:
            ExchangeLost: stall, cut, malformed or ended.
        """
        while True:
            if self._pieces:
                data = self._taken()
                if data:
                    return data
            elif self._whole:
                return b""
            elif self.lost is not None:
                raise ExchangeLost(self.lost)
            else:
                await self._wait(limit_s)

    def whole(self) -> bytes | None:
        """The body, if all of it has come and none was taken; else it is to be had by `piece`."""
        if not self._whole or self._unpack is not None:
            return None
        return self._taken()

    def part(self, limit_s: float) -> None:
        """Nobody reads this answer any more: it is over but for its last bytes, which have `limit_s` seconds."""
        self._parted = True
        self._taken()
        if self._whole or self.lost is not None:
            self._gone_idle()
        else:
            self._arm(limit_s)

    def end(self, kind: LostKind = "ended") -> None:
        """Close the connection now; who reads gets ExchangeLost of this kind. Idempotent."""
        self._lose(kind)
        self._pieces.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()

    # ---- waiting ----

    async def _wait(self, limit_s: float | None) -> None:
        self._arm(limit_s)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = self._due = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _arm(self, limit_s: float | None) -> None:
        """One timer serves all waits: it looks whether one has become too long, and is set anew only then."""
        if limit_s is None:
            self._due = None
            return
        due = self._due = self._loop.time() + limit_s
        if self._timer is not None and self._timer.when() > due:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        due = self._due
        if due is None or (self._waiter is None and not self._parted):
            return
        if self._loop.time() < due:
            self._timer = self._loop.call_at(due, self._look)
        else:
            self.end("stall")

    def _lose(self, kind: LostKind) -> None:
        if self.lost is None:
            self.lost = kind
            self._lost_at = self._loop.time()
            self._wake()

    # ---- called by the event loop ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._whole or self._parser is None or self.lost is not None:
            # Nothing was asked for.
            self.end("malformed")
            self._gone_idle()
            return
        if not self._head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._malformed()
            return
        if not self._head and self._head_bytes > _MAX_HEAD_BYTES:
            self._malformed()
            return
        if self._parted:
            self._pieces.clear()
            self._waiting_bytes = 0
            self._gone_idle()
        elif self._waiting_bytes > _HIGH_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if (
            self._head
            and not self._whole
            and exc is None
            and self.lost is None
            and self._ends_with_connection()
        ):
            self._whole = True
        self._lose("cut" if self._head else "reset")
        self._gone_idle()

    def _gone_idle(self) -> None:
        if self._whole or self.lost is not None:
            self.idle_since = self._loop.time()
            self._due = None
            if self._parted:
                self._on_idle(self)

    def _malformed(self) -> None:
        # What came before the fault may still be read.
        self._lose("malformed")
        self._transport.abort()

    def _ends_with_connection(self) -> bool:
        return b"content-length" not in self.headers and b"transfer-encoding" not in self.headers

    # ---- called by the parser ----

    def on_message_begin(self) -> None:
        if self._whole:
            self._sound = False

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes after the head is a trailer.
        if not self._head:
            self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._whole:
            return
        status = self._parser.get_status_code()
        if status < 200:
            # An interim answer: the real one follows.
            self.headers = {}
            return
        self.status = status
        self._head = True
        self._sound = self._parser.should_keep_alive()
        encoding = self.headers.get(b"content-encoding", b"").strip().lower()
        if encoding in _PACKED:
            self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 32)
        elif encoding not in (b"", b"identity"):
            raise ValueError("an encoding that was not asked for")

    def on_body(self, body: bytes) -> None:
        if not self._whole:
            self._pieces.append(body)
            self._waiting_bytes += len(body)

    def on_message_complete(self) -> None:
        if self._head:
            self._whole = True

    # ---- the body ----

    def _taken(self) -> bytes:
        """Take what has come off the list; at most a part of it where it has to be unpacked."""
        if self._unpack is None or self._parted:
            data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
        else:
            data = self._unpacked(b"".join(self._pieces))
        self._waiting_bytes = sum(map(len, self._pieces))
        if self._paused and self._waiting_bytes <= _HIGH_BYTES:
            self._paused = False
            if self.lost is None:
                self._transport.resume_reading()
        return data

    def _unpacked(self, packed: bytes) -> bytes:
        try:
            data: bytes = self._unpack.decompress(packed, _UNPACKED_BYTES)
        except zlib.error:
            self._pieces.clear()
            self._whole = False
            self._malformed()
            return b""
        rest: bytes = self._unpack.unconsumed_tail
        self._pieces[:] = [rest] if rest else []
        return data
