"""A request's direct line to our own server: its body, its answer, and word of a caller who leaves.

ASGI would have three messages and three coroutines for a short answer, and a task that waits for the caller's leaving.
Other servers are spoken to that way; ours offers this beside it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from weighbridge.router.admitted import Header

LINE: Final = "weighbridge.line"
"""The ASGI extension that holds a request's `Line` (see `gateway.protocol`)."""

CLOSE: Final = (b"connection", b"close")

_JOINED_BYTES: Final = 65_536
"""A piece up to so long is copied to stand behind its head, which saves a packet."""


class Line:
    """One request's line. An answer is begun, written in pieces and ended here, or all of it through ASGI."""

    __slots__ = ("_chunked", "_cycle", "_gone", "_head", "_old", "_tell")

    def __init__(self) -> None:
        self._cycle: RequestResponseCycle
        self._old = False
        self._gone = False
        self._tell: Callable[[], object] | None = None
        self._head = b""
        self._chunked = False

    def connect(self, cycle: RequestResponseCycle, *, old: bool) -> None:
        """Said by the server when the request's head is complete.

        Args:
            old: the caller speaks HTTP/1.0 and knows no chunks.
        """
        self._cycle = cycle
        self._old = old

    # ---- the caller ----

    def gone(self) -> None:
        """The caller has left. Said by the server, once."""
        self._gone = True
        if self._tell is not None:
            self._tell()

    def watch(self, tell: Callable[[], object]) -> None:
        """Call `tell` when the caller leaves, or now where that has happened."""
        self._tell = tell
        if self._gone:
            tell()

    def unwatch(self) -> None:
        """Tell nobody any more."""
        self._tell = None

    def whole_body(self) -> bytes | None:
        """The request's body, if all of it is here and none was taken; else it is to be received."""
        cycle = self._cycle
        if cycle.more_body or cycle.disconnected:
            return None
        # It rests while requests wait behind this one, and only by reading it is a caller seen to leave.
        cycle.flow.resume_reading()
        body, cycle.body = bytes(cycle.body), bytearray()
        return body

    # ---- the answer ----

    @property
    def jammed(self) -> bool:
        """The caller does not take what was written; `drain` waits until that changes."""
        return self._cycle.flow.write_paused and not self._cycle.disconnected

    def drain(self) -> Awaitable[None]:
        return self._cycle.flow.drain()

    def begin(self, status: int, headers: Sequence[Header], length: int | None) -> None:
        """Say what the answer's head is; it goes out with the first piece.

        Args:
            headers: names in lower case.
            length: of the body, if `headers` name it.

        Raises:
            ValueError: a header holds a line end.
        """
        cycle = self._cycle
        cycle.response_started = True
        cycle.waiting_for_100_continue = False
        lines = [STATUS_LINE[status]]
        lines += [b"%b: %b\r\n" % header for header in cycle.default_headers]
        lines += [b"%b: %b\r\n" % header for header in headers]
        if CLOSE in headers:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        if length is None and not self._old:
            # Without chunks the answer ends with its connection.
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        cycle.chunked_encoding = self._chunked
        head = b"".join(lines)
        if not head.count(b"\r") == head.count(b"\n") == len(lines):
            raise ValueError("a header holds a line end")
        self._head = head + b"\r\n"

    def write(self, data: bytes, *, last: bool = False) -> None:
        """Send a piece of the body. To a caller who has left nothing is sent, and nothing is ended."""
        cycle = self._cycle
        if cycle.disconnected:
            return
        if self._chunked:
            piece = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            if last:
                piece += b"0\r\n\r\n"
        else:
            piece = data
        head = self._head
        if head:
            self._head = b""
            if len(piece) <= _JOINED_BYTES:
                piece = head + piece
            else:
                cycle.transport.write(head)
        if piece:
            cycle.transport.write(piece)
        if last:
            cycle.response_complete = True
            cycle.message_event.set()
            if not cycle.keep_alive:
                cycle.transport.close()
            cycle.on_response()
