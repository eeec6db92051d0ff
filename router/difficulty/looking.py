"""One look at a request: which known words stand where, which marks it bears, what language it is in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from weighbridge.router.difficulty.asking import take_apart
from weighbridge.router.difficulty.language import Language, language_of
from weighbridge.router.difficulty.marks import TALL, Hard, marks_of
from weighbridge.router.difficulty.reading import clip, read
from weighbridge.router.difficulty.ready import evenly_spaced, plain, ready, said_once
from weighbridge.router.difficulty.words import Vocabulary, found_in_asking, found_in_other

_HEAD: Final = 2_000
_TAIL: Final = 1_000
_SYSTEM: Final = 600
_EARLIER: Final = 200
_OTHER: Final = 1_600
_OTHER_WIDE: Final = 450


class Seen(NamedTuple):
    """What is known of a request before anything is weighed.

    Args:
        lower: the last user turn made ready.
        zones: numbers of the known words by where they stand: `asking`, `other` (not those of `asking` again),
            `system`, `earlier`.
        marks: names of the marks it bears.
        hard: what speaks for difficulty by itself.
        language: the language asked in.
        tall: the turn holds a document, of which neither length nor words say how hard the request is.
        beside: a system message or an earlier turn stands beside it.
        waiting: the user turn before the last one in lower case, where nobody answered it.
        asking: the pieces of the last turn that ask, one a line.
    """

    lower: str
    zones: dict[str, set[int]]
    marks: list[str]
    hard: Hard
    language: Language
    tall: bool
    beside: bool
    waiting: str
    asking: str


def look(body: Mapping[str, Any], known: Vocabulary) -> Seen:
    """Look at a decoded chat-completions body. Never raises."""
    reading = read(body)
    if not reading.user.strip() and reading.system:
        # Whoever puts the whole request into the system message asks the same.
        reading = replace(reading, user=reading.system, user_chars=len(reading.system), system="")
    text = said_once(evenly_spaced(reading.user))
    looked_at = clip(text, _HEAD, _TAIL)
    lower = ready(plain(looked_at))
    chars = reading.user_chars - len(reading.user) + len(text) - len(looked_at) + len(lower)
    parts = take_apart(lower)
    language = language_of(lower or reading.system)
    marks, hard = marks_of(reading, lower, chars, parts, language)
    asking = found_in_asking(parts.asking, known)
    other = parts.other
    most = _OTHER if other.isascii() else _OTHER_WIDE
    zones = {"asking": asking, "other": found_in_other(clip(other, most // 2, most // 2), known) - asking}
    if reading.system:
        zones["system"] = found_in_asking(reading.system[:_SYSTEM].lower(), known)
    if reading.earlier:
        zones["earlier"] = found_in_other(reading.earlier[:_EARLIER].lower(), known)
    waiting = plain(evenly_spaced(reading.earlier)).lower() if reading.unanswered else ""
    beside = bool(reading.system or reading.earlier)
    return Seen(lower, zones, marks, hard, language, chars > TALL, beside, waiting, parts.asking)
