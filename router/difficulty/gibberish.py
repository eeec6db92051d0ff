"""Telling speech from keys struck at random: the rest of scoring would find something in either."""

from __future__ import annotations

from typing import Final

from weighbridge.router.difficulty.language import ENGLISH_WORDS
from weighbridge.router.difficulty.looking import Seen

_MASHED: Final = ("asdf", "qwer", "zxcv", "hjkl")
_KO_ENDS: Final = frozenset("요다해어야지네까줘은는이가을를에서로라법")
_ENOUGH: Final = 4
_LOOKED_AT: Final = 20


def is_speech(seen: Seen) -> bool:
    """Whether anybody says anything: several words that are known, or a few that look like words."""
    if len(seen.zones["asking"]) + len(seen.zones["other"]) + len(seen.zones.get("system", ())) >= _ENOUGH:
        return True
    words = seen.lower[:600].split()[:_LOOKED_AT]
    if not any(character.isalpha() for word in words for character in word[:4]):
        return False
    if seen.language == "ko":
        return any(word.rstrip(".!?~")[-1:] in _KO_ENDS for word in words)
    mashed = sum(word[:4] in _MASHED or not any(c in "aeiouy" for c in word) for word in words)
    return mashed * 2 < len(words) or not ENGLISH_WORDS.isdisjoint(words)
