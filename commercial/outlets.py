"""The commercial endpoints of a gateway: which there are, how each stands, and whose turn it is."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from weighbridge.commercial.breaker import Breaker, Standing
from weighbridge.config.clock import Clock
from weighbridge.config.settings import CommercialSettings, Endpoint

log = logging.getLogger(__name__)

Steps = Sequence[Sequence[tuple[str, int]]]
"""Names with weights, step by step, as a policy gives them."""


@dataclass(frozen=True, slots=True)
class Outlet:
    """One endpoint, and what is known of its health."""

    name: str
    endpoint: Endpoint
    breaker: Breaker


class Outlets:
    """All endpoints of the settings.

    Args:
        settings: `commercial` section.
        clock: as everywhere.
        on_change: told, by name, whether an endpoint is being passed by, whenever that changes.
    """

    def __init__(
        self,
        settings: CommercialSettings,
        clock: Clock,
        on_change: Callable[[str, bool], None] = lambda name, passed_by: None,
    ) -> None:
        def told(name: str, passed_by: bool) -> None:
            if passed_by:
                log.warning(
                    "commercial endpoint %s failed %d times in a row: passed by for %g s, then tried by one request",
                    name,
                    settings.breaker_failures,
                    settings.breaker_rest_s,
                )
            else:
                log.info("commercial endpoint %s answers again", name)
            on_change(name, passed_by)

        def breaker(name: str) -> Breaker:
            return Breaker(settings.breaker_failures, settings.breaker_rest_s, clock, partial(told, name))

        self._all: Mapping[str, Outlet] = {
            name: Outlet(name, endpoint, breaker(name)) for name, endpoint in settings.all_endpoints.items()
        }

    def __bool__(self) -> bool:
        return bool(self._all)

    def __getitem__(self, name: str) -> Outlet:
        return self._all[name]

    def standings(self) -> dict[str, Standing]:
        """How every endpoint stands, by name."""
        return {name: outlet.breaker.standing for name, outlet in self._all.items()}

    def order(self, steps: Steps, whose: str) -> tuple[Outlet, ...]:
        """The endpoints in the order in which one conversation tries them.

        The same conversation has the same order, so that what a provider has cached of it is used again; conversations
        are shared out by weight.

        Args:
            steps: the policy's, which names only endpoints that are there; empty means all, in the order of the
                settings.
            whose: the conversation.
        """
        if not steps:
            return tuple(self._all.values())
        return tuple(
            self._all[name]
            for step in steps
            for name, _ in sorted(step, key=lambda entry: _rank(entry[0], entry[1], whose))
        )


def first_open(order: Sequence[Outlet], left_out: Collection[str] = ()) -> Outlet | None:
    """The first that may be asked now."""
    for outlet in order:
        if outlet.name not in left_out and outlet.breaker.standing is Standing.OPEN:
            return outlet
    return None


def _rank(name: str, weight: int, whose: str) -> float:
    """Weighted rendezvous hashing: the lowest rank comes first, as often as its weight says."""
    digest = hashlib.blake2b(f"{name}\0{whose}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    share = (int.from_bytes(digest, "big") + 1) / (2**64 + 1)
    return -math.log(share) / weight
