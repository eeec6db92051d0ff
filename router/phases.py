"""The states of a request, and which may follow which."""

from __future__ import annotations

from enum import Enum


class Phase(Enum):
    RECEIVED = "received"
    SCORED = "scored"
    QUEUED = "queued"
    GRANTED = "granted"
    COMMITTED = "committed"
    DONE = "done"

    # A member is its only equal. The enum's own hash is Python code, and every step of every request needs it.
    __hash__ = object.__hash__


LEGAL: dict[Phase, frozenset[Phase]] = {
    Phase.RECEIVED: frozenset({Phase.SCORED, Phase.DONE}),
    Phase.SCORED: frozenset({Phase.QUEUED, Phase.DONE}),
    # A road that was not granted, or failed before the commit point, leads back to the queue of the next one.
    # One that waited for a road above its answer's is answered with that where the wait was in vain.
    Phase.QUEUED: frozenset({Phase.QUEUED, Phase.GRANTED, Phase.COMMITTED, Phase.DONE}),
    Phase.GRANTED: frozenset({Phase.QUEUED, Phase.COMMITTED, Phase.DONE}),
    Phase.COMMITTED: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}
