"""A streamed answer of a commercial API, read under the limits for its first content and for the gaps after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from weighbridge.commercial.answer import DONE, StreamReading
from weighbridge.commercial.errors import UpstreamFailed
from weighbridge.config.limits import ExchangeLimits
from weighbridge.config.sse import EventTooLarge, SseParser

MAX_EVENT_BYTES = 4 * 1024 * 1024
_LAST_WORDS_S: Final = 1.0
"""Seconds that `[DONE]` and the count of tokens may take once every choice has ended."""


class Coming:
    """The chunks of a stream as they come.

    Args:
        piece: the next bytes of the body, empty at its end; takes the seconds to wait for them.
        sent_at: when the request had been sent, by the event loop's clock.
        reading: follows them.
        limits: the policy's.
    """

    def __init__(
        self,
        piece: Callable[[float], Awaitable[bytes]],
        sent_at: float,
        reading: StreamReading,
        limits: ExchangeLimits,
    ) -> None:
        self._piece = piece
        self._sent_at = sent_at
        self._reading = reading
        self._limits = limits
        self._parser = SseParser(MAX_EVENT_BYTES)
        self._now = asyncio.get_running_loop().time
        self._last = self._now()
        self._whole = False
        self._failed: UpstreamFailed | None = None

    async def next(self) -> list[bytes] | None:
        """Those that came together; None once the answer is whole.

        Raises:
            UpstreamFailed: it broke off, stalled, or is no answer. What came before is given out first.
        """
        if self._failed is not None:
            raise self._failed
        if self._whole:
            return None
        reading = self._reading
        try:
            piece = await self._piece(max(0.0, self._by() - self._now()))
        except UpstreamFailed:
            # Only `[DONE]` or the count was still to come.
            if reading.finished:
                return None
            raise
        chunks: list[bytes] = []
        try:
            self._take(piece, chunks)
        except UpstreamFailed as exc:
            self._failed = exc
        return chunks

    def _by(self) -> float:
        """Until when to wait for more."""
        if self._reading.finished:
            return self._last + _LAST_WORDS_S
        if self._reading.begun:
            return self._last + self._limits.gap_s
        return self._sent_at + self._limits.first_token_s

    def _take(self, piece: bytes, chunks: list[bytes]) -> None:
        reading = self._reading
        try:
            events = self._parser.feed(piece)
        except EventTooLarge:
            raise UpstreamFailed("malformed") from None
        for event in events:
            if event.strip() == DONE:
                if not reading.whole:
                    raise UpstreamFailed("cut")
                self._whole = True
                return
            was = reading.finished
            if (chunk := reading.take(event)) is not None:
                chunks.append(chunk)
                # The time for the last words counts from the end of the answer, whatever else is said.
                self._last = self._last if was else self._now()
        self._whole = reading.finished and (reading.counted or not piece)
        if not piece and not self._whole:
            raise UpstreamFailed("cut")
