"""Decisions that hang on no text, kept for the next request with the same facts."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from weighbridge.policies.compiled import Policy

T = TypeVar("T")

MOST: Final = 1_000
"""Decisions kept; callers can make their facts differ at will."""


class Settled(Generic[T]):
    """What was decided under the policy in force. A decision is a pure function of policy and facts, so finding one and
    making it anew are the same; only the time differs."""

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._kept: dict[Hashable, T] = {}

    def find(self, policy: Policy, facts: Hashable) -> T | None:
        """The decision for `facts`, unless another policy has come since."""
        return self._kept.get(facts) if policy is self._policy else None

    def keep(self, policy: Policy, facts: Hashable, decision: T) -> None:
        """Keep one; those of an older policy are dropped, and all where there are too many."""
        if policy is not self._policy or len(self._kept) >= MOST:
            self._policy, self._kept = policy, {}
        self._kept[facts] = decision
