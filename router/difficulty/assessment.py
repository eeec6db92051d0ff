"""What is known of a request before anybody has answered it: its task and two risks, and a score made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from weighbridge.policies.risk import Risk
from weighbridge.policies.tasks import Task
from weighbridge.router.difficulty.bands import banded
from weighbridge.router.difficulty.gibberish import is_speech
from weighbridge.router.difficulty.language import Language
from weighbridge.router.difficulty.looking import look
from weighbridge.router.difficulty.model import MENTIONED, Model, log_odds

_MOST_MENTIONED: Final = 6
_DEFAULT_RISK: Final = Risk()

NOT_ESTIMATED: Final = -1.0
"""Stands for a probability that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is known of a request before anybody has answered it.

    Args:
        score: difficulty from 0 to 1 under the default appetite for risk, before any clamp of a policy.
        task: the kind of task.
        language: `ko`, `en` or `other`.
        moved: what moved the first risk, in log-odds, by names of ours and never a piece of the request. `words`
            stands for all of its words together.
        p_8b_fails: P(the 8B fails), 0 to 1, or NOT_ESTIMATED.
        p_70b_fails: P(the 70B fails and the frontier model does not), the same.
    """

    score: float
    task: Task
    language: Language
    moved: tuple[tuple[str, float], ...]
    p_8b_fails: float = NOT_ESTIMATED
    p_70b_fails: float = NOT_ESTIMATED

    @property
    def features(self) -> tuple[str, ...]:
        """What moved the first risk most, the first most (`proof+0.60`)."""
        most = sorted((-abs(part), name, part) for name, part in self.moved if abs(part) >= MENTIONED)
        return tuple([f"{name}{part:+.2f}" for _, name, part in most[:_MOST_MENTIONED]])

    def score_at(self, risk: Risk) -> float:
        """The score under a policy's appetite for risk; the plain score where no risk was estimated."""
        if self.p_8b_fails == NOT_ESTIMATED:
            return self.score
        return banded(self.p_8b_fails, self.p_70b_fails, risk)


def assess_with(model: Model, body: Mapping[str, Any]) -> Assessment:
    """Score with weights other than the shipped ones."""
    seen = look(body, model.known)
    if not is_speech(seen):
        p_8b, p_70b = model.unknown
        moved = (("no-speech", log_odds(p_8b)),)
        return Assessment(banded(p_8b, p_70b, _DEFAULT_RISK), "unknown", seen.language, moved, p_8b, p_70b)
    found = model.weigh(seen.zones, seen.marks, seen.hard, seen.language, tall=seen.tall)
    return Assessment(
        score=banded(found.p_8b_fails, found.p_70b_fails, _DEFAULT_RISK),
        task=found.task,
        language=seen.language,
        moved=found.moved,
        p_8b_fails=found.p_8b_fails,
        p_70b_fails=found.p_70b_fails,
    )
