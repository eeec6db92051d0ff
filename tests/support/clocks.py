"""Clocks in the hands of a test."""

from __future__ import annotations


class SetClock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now_ns = 1_767_225_600_000_000_000

    def monotonic(self) -> float:
        return self.now_ns / 1e9

    def wall_ns(self) -> int:
        return self.now_ns
