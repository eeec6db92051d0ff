"""One deadline travels with a request through every room."""

from __future__ import annotations

import msgspec

from weighbridge.config.clock import Clock


class Deadline(msgspec.Struct, frozen=True):
    """A moment on the injected monotonic clock, in seconds."""

    at: float
    clock: Clock

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> Deadline:
        return cls(clock.monotonic() + seconds, clock)

    def remaining(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.at - self.clock.monotonic())

    def expired(self) -> bool:
        return self.clock.monotonic() >= self.at

    def within(self, seconds: float) -> Deadline:
        """The earlier of this deadline and `seconds` from now: a limit can only be shortened."""
        return Deadline(min(self.at, self.clock.monotonic() + seconds), self.clock)
