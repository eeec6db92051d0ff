"""How far a request may go: the pins, floors, ceilings and forbidden roads of its task, tenant and key, compiled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weighbridge.config.roads import ROADS, Road
from weighbridge.policies.road_rules import RANK, RoadLimits, limits_of

_TOP = len(ROADS) - 1

THE_KEY = "this key"
"""Who bars roads by being allowed others only, whatever the policy says."""


@dataclass(frozen=True, slots=True)
class RoadRule:
    """What one task row, tenant or key says, with its name for the record."""

    who: str
    pin: Road | None
    low: int
    high: int
    forbidden: frozenset[Road]

    @classmethod
    def barring(cls, roads: frozenset[Road]) -> RoadRule:
        """The rule of a key that may not use these."""
        return cls(THE_KEY, None, 0, _TOP, roads)

    @classmethod
    def of(cls, who: str, limits: RoadLimits, pin: Road | None) -> RoadRule | None:
        """None where nothing is said."""
        if pin is None and limits.floor is None and limits.ceiling is None and not limits.forbid:
            return None
        return cls(who, pin, *limits_of(limits), frozenset(limits.forbid or ()))


@dataclass(frozen=True, slots=True)
class Reach:
    """The roads that are open to a request by the rules; whether they are there is another matter."""

    low: int = 0
    high: int = _TOP
    forbidden: frozenset[Road] = frozenset()

    def allows(self, road: Road) -> bool:
        """Whether the request may be taken to `road`, the floor aside."""
        return road not in self.forbidden and RANK[road] <= self.high

    def holds(self, road: Road) -> bool:
        """Whether `road` is not below the floor."""
        return RANK[road] >= self.low


@dataclass(frozen=True, slots=True)
class Led:
    """Where the rules lead a request."""

    road: Road
    reach: Reach
    reasons: tuple[str, ...]
    """Each rule that moved it, in the order of the moves."""


ANYWHERE = Reach()


def lead(road: Road, rules: Iterable[RoadRule]) -> Led:
    """Take a request along `rules`, the least particular first.

    The highest floor and the lowest ceiling count. Where they or a pin contradict each other, the later rule wins, and
    the earlier ones give way as far as need be. What is forbidden adds up and holds against everything: the request
    goes up to the next road that is open, else down; it stays on the forbidden road only where none is open.
    """
    low, high = 0, _TOP
    forbidden: frozenset[Road] = frozenset()
    barred: frozenset[Road] = frozenset()
    reasons: list[str] = []
    for rule in rules:
        forbidden |= rule.forbidden
        if rule.who == THE_KEY:
            barred = rule.forbidden
        if rule.pin is not None:
            rank = RANK[rule.pin]
            low, high = min(low, rank), max(high, rank)
            if road != rule.pin:
                road = rule.pin
                reasons.append(f"{rule.who}: pin {road}")
        if rule.low > 0:
            low = max(low, rule.low)
            high = max(high, low)
        if rule.high < _TOP:
            high = min(high, rule.high)
            low = min(low, high)
        if RANK[road] < low:
            road = ROADS[low]
            reasons.append(f"{rule.who}: floor {road}")
        elif RANK[road] > high:
            road = ROADS[high]
            reasons.append(f"{rule.who}: ceiling {road}")
    reach = Reach(low, high, forbidden)
    if road in forbidden:
        onward = _open_beside(road, reach)
        if onward is not None:
            why = f"not allowed for {THE_KEY}" if road in barred else "forbidden"
            reasons.append(f"{road} {why}: {onward}")
            road = onward
    return Led(road, reach, tuple(reasons))


def reach_of(rules: Iterable[RoadRule]) -> Reach:
    """How far these rules let a request go, wherever it begins."""
    return lead(ROADS[0], rules).reach


def _open_beside(road: Road, reach: Reach) -> Road | None:
    rank = RANK[road]
    above = [other for other in ROADS[rank + 1 :] if reach.allows(other)]
    below = [other for other in reversed(ROADS[:rank]) if reach.allows(other)]
    held = [other for other in (*above, *below) if reach.holds(other)]
    return next(iter((*held, *above, *below)), None)
