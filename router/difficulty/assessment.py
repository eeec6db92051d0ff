"""What is known of a request before anybody has answered it: its task and two risks, and a score made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from weighbridge.policies.risk import Risk
from weighbridge.policies.tasks import Task
from weighbridge.router.difficulty.bands import SECOND, banded
from weighbridge.router.difficulty.gibberish import is_speech
from weighbridge.router.difficulty.language import Language
from weighbridge.router.difficulty.looking import Seen, look
from weighbridge.router.difficulty.model import EXAM, MENTIONED, Model, Weighed, log_odds
from weighbridge.router.difficulty.within import (
    LOOKED_AT,
    QUESTION_KEY,
    exam_in,
    has_tail,
    is_question,
    may_hold_question,
    question_in,
)

_MOST_MENTIONED: Final = 6
_DEFAULT_RISK: Final = Risk()

SURE: Final = 0.99
"""A request that is surely a question to be answered is not searched for one."""

_SMALL: Final = frozenset(["classification", "extraction"])
"""Tasks that are held to be the 8B's whatever the score."""

_LEAST_ANSWERED: Final = {"en": 0.7, "ko": 0.9, "other": 0.9}
"""What is found inside counts only if it is so far a question to be answered."""


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
            stands for all of its words together, `question` for what the question inside is riskier alone.
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
    if _is_suspicious(seen, found):
        found = _no_easier(model, seen, found)
    return Assessment(
        score=banded(found.p_8b_fails, found.p_70b_fails, _DEFAULT_RISK),
        task=found.task,
        language=seen.language,
        moved=found.moved,
        p_8b_fails=found.p_8b_fails,
        p_70b_fails=found.p_70b_fails,
    )


def _is_suspicious(seen: Seen, found: Weighed) -> bool:
    """Whether something may stand beside a question. What is surely one, or asks nothing, is not searched."""
    if seen.waiting:
        return True
    if QUESTION_KEY in seen.lower:
        return True
    if EXAM in seen.marks:
        return found.answered < SURE or has_tail(seen.lower)
    # A Korean beginning makes the whole Korean, whatever is asked behind it.
    led = seen.language == "ko" and seen.lower[:1] >= "가"
    return (found.answered < SURE or led) and may_hold_question(seen.lower, seen.asking)


def _no_easier(model: Model, seen: Seen, found: Weighed) -> Weighed:
    """The same, no easier than the question that the request holds is alone."""
    p_8b, p_70b, task = found.p_8b_fails, found.p_70b_fails, found.task
    exam = EXAM in seen.marks
    whole = (exam_in if exam else question_in)(seen.lower, model.leaning)
    listed = exam or QUESTION_KEY in seen.lower
    if whole is None and seen.beside and is_question(seen.lower, model.leaning):
        # What stands in other messages is not to hide it either.
        whole = seen.lower
    if (
        not whole
        or (whole == seen.lower and not seen.beside)
        or not (listed or is_question(whole, model.leaning))
    ):
        whole = ""
    if seen.waiting and is_question(seen.waiting, model.leaning):
        # One look more is all that a request may cost.
        whole = max(whole, seen.waiting, key=lambda text: model.leaning(text[:LOOKED_AT]))
    held = _alone(model, whole) if whole else None
    if held is not None and max(p_8b, held.p_8b_fails) >= _DEFAULT_RISK.local_8b:
        before = _score(p_8b, p_70b)
        p_8b, p_70b = max(p_8b, held.p_8b_fails), max(p_70b, held.p_70b_fails)
        if task in _SMALL or _score(p_8b, p_70b) >= SECOND > before:
            # Its row in the policy would keep on the 8B what is more than its task says.
            task = held.task
    moved = found.moved
    if p_8b > found.p_8b_fails:
        moved = (*moved, ("question", log_odds(p_8b) - log_odds(found.p_8b_fails)))
    return found._replace(task=task, p_8b_fails=p_8b, p_70b_fails=p_70b, moved=moved)


def _score(p_8b: float, p_70b: float) -> float:
    return banded(p_8b, p_70b, _DEFAULT_RISK)


def _alone(model: Model, question: str) -> Weighed | None:
    """What the weights say of a question without anything beside it, None if it is hardly one."""
    seen = look({"messages": [{"role": "user", "content": question}]}, model.known)
    found = model.weigh(seen.zones, seen.marks, seen.hard, seen.language, tall=seen.tall)
    return found if found.answered >= _LEAST_ANSWERED[seen.language] else None
