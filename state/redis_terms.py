"""What callers of the line to Redis have to know: scripts, and why Redis is away."""

from __future__ import annotations

import hashlib
from typing import Final, Literal

Trouble = Literal["connect", "denied", "timeout", "closed", "refused", "garbage"]
"""Why Redis is taken to be away: no connection; wrong password or rights; no answer in time; the connection broke; it
answered with an error (loading, read-only, out of memory, a script that fails); its answer made no sense."""

WORDS: Final[dict[Trouble, str]] = {
    "connect": "no connection",
    "denied": "wrong password or missing rights",
    "timeout": "no answer in time",
    "closed": "the connection broke",
    "refused": "it answers with errors",
    "garbage": "its answers make no sense",
}


class RedisAway(Exception):
    """Redis did not answer, or is taken to be away; whether it has done what it was asked is not known."""

    def __init__(self, why: Trouble) -> None:
        super().__init__(why)
        self.why: Final = why


class Script:
    """A Lua script; all keys it touches are among its KEYS."""

    __slots__ = ("sha", "text")

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.sha: Final = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
