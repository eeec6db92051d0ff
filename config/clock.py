"""Time as a value that is passed in, so that tests can hold it in their hands."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where every room gets its time from."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; its zero means nothing."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970 in UTC, for records and ids."""
        ...


class SystemClock:
    """The machine's own clocks. `monotonic` is the clock asyncio's loops run on."""

    # The functions themselves: a request asks some twenty times.
    monotonic = staticmethod(time.monotonic)
    wall_ns = staticmethod(time.time_ns)
