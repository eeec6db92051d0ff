"""The right to a slot of a tier, and the worker it is good for."""

from __future__ import annotations

from typing import Final

from weighbridge.config.usage import TokenMeter
from weighbridge.pool.engine import Engine
from weighbridge.pool.slot_lock import Slot
from weighbridge.pool.uptime import Uptime


class SlotLease:
    """A slot in use. It always comes back, from a `finally`.

    Args:
        engine: the engine of the slot's worker, as it was when the slot was granted.
        answer_tokens: tokens the answer was expected to take.
        prompt_bytes: bytes of the request's body that become prompt, about.
        uptime: the worker's present period of being up.
    """

    __slots__ = ("_answer_tokens", "_since", "_slot", "_uptime", "engine", "prompt_bytes", "worker_us")

    def __init__(
        self, slot: Slot, engine: Engine, uptime: Uptime, answer_tokens: int = 0, prompt_bytes: int = 0
    ) -> None:
        self._slot = slot
        self._uptime: Uptime | None = uptime
        self._since = uptime.lend()
        self.worker_us = 0
        """What it had of its worker, once it was given back: microseconds, divided by the worker's slots."""
        self._answer_tokens = answer_tokens
        self.engine: Final = engine
        self.prompt_bytes: Final = prompt_bytes

    @property
    def worker(self) -> str:
        """The worker's name inside its tier."""
        return self._slot.place

    def grown(self, meter: TokenMeter) -> None:
        """Reserve for what the prompt really came to, and for an answer that runs past its expected length."""
        if meter.prompt:
            self._slot.resize(meter.prompt + max(self._answer_tokens, meter.completion))

    def release(self) -> None:
        """Give the slot back. Does not wait and may be called again."""
        uptime, self._uptime = self._uptime, None
        if uptime is not None:
            self.worker_us = uptime.take_back(self._since)
        self._slot.release()
