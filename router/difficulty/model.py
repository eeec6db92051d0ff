"""The weights of the score: fitted where outcomes exist, judged where not, read from one artefact."""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final

from weighbridge.policies.tasks import TASKS, Task
from weighbridge.router.difficulty.features import JUDGED, NAMES
from weighbridge.router.difficulty.language import Language

POINTS: Final = ((0.0, 0.0), (0.30, 0.45), (0.55, 0.55), (1.0, 1.0))
"""The map from P(the 8B fails) to the score, linear between these points."""

FOREIGN_SHARE: Final = 0.5
"""How much of the weights that were fitted on English counts for other languages."""


class Model:
    """P(the 8B fails) from a task, a language and structural features."""

    def __init__(self, raw: bytes) -> None:
        """Read an artefact.

        Raises:
            ValueError: it is not JSON, or a judged probability is not between 0 and 1.
            KeyError: a task or feature is missing.
        """
        content: dict[str, Any] = json.loads(raw)
        fitted: dict[str, float] = content["fitted_tasks"]
        judged: dict[str, float] = content["judged_tasks"]
        means: dict[str, float] = content["means"]
        self.version: str = f"{content['name']}@{hashlib.sha256(raw).hexdigest()[:8]}"
        self._fitted = frozenset(fitted)
        self._damping: float = content["damping"]
        self._weights = tuple((name, content["weights"][name], means[name]) for name in NAMES)
        self._base: dict[Task, float] = {
            task: fitted[task] if task in fitted else math.log(judged[task] / (1.0 - judged[task]))
            for task in TASKS
        }

    def weigh(
        self, task: Task, language: Language, values: Mapping[str, float]
    ) -> tuple[float, list[tuple[str, float]]]:
        """P(the 8B fails), and how far each feature moved it, in log-odds."""
        damping = 1.0 if task in self._fitted else self._damping
        share = damping if language == "en" else damping * FOREIGN_SHARE
        parts = [
            (name, (damping if name in JUDGED else share) * weight * (values[name] - mean))
            for name, weight, mean in self._weights
        ]
        total = self._base[task]
        for _, part in parts:
            total += part
        return 1.0 / (1.0 + math.exp(-total)), parts


def to_score(probability: float) -> float:
    """Map P(the 8B fails) to the score."""
    right = min(bisect_right(POINTS, (probability, 2.0)), len(POINTS) - 1)
    (x0, y0), (x1, y1) = POINTS[right - 1], POINTS[right]
    return y0 + (probability - x0) * (y1 - y0) / (x1 - x0)
