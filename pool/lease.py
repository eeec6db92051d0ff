"""The right to a slot of a tier, and the worker it is good for."""

from __future__ import annotations

from typing import Final

from weighbridge.config.usage import TokenMeter
from weighbridge.pool.engine import Engine
from weighbridge.pool.slot_lock import Slot


class SlotLease:
    """A slot in use. It always comes back, from a `finally`.

    Args:
        engine: the engine of the slot's worker, as it was when the slot was granted.
        answer_tokens: tokens the answer was expected to take.
        prompt_bytes: bytes of the request's body that become prompt, about.
    """

    __slots__ = ("_answer_tokens", "_slot", "engine", "prompt_bytes")

    def __init__(self, slot: Slot, engine: Engine, answer_tokens: int = 0, prompt_bytes: int = 0) -> None:
        self._slot = slot
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
        self._slot.release()
