"""What other thresholds would have done with the requests of the past: decided anew by their recorded scores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

import msgspec

from weighbridge.config.roads import AUTO, COMMERCIAL, LOCAL_8B, LOCAL_70B, ROADS, Road
from weighbridge.observability.past_requests import PastRequest
from weighbridge.policies.compiled import Policy
from weighbridge.policies.tasks import Task

NS_PER_DAY: Final = 86_400_000_000_000


class Shift(msgspec.Struct, frozen=True):
    """Requests that would go another road.

    Args:
        tokens: prompt and answer, as they were counted then.
        failing_before, failing_after: how many of their answers are expected to fail, by the recorded probabilities: on
            the 8B P(the 8B fails), on the 70B P(it fails where the frontier model does not), on the commercial road
            none. So it is counted against the commercial model, and for the 8B from above.
        unknown: requests among them without recorded probabilities; they count in neither.
    """

    from_road: str
    to_road: str
    requests: int
    tokens: int
    failing_before: float
    failing_after: float
    unknown: int


class RoadShare(msgspec.Struct, frozen=True):
    """One road, before and after.

    Args:
        nano_per_million: what a million tokens cost there in this time, in 1e-9 of the currency, idle time not
            counted; None where nothing was served there that has a price.
    """

    road: str
    requests_before: int
    requests_after: int
    nano_per_million: int | None


class WhatIf(msgspec.Struct, frozen=True):
    """The answer.

    Args:
        requests: requests that were looked at, of them `decided` by the gateway; the others named their road.
        from_ns, to_ns: admission of the first and the last; None without any.
        cost_change_nano_per_day: what the moved tokens would cost more a day at these prices of a million, over the
            time between the first and the last; None where a road that they would leave or take has no price, or there
            is no time between.
    """

    requests: int
    decided: int
    from_ns: int | None
    to_ns: int | None
    roads: list[RoadShare]
    shifts: list[Shift]
    currency: str
    cost_change_nano_per_day: int | None


def what_if(
    past: Iterable[PastRequest], now: Policy, then: Policy, *, local: tuple[Road, ...], outward: bool
) -> WhatIf:
    """Decide the requests of the past under the policy in force and under another one, and tell the difference.

    What else was recorded of each stays as it was: one that was kept in stays local, one that named its road keeps it.

    Args:
        local: the tiers there are here, from the cheapest.
        outward: a commercial endpoint is configured.
    """
    seen = _Seen()
    for request in past:
        seen.add(request)
        if now.aliases.get(request.model, request.model) != AUTO or request.score is None:
            seen.stays(request)
            continue
        seen.decided += 1
        before, after = (_placed(policy, request, local, outward) for policy in (now, then))
        if before == after:
            seen.stays(request)
        else:
            seen.moves(request, before, after)
    return seen.told()


def _placed(policy: Policy, request: PastRequest, local: tuple[Road, ...], outward: bool) -> Road:
    assert request.score is not None
    task = cast("Task", request.task)
    road = policy.place(task, request.score, request.tenant, request.key_id).road
    kept_in = not outward or bool(policy.leaving.why_not(request.tenant, request.key_id, task, None))
    if road == COMMERCIAL and kept_in and local:
        return local[-1]
    return road


class _Seen:
    """The sums while requests go by."""

    def __init__(self) -> None:
        self.requests = self.decided = 0
        self.first: int | None = None
        self.last: int | None = None
        self._before: dict[str, int] = dict.fromkeys(ROADS, 0)
        self._after: dict[str, int] = dict.fromkeys(ROADS, 0)
        self._moved: dict[tuple[Road, Road], list[PastRequest]] = {}
        self._cost: dict[str, list[int]] = {}
        self._currencies: set[str] = set()

    def add(self, request: PastRequest) -> None:
        self.requests += 1
        at = request.admitted_ns
        if at is not None:
            self.first = at if self.first is None else min(self.first, at)
            self.last = at if self.last is None else max(self.last, at)
        if request.cost_nano is not None and request.served and request.tokens:
            held = self._cost.setdefault(request.served, [0, 0])
            held[0] += request.cost_nano
            held[1] += request.tokens
            self._currencies.add(request.currency)

    def stays(self, request: PastRequest) -> None:
        for count in (self._before, self._after):
            count[request.decided] = count.get(request.decided, 0) + 1

    def moves(self, request: PastRequest, before: Road, after: Road) -> None:
        self._before[before] += 1
        self._after[after] += 1
        self._moved.setdefault((before, after), []).append(request)

    def told(self) -> WhatIf:
        rates = {road: self._rate(road) for road in (*ROADS, *self._before)}
        return WhatIf(
            requests=self.requests,
            decided=self.decided,
            from_ns=self.first,
            to_ns=self.last,
            roads=[
                RoadShare(road, count, self._after[road], rates[road])
                for road, count in self._before.items()
                if road
            ],
            shifts=[_shift(before, after, moved) for (before, after), moved in sorted(self._moved.items())],
            currency=next(iter(self._currencies), "") if len(self._currencies) == 1 else "",
            cost_change_nano_per_day=self._cost_change(rates),
        )

    def _rate(self, road: str) -> int | None:
        # Amounts in two currencies are no amount.
        cost, tokens = self._cost.get(road, (0, 0)) if len(self._currencies) == 1 else (0, 0)
        return cost * 1_000_000 // tokens if tokens else None

    def _cost_change(self, rates: dict[str, int | None]) -> int | None:
        span = 0 if self.first is None or self.last is None else self.last - self.first
        if span <= 0:
            return None
        change = 0
        for (before, after), moved in self._moved.items():
            old, new = rates[before], rates[after]
            if old is None or new is None:
                return None
            change += (new - old) * sum([request.tokens for request in moved])
        return change * NS_PER_DAY // (span * 1_000_000)


def _shift(before: Road, after: Road, moved: list[PastRequest]) -> Shift:
    known = [request for request in moved if request.p_8b_fails is not None]
    return Shift(
        before,
        after,
        len(moved),
        sum([request.tokens for request in moved]),
        sum([_fails(request, before) for request in known]),
        sum([_fails(request, after) for request in known]),
        len(moved) - len(known),
    )


def _fails(request: PastRequest, road: Road) -> float:
    risk = {LOCAL_8B: request.p_8b_fails, LOCAL_70B: request.p_70b_fails}.get(road, 0.0)
    return 0.0 if risk is None else risk
