"""uvicorn's HTTP protocol with what it lacks towards callers who mean ill or have gone quiet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from weighbridge.config.errors import ApiError
from weighbridge.gateway.chat import CUT
from weighbridge.gateway.concurrency import gateway_busy
from weighbridge.gateway.errors import error_answer
from weighbridge.gateway.framing import MAX_HEAD_BYTES, check_head, head_too_large, invalid_http
from weighbridge.gateway.line import LINE, Line

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, Scope

log = logging.getLogger("weighbridge.gateway")

HEAD_TIMEOUT_S = 30.0
"""A connection must have sent whole headers this long (seconds) after it opened or began to send them."""

UNREAD_BODY_TIMEOUT_S = 10.0
"""A body that nobody reads any more must have ended this long (seconds) after its request was answered."""

MAX_PIPELINED = 16
"""Requests that may wait on one connection for the answer before theirs."""

SPARE_BODY_BYTES = 65_536
"""Chunk sizes, extensions and trailers may be as large as what they carry, and so many bytes larger."""

_CLOSE = (b"connection", b"close")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What connections may cost.

    most: connections at once; one more is told to come again.
    stalled_s: seconds in which no byte of a waiting answer is taken, until the connection is dropped.
    refused: told the reason of every refusal, which is `connections`.
    """

    most: int = 8192
    stalled_s: float = 35.0
    refused: Callable[[str], None] = lambda reason: None


class GatewayProtocol(HttpToolsProtocol):
    """Bounds what one connection costs: the size and the time of a request's head, what surrounds its body, the time
    of a body that is thrown away and of an answer that nobody takes, the requests that wait, and the idle time.

    An `Upgrade` is ignored, as HTTP allows: the parser would skip that request's body and read it as the next
    request. What is not HTTP is refused in the API's own error shape, after the whole requests before it have had
    their answers, and nothing that follows on the connection is looked at. The application is offered to drop the
    connection at once: closing one that nobody reads would wait for its buffer to drain. Trailers are thrown away.

    Args:
        new_id: makes the request ids of refusals.
    """

    def __init__(self, *args: Any, new_id: Callable[[], str], limits: ConnectionLimits, **more: Any) -> None:
        super().__init__(*args, **more)
        self._new_id = new_id
        self._limits = limits
        self._reading_head = True
        self._reading_body = False
        self._head_bytes = 0
        self._fed = 0
        self._body_bytes = 0
        self._around_body = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        self._deaf = False
        self._keep_refusal = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._abort_in(HEAD_TIMEOUT_S)
        if len(self.connections) > self._limits.most:
            self._limits.refused("connections")
            self._refuse(gateway_busy("The gateway has as many connections as it takes at once."))

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_stall()
        # uvicorn tells the newest of several pipelined requests only.
        if self._running is not None and not self._running.response_complete:
            _disconnect(self._running)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._deaf:
            return
        in_body = self._reading_body
        if not self._parsed(data):
            return
        if self._reading_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self._refuse(head_too_large())
            elif self._timer is None:
                self._abort_in(HEAD_TIMEOUT_S)
        elif self._reading_body:
            if in_body:
                self._around_body += len(data)
                if self._around_body > 2 * self._body_bytes + SPARE_BODY_BYTES:
                    self._refuse(invalid_http("The chunks of the body carry too little."))
        elif self.cycle.response_complete and not self.transport.is_closing():
            # Line ends between requests, or the rest of a body nobody reads: the connection is idle again.
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _parsed(self, data: bytes) -> bool:
        """Whether `data` was taken; if not, it was refused."""
        self._fed = len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as fault:
            why = fault.__context__
            self._refuse(
                why if isinstance(why, ApiError) else invalid_http("This is not a valid HTTP request.")
            )
        return not self._deaf

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

    def _refuse(self, error: ApiError) -> None:
        """Refuse what the connection has just sent, and listen no more."""
        self._deaf = True
        newest = self.cycle
        self.cycle, app = self._refusal(error)
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

    def _refusal(self, error: ApiError) -> tuple[RequestResponseCycle, ASGI3Application]:
        request_id = self._new_id()
        headers, body = error_answer(error, request_id, (_CLOSE,))
        log.info("request %s: refused as HTTP: %s", request_id, error.message)

        async def refuse(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
            await send({"type": "http.response.start", "status": error.status, "headers": headers})
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
        self._line = Line()
        self.scope["extensions"] = {CUT: self._cut, LINE: self._line}  # type: ignore[dict-item]

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        check_head(self.parser.get_http_version(), self.url, self.headers, self._head_bytes + self._fed)
        if len(self.pipeline) >= MAX_PIPELINED:
            raise invalid_http("Too many requests wait on this connection.")
        self._reading_head = False
        self._reading_body = True
        self._body_bytes = self._around_body = 0
        self._stop_timer()
        super().on_headers_complete()
        self._line.connect(self.cycle, old=_is_old(self.cycle))
        # The parser gives trailers out as headers; those of the request are complete.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._reading_body = False
        self._stop_timer()
        super().on_message_complete()
        if self._running is self.cycle:
            # uvicorn stops reading while much of a body waits to be taken, and reads on when the next piece is asked
            # for. After the last one nobody asks, and a caller who leaves is seen only while the connection is read.
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._drop_unless_taken()
        elif self._reading_body and self.cycle.response_complete:
            self._abort_in(UNREAD_BODY_TIMEOUT_S)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._drop_unless_taken()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._drop_unless_taken()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._stop_stall()

    def _drop_unless_taken(self, left: int | None = None) -> None:
        """Drop the connection once nothing of what waits to be sent, `left` bytes so far, is taken for too long."""
        self._stop_stall()
        waiting = self.transport.get_write_buffer_size()
        if left is not None and waiting >= left:
            self.transport.abort()
        else:
            self._stall = self.loop.call_later(self._limits.stalled_s, self._drop_unless_taken, waiting)

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

    def _stop_stall(self) -> None:
        stall, self._stall = self._stall, None
        if stall is not None:
            stall.cancel()


def _disconnect(cycle: RequestResponseCycle) -> None:
    """Tell the application behind `cycle` that its caller has gone."""
    cycle.disconnected = True
    cycle.message_event.set()
    extensions: dict[str, Any] = cycle.scope.get("extensions") or {}
    if LINE in extensions:
        extensions[LINE].gone()


def _is_old(cycle: RequestResponseCycle) -> bool:
    return cycle.scope["http_version"] == "1.0"


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
