"""Counting the tokens of one engine call as they are made. Knows vLLM's objects by shape alone."""

from __future__ import annotations

from typing import Any

from weighbridge.config.usage import TokenMeter
from weighbridge.pool.engine import EngineUnavailable


class Track:
    """What one call has made so far, and how it ended.

    vLLM's outputs are counted when they pass. A call that is cut off has made tokens that never passed (its reader
    was slow, or several were to be handed over at once), so `settle` asks the detokenizers for the rest.
    """

    __slots__ = ("_counted", "_seen_cached", "_states", "failure", "finished", "meter")

    def __init__(self, meter: TokenMeter) -> None:
        self.meter = meter
        self.finished = False
        """The engine finished every choice for a reason that makes it an answer."""
        self.failure: BaseException | None = None
        """What ended the engine's output early; vLLM's chat layer turns it into text before we could see it."""
        self._states: list[Any] = []
        self._counted = 0
        self._seen_cached = False

    def taken(self, states: list[Any]) -> None:
        """The engine has taken the request; `states` are vLLM's records of its choices."""
        if states and not self._states:
            self.meter.prompt += int(states[0].prompt_len)
        self._states = states

    @property
    def taken_by_engine(self) -> bool:
        """Whether the request got past all checks."""
        return bool(self._states)

    def passed(self, output: Any) -> None:
        """Count one output, in which every choice holds its new tokens only.

        Raises:
            EngineUnavailable: the engine was told to stop; an answer that breaks off must not look finished.
        """
        if not self._seen_cached:
            self._seen_cached = True
            self.meter.cached += output.num_cached_tokens or 0
        made = sum(len(choice.token_ids) for choice in output.outputs)
        self._counted += made
        self.meter.completion += made
        if any(choice.finish_reason in ("abort", "error") for choice in output.outputs):
            raise EngineUnavailable("The local model stopped before the answer was complete.")
        if output.finished:
            self.finished = True

    def settle(self) -> None:
        """Count what the engine had made when the call was cut off."""
        if self.finished:
            return
        made = sum(
            state.detokenizer.num_output_tokens() for state in self._states if state.detokenizer is not None
        )
        if made > self._counted:
            self.meter.completion += made - self._counted
            self._counted = made
