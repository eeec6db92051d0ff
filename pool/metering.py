"""Counting the tokens of one engine call as they are made. Knows vLLM's objects by shape alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weighbridge.config.usage import TokenMeter
from weighbridge.pool.engine import Confidence, EngineUnavailable, Trail


@dataclass(slots=True)
class Tally:
    """Tokens of all of an engine's calls since it was made."""

    made: int = 0


class Track:
    """What one call has made so far, and how it ended.

    vLLM's outputs are counted when they pass. A call that is cut off has made tokens that never passed (its reader
    was slow, or several were to be handed over at once), so `settle` asks the detokenizers for the rest.

    Args:
        meter: the call's own.
        tally: the engine's.
        trail: the answer so far, of a stream that may be continued; its tokens are counted as prompt.
        confidence: gets the tokens' log-probabilities, which the engine then has to be asked for.
    """

    __slots__ = (
        "_before",
        "_counted",
        "_seen_cached",
        "_states",
        "_sums",
        "confidence",
        "failure",
        "finished",
        "meter",
        "replaying",
        "tally",
        "trail",
        "unsent",
    )

    def __init__(
        self,
        meter: TokenMeter,
        *,
        tally: Tally | None = None,
        trail: Trail | None = None,
        confidence: Confidence | None = None,
    ) -> None:
        self.meter = meter
        self.confidence = confidence
        self._sums: dict[int, float] = {}
        """Sum of the log-probabilities of each choice."""
        self.tally = Tally() if tally is None else tally
        self.trail = trail
        self.finished = False
        """The engine finished every choice for a reason that makes it an answer."""
        self.failure: BaseException | None = None
        """What ended the engine's output early; vLLM's chat layer turns it into text before we could see it."""
        self.replaying = False
        """The chat layer is being told what was handed over before, so that its state is that of the whole answer."""
        self.unsent: list[int] = []
        """Ids of tokens that passed and whose event was not handed over yet; kept only where there is a trail."""
        self._before = 0
        self._states: list[Any] = []
        self._counted = 0
        self._seen_cached = False

    def taken(self, state: Any) -> None:
        """The engine has taken one choice of the request; `state` is vLLM's record of it."""
        if not self._states:
            prompt = int(state.prompt_len)
            self.meter.prompt += prompt
            if self.trail is not None:
                self._before = len(self.trail.token_ids)
                self.trail.prompt_tokens = prompt - self._before
        self._states.append(state)

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
        self.tally.made += made
        if self.confidence is not None:
            self._weigh(self.confidence, output)
        if any(choice.finish_reason in ("abort", "error") for choice in output.outputs):
            raise EngineUnavailable("The local model stopped before the answer was complete.")
        if self.trail is not None:
            self.unsent += output.outputs[0].token_ids
        if output.finished:
            self.finished = True

    def _weigh(self, confidence: Confidence, output: Any) -> None:
        for choice in output.outputs:
            # vLLM's own sum over the choice so far.
            if choice.cumulative_logprob is not None:
                self._sums[choice.index] = choice.cumulative_logprob
        confidence.total, confidence.tokens = sum(self._sums.values()), self._counted

    def settle(self) -> None:
        """Count what the engine had made when the call was cut off."""
        if self.finished:
            return
        made = -self._before + sum(
            state.detokenizer.num_output_tokens() for state in self._states if state.detokenizer is not None
        )
        if made > self._counted:
            self.meter.completion += made - self._counted
            self._counted = made
