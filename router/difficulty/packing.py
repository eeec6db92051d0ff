"""Turning what was fitted into the artefact: one byte a weight."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weighbridge.router.difficulty.fit_risks import RiskFit
from weighbridge.router.difficulty.fit_tasks import LABELS, TaskFit
from weighbridge.router.difficulty.judged import SLOTS
from weighbridge.router.difficulty.model import KINDS, ZERO, log_odds

_MOST: Final = 127
_OUTLIERS: Final = 0.9995
"""Weights beyond this share of all others are cut to it, so that the rest keep their digits."""


def pack(fit: TaskFit, risks: Sequence[RiskFit], priors: dict[str, list[float]]) -> dict[str, Any]:
    """Tables, weights and scales of the artefact."""
    full = np.hstack([fit.weights[1:], *[risk.weights[1:, None] for risk in risks]])
    is_mark = np.array([kind == "mark" for kind, _ in fit.names])
    scales = []
    small = np.zeros(full.shape, np.int64)
    for chosen in (~is_mark, is_mark):
        size = np.abs(full[chosen])
        scale = np.maximum(np.quantile(size, _OUTLIERS, axis=0), 1e-6) / _MOST
        small[chosen] = np.clip(np.rint(full[chosen] / scale), -_MOST, _MOST).astype(np.int64)
        scales.append([float(f"{value:.6g}") for value in scale])
    tables: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for kind, key in fit.names:
        tables[kind].append(" ".join(key) if isinstance(key, tuple) else key)
    return {
        "tasks": list(LABELS),
        "tables": tables,
        "weights": base64.b64encode((small + ZERO).astype(np.uint8).tobytes()).decode(),
        "word_scale": scales[0],
        "mark_scale": scales[1],
        "bias": [round(float(value), 6) for value in fit.bias],
        "sharpness": fit.sharpness,
        "heads": {
            name: {
                "bias": round(risk.bias, 5),
                "slope": round(risk.slope, 5),
                "shift": round(risk.shift, 5),
                "slots": {language: list(pair) for language, pair in SLOTS.items()},
                "lean": [round(risk.lean.get(task, 0.0), 5) for task in LABELS],
                "prior": [round(log_odds(priors[task][place]), 5) for task in LABELS],
            }
            for place, (name, risk) in enumerate(zip(("8b", "70b"), risks, strict=True))
        },
    }
