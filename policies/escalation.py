"""What a policy takes as evidence that a local answer is not good enough, and how often it lets one be made anew."""

from __future__ import annotations

from dataclasses import dataclass

from weighbridge.config.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Escalation:
    """The rules for one task."""

    on: frozenset[Evidence]
    """What counts."""
    min_mean_logprob: float | None
    """Mean log-probability per token below which an answer counts as `low_logprob`; None where it never does."""
    most: int
    """Moves up that one request may make at most."""
    hold_tokens: int
    """Tokens of a stream that are held back and looked at before the first is sent; 0 holds none."""
