"""What a policy file may say about escalation: moving up one road after a local answer that is not good enough."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic import Field

from weighbridge.config.evidence import Evidence
from weighbridge.config.shape import Step
from weighbridge.policies.escalation import Escalation
from weighbridge.policies.strict import Strict

MAX_MOVES: Final = 2
"""There are three roads."""
MAX_HOLD_TOKENS: Final = 4096
MIN_LOGPROB: Final = -100.0

DEFAULT_ON: Final[tuple[Evidence, ...]] = ("invalid_json", "invalid_tool_call", "empty", "repetition")

_LEGAL: Final = (
    "a list of different words out of invalid_json, invalid_tool_call, empty, refusal, wrong_language, repetition, "
    "length, low_logprob"
)
_ON: Final = (
    "What counts as evidence that a local answer is not good enough: `invalid_json` against the requested JSON or "
    "schema, `invalid_tool_call`, `empty`, `refusal`, `wrong_language` for the question, `repetition`, `length` (cut "
    "off), `low_logprob`. Empty: nothing."
)
_LOGPROB: Final = (
    "Mean log-probability per token below which an answer counts as `low_logprob` (natural logarithm, at most 0). "
    "Null: never."
)
_MOST: Final = "How often one request may move up a road for it, never twice for one reason; 0 turns it off."
_HOLD: Final = (
    "Tokens of a stream that are held back and looked at before its first byte is sent; 0 holds none, and streams are "
    "then not escalated."
)


def _on(default: Any) -> Any:
    return Field(default=default, description=_ON, json_schema_extra={"legal": _LEGAL})


class EscalationRules(Strict):
    """The general rules."""

    on: list[Evidence] = _on(list(DEFAULT_ON))
    min_mean_logprob: float | None = Field(default=None, ge=MIN_LOGPROB, le=0, description=_LOGPROB)
    most: int = Field(default=1, ge=0, le=MAX_MOVES, description=_MOST)
    hold_tokens: int = Field(default=0, ge=0, le=MAX_HOLD_TOKENS, description=_HOLD)

    def rules(self) -> Escalation:
        """The same as plain values."""
        return Escalation(frozenset(self.on), self.min_mean_logprob, self.most, self.hold_tokens)

    def problems(self) -> Iterator[tuple[tuple[Step, ...], str]]:
        """What does not fit together, as path and sentence."""
        yield from _problems(self.on, self.min_mean_logprob)


class TaskEscalation(Strict):
    """What replaces the general rules for one task; what is left out stays as it is in general."""

    on: list[Evidence] | None = _on(None)
    min_mean_logprob: float | None = Field(default=None, ge=MIN_LOGPROB, le=0, description=_LOGPROB)
    most: int | None = Field(default=None, ge=0, le=MAX_MOVES, description=_MOST)
    hold_tokens: int | None = Field(default=None, ge=0, le=MAX_HOLD_TOKENS, description=_HOLD)

    def over(self, general: EscalationRules) -> Escalation:
        """The general rules with these in their place."""
        base = general.rules()
        return Escalation(
            base.on if self.on is None else frozenset(self.on),
            base.min_mean_logprob if self.min_mean_logprob is None else self.min_mean_logprob,
            base.most if self.most is None else self.most,
            base.hold_tokens if self.hold_tokens is None else self.hold_tokens,
        )

    def problems(self, general: EscalationRules) -> Iterator[tuple[tuple[Step, ...], str]]:
        """What does not fit together, as path and sentence."""
        yield from _problems(self.on or [], self.over(general).min_mean_logprob)


def _problems(on: list[Evidence], bound: float | None) -> Iterator[tuple[tuple[Step, ...], str]]:
    for n, word in enumerate(on):
        if word in on[:n]:
            yield ("on", n), "this word is given twice"
        elif word == "low_logprob" and bound is None:
            yield ("on", n), "needs min_mean_logprob"
