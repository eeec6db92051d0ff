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

_ROOM: Final = files("weighbridge.router.difficulty")
SCORING: Final = (
    "asking", "assessment", "bands", "gibberish", "language", "looking", "marks", "model", "reading", "ready", "shape",
    "within", "words",
)  # fmt: skip
"""The modules that turn a request and the weights into a score."""

_MODEL: Final = Model(
    _ROOM.joinpath("model.json").read_bytes(),
    b"".join([_ROOM.joinpath(f"{name}.py").read_bytes() for name in SCORING]),
)

CALIBRATION_VERSION: Final[str] = _MODEL.version
"""Name and content hash of the weights in use and of the code that reads requests for them: under the same version the
same request has the same score."""


def assess(body: Mapping[str, Any]) -> Assessment:
    """Score a decoded chat-completions body. Pure, bounded in time, and never raises, whatever the body holds."""
    return assess_with(_MODEL, body)
