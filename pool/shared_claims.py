"""The claims of one gateway at a tier's shared slots: requests for slots, made in Redis and not granted yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from weighbridge.pool.placement import owner_of
from weighbridge.pool.queue_lock import Waiter
from weighbridge.pool.shared_place import SharedPlace
from weighbridge.pool.slot_lock import Ask, Priority
from weighbridge.state.slot_leases import Claim

Queues = Sequence[Mapping[str, Mapping[Waiter, None]]]
"""Those who wait, by priority and tenant."""


class Claims:
    """As many as requests wait, of each priority; a claim belongs to no request.

    Args:
        member: the gateway's name in Redis, with which its claims begin.
    """

    def __init__(self, member: str) -> None:
        self._member: Final = member
        self._number = 0
        self._asked: Final[tuple[dict[str, float], ...]] = tuple({} for _ in Priority)
        """The moment of asking, by priority in order of making."""

    def __len__(self) -> int:
        return sum(map(len, self._asked))

    def new_name(self) -> str:
        """A name that was never given before."""
        self._number += 1
        return f"{self._member}.{self._number}"

    def take(self, claim: str) -> bool:
        """It was granted. Returns whether it was still wanted."""
        return any(asked.pop(claim, None) is not None for asked in self._asked)

    def clear(self) -> None:
        for asked in self._asked:
            asked.clear()

    def match(
        self,
        queues: Queues,
        fresh: Sequence[Waiter],
        now: float,
        wishes: Callable[[Ask], tuple[int, tuple[int, ...]]],
    ) -> tuple[list[Claim], list[str]]:
        """Make as many claims as requests wait, of each priority.

        Args:
            queues: those who wait for a slot that may be had.
            fresh: those of them that have come since the last time, in order.
            now: the moment, on the clock of `Waiter.asked`.
            wishes: where a request had best be, and had best not be.

        Returns:
            those that were made, and the names of those that are too many and were taken back.
        """
        made: list[Claim] = []
        surplus: list[str] = []
        for priority, asked, tenants in zip(Priority, self._asked, queues, strict=True):
            waiting = sum(map(len, tenants.values()))
            while len(asked) > waiting:
                surplus.append(asked.popitem()[0])
            lacking = waiting - len(asked)
            if lacking <= 0:
                continue
            # The older claims stand for those who have waited longer.
            last = [waiter for waiter in fresh if waiter.ask.priority is priority]
            if len(last) < lacking:
                last = sorted(
                    (waiter for queue in tenants.values() for waiter in queue),
                    key=lambda waiter: waiter.number,
                )
            for waiter in last[-lacking:]:
                claim = self.new_name()
                asked[claim] = waiter.asked
                made.append((claim, priority, round((now - waiter.asked) * 1000), *wishes(waiter.ask)))
        return made, surplus

    def again(self, made: Sequence[Claim], now: float) -> list[Claim]:
        """All there are beside those just made, to be stated once more."""
        new = {claim[0] for claim in made}
        return [
            (claim, priority, round((now - asked) * 1000), 0, ())
            for priority, claims in zip(Priority, self._asked, strict=True)
            for claim, asked in claims.items()
            if claim not in new
        ]


def wishes(
    ask: Ask, places: Sequence[SharedPlace], open_places: Sequence[SharedPlace]
) -> tuple[int, tuple[int, ...]]:
    """The place a request had best be on, and those it had best not be on, as positions among `places` from 1."""
    every = [place for place in open_places if not place.avoided] or open_places
    owner = places.index(owner_of(ask.affinity, every)) + 1 if ask.affinity and len(every) > 1 else 0
    shunned = (
        tuple(n for n, place in enumerate(places, 1) if place.name in ask.shunned) if ask.shunned else ()
    )
    return owner, shunned
