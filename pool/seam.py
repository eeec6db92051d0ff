"""Where a continuation joins its answer inside vLLM. Knows vLLM's objects by shape alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weighbridge.pool.engine import Trail


class Seam:
    """What vLLM is asked for, and what its record of the request has to hold, for an answer to go on at its trail.

    vLLM gets the trail's tokens as prompt. Its detokenizer has read them as answer, so that half a character, half a
    stop text and the text held back are where they were.

    Args:
        make_detokenizer: makes vLLM's detokenizer for a prompt's token ids and sampling parameters.
        prompt: as rendered, with its token ids.
        params: sampling parameters of the whole answer. Neither is changed.
        trail: loses tokens at its end where they have to be made again.
    """

    def __init__(
        self,
        make_detokenizer: Callable[[list[int], Any], Any],
        prompt: dict[str, Any],
        params: Any,
        trail: Trail,
    ) -> None:
        self.prompt_token_ids: list[int] = prompt["prompt_token_ids"]
        """Of the prompt alone."""
        self.with_logprobs: bool = params.logprobs is not None
        if params.structured_outputs is not None and not self.with_logprobs:
            # A tool call may have begun that nobody has seen: its grammar has to see its beginning.
            _drop_unseen(trail, make_detokenizer(self.prompt_token_ids, params))
        self._detokenizer = make_detokenizer(self.prompt_token_ids, params)
        self.stop: str | None = self._detokenizer.update(trail.token_ids, False)
        self.token_ids: list[int] = list(self._detokenizer.output_token_ids)
        """Of the answer so far."""
        made = len(self.token_ids)
        left = None if params.max_tokens is None else params.max_tokens - made
        self.finish_reason: str | None = None
        """Why there is nothing left to make, None where there is."""
        if self.stop is not None:
            self.finish_reason = "stop"
        elif left is not None and left <= 0:
            self.finish_reason = "length"
        self.text: str = self._detokenizer.get_next_output_text(self.finish_reason is not None, True)
        """The answer's text so far, but for what has to be held back."""
        self.prompt = {**prompt, "prompt_token_ids": [*self.prompt_token_ids, *self.token_ids]}
        self.params = params.clone()
        self.params.max_tokens = left
        self.params.min_tokens = max(0, params.min_tokens - made)

    def join(self, state: Any) -> None:
        """Put vLLM's record of the request right, before its first output.

        Its `prompt_len` stays: it is what this engine computes.
        """
        state.detokenizer = self._detokenizer
        state.prompt_token_ids = self.prompt_token_ids
        state.sent_tokens_offset = len(self.token_ids)
        if isinstance(state.logprobs_processor.logprobs, list):
            # The texts of tokens are told from the tokens before them: four make a character.
            state.logprobs_processor.logprobs += [{token: None} for token in self.token_ids[-4:]]


def _drop_unseen(trail: Trail, detokenizer: Any) -> None:
    """Take from a trail's end the tokens of whose text nothing was handed over."""
    seen = 0
    for count, token in enumerate(trail.token_ids, start=1):
        detokenizer.update([token], False)
        if len(detokenizer.output_text) <= trail.text_chars:
            seen = count
    trail.dropped += len(trail.token_ids) - seen
    del trail.token_ids[seen:]
