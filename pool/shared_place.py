"""A place of a tier that several gateways share, as one gateway sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final

from weighbridge.pool.queue_lock import Place


def shared_place_names(endpoints: Sequence[str]) -> dict[str, str]:
    """By worker, the name that every gateway has for its endpoint, whatever the order in which its settings list it."""
    return {
        str(n): hashlib.blake2b(url.encode(), digest_size=8).hexdigest() for n, url in enumerate(endpoints)
    }


class SharedPlace(Place):
    """`slots` is how many may be in use here now: the leases or, on our own, our part; `total` that of all gateways."""

    __slots__ = ("key", "leases", "total")

    def __init__(self, name: str, key: str, total: int, budget: int | None) -> None:
        super().__init__(name, 0, budget)
        self.key: Final = key
        self.total: Final = total
        self.leases: list[str] = []

    def fits(self, tokens: int) -> bool:
        """Whether the tokens could be reserved here if there were a slot."""
        return self.budget is None or self.in_use == 0 or self.tokens + tokens <= self.budget

    def share(self, replicas: int) -> int:
        """The slots that one of so many gateways may use on its own."""
        return max(1, self.total // replicas)

    def true_up(self, new_name: Callable[[], str]) -> None:
        """After slots were granted and came back without Redis: as many leases as slots are in use."""
        del self.leases[self.in_use :]
        while len(self.leases) < self.in_use:
            self.leases.append(new_name())
