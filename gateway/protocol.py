"""uvicorn's HTTP protocol with what it lacks towards callers who mean ill or have gone quiet."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weighbridge.gateway.chat import CUT

MAX_HEAD_BYTES = 65_536
"""Request line and headers of one request, in bytes; beyond it the connection is closed with 400."""

HEAD_TIMEOUT_S = 30.0
"""A connection must have sent whole headers this long (seconds) after it opened or began to send them."""


class GatewayProtocol(HttpToolsProtocol):
    """Bounds the size and the time of a request's head, which the parser would collect for ever.

    It also offers the application to drop the connection at once: closing one that nobody reads would wait for its
    buffer to drain.
    """

    _reading_head = True
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._reading_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers of the request are too large.")
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading_head = True
        self._head_bytes = 0
        self.scope["extensions"] = {CUT: self.transport.abort}  # type: ignore[dict-item]

    def on_headers_complete(self) -> None:
        self._reading_head = False
        self._stop_timer()
        super().on_headers_complete()

    def _stop_timer(self) -> None:
        timer, self._head_timer = self._head_timer, None
        if timer is not None:
            timer.cancel()
