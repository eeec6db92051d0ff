"""What both the task and the features are told from: prepared once for each request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from weighbridge.router.difficulty.reading import Reading, clip, read
from weighbridge.router.difficulty.segments import Segments, take_apart

_HEAD: Final = 2_000
_TAIL: Final = 1_000


@dataclass(frozen=True, slots=True)
class View:
    """A request made ready for scoring.

    Args:
        reading: the texts and facts looked at.
        parts: the last user turn taken apart.
        lower: that turn in lower case, at most 3,000 characters of it.
    """

    reading: Reading
    parts: Segments
    lower: str


def look(body: Mapping[str, Any]) -> View:
    """Prepare a decoded request body. Never raises."""
    reading = read(body)
    return View(
        reading=reading,
        parts=take_apart(reading.user, reading.user_chars),
        lower=clip(reading.user, _HEAD, _TAIL).lower(),
    )
