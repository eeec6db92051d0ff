"""Getting an answer to its caller: the head, the events, the signs of life while it waits, and the end.

A stream that waits gets a comment now and then. The first one forces the headers out before the road is known, so
what they would have said comes in a last comment, and a refusal comes as an error event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec

from weighbridge.config.errors import ApiError
from weighbridge.router import answer
from weighbridge.router.admitted import ClientGone, Header, Sink

log = logging.getLogger("weighbridge.router")

KEEP_ALIVE = b": keep-alive\n\n"

_EARLY_S = 0.001
"""Seconds by which a timer may fire before its time, as clocks are read."""


class Delivery:
    """The caller's end of one request.

    Args:
        stream: whether the caller asked for events.
        headers: our own headers; called with False while the road is not settled.
        summary: what the last comment says where the headers went out too early to say it.
        keep_alive_s: seconds without a byte after which a stream gets a comment.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        stream: bool,
        headers: Callable[[bool], list[Header]],
        summary: Callable[[], dict[str, Any]],
        keep_alive_s: float,
    ) -> None:
        self._sink = sink
        self._stream = stream
        self._headers = headers
        self._summary = summary
        self._keep_alive_s = keep_alive_s
        self._timer: asyncio.TimerHandle | None = None
        self._now: Callable[[], float] = time.monotonic
        self._comment: asyncio.Task[None] | None = None
        self._busy = False
        """Something is being sent; it may wait for a caller who does not read."""
        self._sent_at = 0.0
        """When the last byte was sent, in seconds of the event loop."""
        self.opened = False
        """The headers are out, with status 200."""
        self.early = False
        """A comment forced them out before the road was known."""
        self.discard = False
        """The caller has left and the answer is only read to its end: what is written goes nowhere."""
        self.reads_on = False
        """A caller who leaves does not end the reading; whoever set it sees to that."""

    def start_waiting(self) -> None:
        """From now on a stream gets a comment whenever it is silent for too long; `stop` ends that."""
        if self._stream:
            loop = asyncio.get_running_loop()
            self._sent_at = loop.time()
            self._timer = loop.call_later(self._keep_alive_s, self._tick)
            self._now = loop.time

    async def settle(self) -> None:
        """No more comments, and none on its way: `opened` stays as it is from now on."""
        self.stop()
        await self._quiet()

    def stop(self) -> None:
        """No more comments."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def begin(self) -> None:
        """Send the head of a stream, if it is not out yet."""
        await self._quiet()
        if not self.opened and not self.discard:
            self.opened = True
            self._busy = True
            await self._sink.start(200, [*answer.content_headers(True), *self._headers(True)])
            self._busy = False

    async def write(self, data: bytes) -> None:
        """Send a piece of a stream."""
        if self._comment is not None:
            await self._quiet()
        if self.discard:
            return
        self._busy = True
        try:
            await self._sink.write(data)
        except ClientGone as exc:
            if not self.reads_on or exc.code != "disconnected":
                raise
            self.discard = True
        self._busy = False
        self._sent_at = self._now()

    async def end(self) -> None:
        """Finish a stream that is whole."""
        await self.settle()
        await self._sink.write(self._last_words() + answer.DONE)
        await self._sink.end()

    async def whole(self, document: bytes) -> None:
        """Send an answer that is one document."""
        self.opened = True
        length = (b"content-length", str(len(document)).encode())
        await self._sink.start(200, [*answer.content_headers(False), length, *self._headers(True)])
        await self._sink.write(document)
        await self._sink.end()

    async def broken(self, error: ApiError, request_id: str) -> None:
        """Tell the caller that a stream ends with an error. A document cannot say so: the gateway cuts what is not
        ended."""
        if not self._stream:
            return
        try:
            await self.settle()
            await self._sink.write(self._last_words() + answer.frame(answer.error_body(error)))
            await self._sink.end()
        except ClientGone:
            log.info("request %s: caller left before the error event", request_id)

    def _last_words(self) -> bytes:
        return b": weighbridge " + msgspec.json.encode(self._summary()) + b"\n\n" if self.early else b""

    def _tick(self) -> None:
        silent_s = self._now() - self._sent_at
        late = silent_s >= self._keep_alive_s - _EARLY_S
        wait_s = self._keep_alive_s if late else self._keep_alive_s - silent_s
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._tick)
        # A piece that is on its way waits for its reader: two at once would run into each other.
        if late and not self._busy and not self.discard and (self._comment is None or self._comment.done()):
            self._comment = asyncio.ensure_future(self._send_comment())

    async def _send_comment(self) -> None:
        try:
            if not self.opened:
                self.opened = self.early = True
                await self._sink.start(200, [*answer.content_headers(True), *self._headers(False)])
            await self._sink.write(KEEP_ALIVE)
            self._sent_at = self._now()
        except ClientGone:
            # The request itself learns it from the connection's watch, or from its own next write.
            self.stop()

    async def _quiet(self) -> None:
        """Wait for a comment that is on its way: pieces of a stream must not run into each other."""
        comment, self._comment = self._comment, None
        if comment is not None:
            await comment
