"""How hard a request is, as one number from 0 to 1.

The score is a calibrated P(the 8B fails) behind a monotone map, so that the policy's bounds mean something: below
0.45 exactly when P is under 0.30, below 0.55 exactly when P is under 0.55.

What it is worth: fitted on structural features of 9,040 English prompts with the outcomes of a Llama-3.1-8B, it has an
AUC of 0.63 for "the 8B fails" on 2,944 others of the same sources (prompt length alone: 0.56). Most of that is telling
kinds of question apart; it hardly tells two questions of one kind apart. Tasks without outcomes (classification,
extraction, summarization, rag, decision, translation, chat, unknown) and the weights of `proof` and `constraints` are
judgements. Korean uses the same priors and half of the fitted weights, as no Korean outcomes exist.
`docs/difficulty.md` has the figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from weighbridge.policies.risk import Risk
from weighbridge.policies.tasks import Task
from weighbridge.router.difficulty.features import structure
from weighbridge.router.difficulty.language import Language
from weighbridge.router.difficulty.model import Model, to_score
from weighbridge.router.difficulty.task import detect
from weighbridge.router.difficulty.view import look

_MENTIONED: Final = 0.1
_MODEL: Final = Model(files("weighbridge.router.difficulty").joinpath("model.json").read_bytes())

CALIBRATION_VERSION: Final[str] = _MODEL.version
"""Name and content hash of the weights in use."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """What is known of a request before anybody has answered it.

    Args:
        score: difficulty from 0 to 1, before any clamp of a policy.
        task: the kind of task.
        language: `ko`, `en` or `other`.
        features: what told the task, then what moved the score most, in log-odds (`proof+0.80`); names of ours, never
            a piece of the request.
    """

    score: float
    task: Task
    language: Language
    features: tuple[str, ...]

    def score_at(self, risk: Risk) -> float:
        """The score where the policy takes `risk`."""
        return self.score


def assess(body: Mapping[str, Any]) -> Assessment:
    """Score a decoded chat-completions body. Pure, bounded in time, and never raises, whatever the body holds."""
    view = look(body)
    found = detect(view)
    probability, parts = _MODEL.weigh(found.task, found.language, structure(view))
    moved = sorted((-abs(part), name, part) for name, part in parts if abs(part) >= _MENTIONED)
    return Assessment(
        score=to_score(probability),
        task=found.task,
        language=found.language,
        features=(*found.signals, *[f"{name}{part:+.2f}" for _, name, part in moved[:5]]),
    )
