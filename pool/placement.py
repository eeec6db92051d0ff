"""Which worker gets the next request: the one that holds the prompt's beginning already, inside a bound on load."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

SLACK: Final = 2
"""Requests that a prompt's own worker may have more than the least busy one before it is passed over; or a quarter of
its slots, whichever is more. Affinity alone piles everything onto one worker."""


class Room(Protocol):
    """A worker as placement sees it."""

    @property
    def name(self) -> str: ...
    @property
    def slots(self) -> int: ...
    @property
    def in_use(self) -> int: ...
    @property
    def tokens(self) -> int:
        """KV-cache tokens in flight."""
        ...


R = TypeVar("R", bound=Room)


def choose(affinity: bytes, every: Sequence[R], free: Sequence[R]) -> R:
    """The worker for a request.

    Args:
        affinity: see `slot_lock.Ask`.
        every: all open workers. The owner of a prompt is told among them, so that it does not change when one is full.
        free: those that can take the request; at least one.
    """
    if len(every) == 1:
        return free[0]
    if affinity:
        owner = owner_of(affinity, every)
        bound = min(room.in_use for room in every) + max(SLACK, owner.slots // 4)
        if owner in free and owner.in_use < bound:
            return owner
    return min(free, key=lambda room: (room.tokens, room.in_use, room.name))


def owner_of(affinity: bytes, every: Sequence[R]) -> R:
    """The worker that a prompt belongs to, room or not."""
    return max(every, key=lambda room: _weight(affinity, room.name))


def _weight(affinity: bytes, name: str) -> bytes:
    # Rendezvous hashing: a worker that comes or goes moves its own prompts alone.
    return hashlib.blake2b(affinity + name.encode(), digest_size=8).digest()
