"""The difficulty of a request, under the weights that are shipped.

`docs/difficulty.md` says what the figures mean and what they are worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from weighbridge.router.difficulty.assessment import Assessment, assess_with
from weighbridge.router.difficulty.model import Model

__all__ = ["CALIBRATION_VERSION", "Assessment", "assess"]

_MODEL: Final = Model(files("weighbridge.router.difficulty").joinpath("model.json").read_bytes())

CALIBRATION_VERSION: Final[str] = _MODEL.version
"""Name and content hash of the weights in use."""


def assess(body: Mapping[str, Any]) -> Assessment:
    """Score a decoded chat-completions body. Pure, bounded in time, and never raises, whatever the body holds."""
    return assess_with(_MODEL, body)
