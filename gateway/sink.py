"""Where an answer goes: the ASGI connection, with a bound on how long a slow reader may keep us waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from starlette.types import Message, Send

from weighbridge.gateway.line import Line
from weighbridge.gateway.waiting import within
from weighbridge.router.admitted import ClientGone, Header


class Counter(Protocol):
    def inc(self, amount: float = 1) -> None: ...


class AsgiSink:
    """The `router.admitted.Sink` of one HTTP request.

    Writing waits while the connection's buffer is full, which pauses the engine or the upstream behind it.

    Args:
        line: our own server's, which takes the answer in place of `send`.
        cut: drops the connection at once, unsent bytes included; None where the server offers no such thing.
        slow_reader_timeout_s: seconds one write may wait.
        slow_readers: counts the answers given up for that reason.
    """

    def __init__(
        self,
        send: Send,
        line: Line | None = None,
        *,
        cut: Callable[[], object] | None,
        slow_reader_timeout_s: float,
        slow_readers: Counter,
    ) -> None:
        self._asgi_send = send
        self._line = line
        self._cut = cut
        self._timeout_s = slow_reader_timeout_s
        self._slow_readers = slow_readers
        self.started = False
        self.ended = False
        self._left: int | None = None
        """Bytes of a declared length that are still to come."""
        self._gone_code = "disconnected"
        self.gone = False
        """The caller disconnected or was given up on; nothing is written any more."""
        self.cut_off = False
        """`abort` has dropped the connection."""

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        self.started = True
        for name, value in headers:
            if name == b"content-length":
                self._left = int(value)
        if self._line is None:
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
        elif self.gone:
            raise ClientGone(self._gone_code)
        else:
            self._line.begin(status, headers, self._left)

    async def write(self, data: bytes) -> None:
        last = False
        if self._left is not None:
            self._left -= len(data)
            # All that was declared: the end goes with it.
            last = self._left == 0
        line = self._line
        if line is None or self.gone or line.jammed:
            await self._put(data, last)
        else:
            self.ended = last
            line.write(data, last=last)

    async def end(self) -> None:
        if not self.ended:
            await self._put(b"", True)

    async def _put(self, data: bytes, last: bool) -> None:
        # Set first: sending the last piece makes the server report the request as over to whoever listens for a
        # disconnect.
        self.ended = last
        line = self._line
        try:
            if line is None:
                await self._send({"type": "http.response.body", "body": data, "more_body": not last})
                return
            if self.gone:
                raise ClientGone(self._gone_code)
            if line.jammed:
                await self._waiting(line.drain())
            line.write(data, last=last)
        except ClientGone:
            self.ended = False
            raise

    def abort(self) -> None:
        """Cut the connection, so that an unfinished answer cannot pass for a whole one. Idempotent."""
        self.gone = True
        if self._cut is not None:
            self.cut_off = True
            self._cut()

    async def _send(self, message: Message) -> None:
        if self.gone:
            raise ClientGone(self._gone_code)
        await self._waiting(self._asgi_send(message))

    async def _waiting(self, work: Awaitable[None]) -> None:
        """Await `work`, for as long as a reader may take.

        Raises:
            ClientGone: it took longer, or the connection is broken.
        """
        try:
            await within(work, self._timeout_s)
        except TimeoutError:
            self.gone = True
            self._gone_code = "slow_reader"
            self._slow_readers.inc()
            raise ClientGone(self._gone_code) from None
        except OSError:
            self.gone = True
            raise ClientGone from None
