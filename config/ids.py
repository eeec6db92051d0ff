"""Request ids: UUIDv7, so that they sort by time of admission."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from weighbridge.config.clock import Clock, SystemClock

_NOISE_BYTES = 512
"""Random bytes taken from the system at a time: 64 ids."""


class IdFactory:
    """Makes UUIDv7 texts (RFC 9562) that never repeat and never go back within one process.

    The 12 bits after the millisecond count up inside it; when they run out, the millisecond is carried on, so
    a burst stays ordered.
    """

    def __init__(self, clock: Clock | None = None, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        self._clock: Clock = clock or SystemClock()
        self._random = random_bytes
        self._lock = threading.Lock()
        self._last = 0
        self._noise = b""
        self._used = 0

    def new(self) -> str:
        with self._lock:
            stamp = (self._clock.wall_ns() // 1_000_000) << 12
            self._last = max(stamp, self._last + 1)
            ms, count = self._last >> 12, self._last & 0xFFF
            at = self._used
            if at == len(self._noise):
                # Asking the system costs more than all the rest.
                self._noise, at = self._random(_NOISE_BYTES), 0
            self._used = at + 8
            noise = self._noise[at : at + 8]
        low = int.from_bytes(noise, "big")
        return (
            f"{ms >> 16 & 0xFFFF_FFFF:08x}-{ms & 0xFFFF:04x}-7{count:03x}"
            f"-{0x8000 | low >> 48 & 0x3FFF:04x}-{low & 0xFFFF_FFFF_FFFF:012x}"
        )
