"""Where an answer goes: the ASGI connection, with a bound on how long a slow reader may keep us waiting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from starlette.types import Message, Send

from weighbridge.gateway.waiting import within
from weighbridge.router.admitted import ClientGone, Header


class Counter(Protocol):
    def inc(self, amount: float = 1) -> None: ...


class AsgiSink:
    """The `router.admitted.Sink` of one HTTP request.

    Writing waits while the connection's buffer is full, which pauses the engine or the upstream behind it.

    Args:
        cut: drops the connection at once, unsent bytes included; None where the server offers no such thing.
        slow_reader_timeout_s: seconds one write may wait.
        slow_readers: counts the answers given up for that reason.
    """

    def __init__(
        self,
        send: Send,
        *,
        cut: Callable[[], object] | None,
        slow_reader_timeout_s: float,
        slow_readers: Counter,
    ) -> None:
        self._asgi_send = send
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
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, data: bytes) -> None:
        if self._left is not None:
            self._left -= len(data)
            if self._left == 0:
                # All that was declared: the end goes with it.
                await self._send_last(data)
                return
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        if not self.ended:
            await self._send_last(b"")

    async def _send_last(self, data: bytes) -> None:
        # Set first: sending the last piece makes the server report the request as over to whoever listens for a
        # disconnect.
        self.ended = True
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": False})
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
        try:
            await within(self._asgi_send(message), self._timeout_s)
        except TimeoutError:
            self.gone = True
            self._gone_code = "slow_reader"
            self._slow_readers.inc()
            raise ClientGone(self._gone_code) from None
        except OSError:
            self.gone = True
            raise ClientGone from None
