"""What a request does when its worker is lost: whether another one of the tier takes over."""

from __future__ import annotations

from typing import Final

from weighbridge.config.roads import Road
from weighbridge.pool.engine import Trail
from weighbridge.router.account import Account
from weighbridge.router.roads import Roads

_MOST: Final = 3
"""Workers of one tier that a request may see die; one that kills its workers must not go through all of them."""


class LostWorkers:
    """Workers of the present tier that could not serve one request."""

    def __init__(self, roads: Roads, account: Account) -> None:
        self._roads = roads
        self._account = account
        self.names: list[str] = []

    def another(self, road: Road, worker: str, trail: Trail | None, committed: bool) -> bool:
        """Whether another worker of `road` takes over: the whole request, or a stream where it broke off.

        Args:
            worker: the one that was lost just now.
            trail: what was streamed so far, where somebody could go on with it.
            committed: whether the caller has something of the answer.
        """
        tier = self._roads.tier(road)
        self.names.append(worker)
        if not committed:
            return len(self.names) < _MOST and tier.serves_besides(self.names)
        if trail is None or trail.lost or len(self.names) >= _MOST:
            self._roads.continued(road, "lost")
            return False
        if not tier.recovering:
            self._roads.continued(road, "no_worker")
            return False
        self._account.carry(trail)
        return True
