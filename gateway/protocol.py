"""uvicorn's HTTP protocol with what it lacks towards callers who mean ill or have gone quiet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from weighbridge.config.errors import InvalidRequest
from weighbridge.gateway.chat import CUT
from weighbridge.gateway.errors import error_answer

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope

log = logging.getLogger("weighbridge.gateway")

MAX_HEAD_BYTES = 65_536
"""Request line and headers of one request, in bytes; beyond it the connection is closed with 400."""

HEAD_TIMEOUT_S = 30.0
"""A connection must have sent whole headers this long (seconds) after it opened or began to send them."""

UNREAD_BODY_TIMEOUT_S = 10.0
"""A body that nobody reads any more must have ended this long (seconds) after its request was answered."""

_CLOSE = (b"connection", b"close")


class GatewayProtocol(HttpToolsProtocol):
    """Bounds the size and the time of a request's head, and the time of a body that is thrown away.

    An `Upgrade` is ignored, as HTTP allows: the parser would skip that request's body and read it as the next
    request. What is not HTTP is refused in the API's own error shape, after the whole requests before it have had
    their answers, and nothing that follows on the connection is looked at. The application is offered to drop the
    connection at once: closing one that nobody reads would wait for its buffer to drain.

    Args:
        new_id: makes the request ids of refusals.
    """

    def __init__(self, *args: Any, new_id: Callable[[], str], **more: Any) -> None:
        super().__init__(*args, **more)
        self._new_id = new_id
        self._reading_head = True
        self._reading_body = False
        self._head_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        self._deaf = False
        self._keep_refusal = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._abort_in(HEAD_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        # uvicorn tells the newest of several pipelined requests only.
        if self._running is not None and not self._running.response_complete:
            _disconnect(self._running)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._deaf:
            return
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.send_400_response("This is not a valid HTTP request.")
        if self._deaf or not self._reading_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers of the request are too large.")
        elif self._timer is None:
            self._abort_in(HEAD_TIMEOUT_S)

    def _feed(self, data: bytes) -> None:
        rest = memoryview(data)
        while True:
            try:
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as stop:
                head = self._head_without_upgrade()
                rest = rest[stop.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self.parser.feed_data(head)
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        """The head that was just parsed, such that a new parser goes on with its body."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise httptools.HttpParserError("a tunnel was asked for")
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def send_400_response(self, msg: str) -> None:
        """Refuse what the connection has just sent, and listen no more.

        Args:
            msg: one sentence for the caller.
        """
        self._deaf = True
        newest = self.cycle
        self.cycle, app = self._refusal(msg)
        if newest is None or newest.response_complete:
            self._start_asgi_task(self.cycle, app)
        elif not newest.more_body:
            self.pipeline.appendleft((self.cycle, app))
        elif self.pipeline:
            # From here on it is the body of the request named last that is broken; this one waits its turn.
            self.pipeline[0] = (self.cycle, app)
        else:
            _disconnect(newest)
            if newest.response_started:
                self.transport.close()
            else:
                self._keep_refusal = True
                self._start_asgi_task(self.cycle, app)
        self._abort_in(HEAD_TIMEOUT_S) if self._running is self.cycle else self._stop_timer()

    def _refusal(self, msg: str) -> tuple[RequestResponseCycle, ASGI3Application]:
        request_id = self._new_id()
        headers, body = error_answer(InvalidRequest(msg, code="invalid_http"), request_id, (_CLOSE,))
        log.info("request %s: refused as HTTP: %s", request_id, msg)

        async def refuse(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": body, "more_body": False})

        cycle = RequestResponseCycle(
            scope={"type": "http", "method": "GET", "http_version": "1.1"},  # type: ignore[typeddict-item]
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=False,
            on_response=self.on_response_complete,
        )
        return cycle, refuse

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading_head = True
        self._head_bytes = 0
        self.scope["extensions"] = {CUT: self._cut}  # type: ignore[dict-item]

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._reading_head = False
        self._reading_body = True
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._reading_body = False
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._reading_body and self.cycle.response_complete:
            self._abort_in(UNREAD_BODY_TIMEOUT_S)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, _unchunked(cycle, app) if _is_old(cycle) else app)

    def _cut(self) -> None:
        # A request that was refused halfway ends as one whose caller left; the refusal still has to go out.
        if not self._keep_refusal:
            self.transport.abort()

    def _abort_in(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


def _disconnect(cycle: RequestResponseCycle) -> None:
    """Tell the application behind `cycle` that its caller has gone."""
    cycle.disconnected = True
    cycle.message_event.set()


def _is_old(cycle: RequestResponseCycle) -> bool:
    return cycle.scope["http_version"] in ("0.9", "1.0")


def _unchunked(cycle: RequestResponseCycle, app: ASGI3Application) -> ASGI3Application:
    """`app` for a caller who does not know chunks: an answer of unknown length ends with its connection."""

    async def plain(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        until_close = False

        async def bare(message: ASGISendEvent) -> None:
            nonlocal until_close
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.get("headers", ())}
                until_close = b"content-length" not in names
                if until_close:
                    cycle.chunked_encoding = False
            elif message["type"] == "http.response.body" and until_close:
                # uvicorn holds the pieces against a declared length, which each piece is then for itself.
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, bare)

    return plain
