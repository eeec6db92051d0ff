"""What a policy may say about the roads of a task, a tenant or a key: pin, floor, ceiling, forbid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import Field, model_validator

from weighbridge.config.problems import wrong_all
from weighbridge.config.roads import ROADS, Road
from weighbridge.config.shape import Step
from weighbridge.policies.strict import Strict

RANK: Final[dict[Road, int]] = {road: rank for rank, road in enumerate(ROADS)}
"""From the cheapest road to the most capable."""

_ROADS_LEGAL: Final = f"a list of different roads out of {', '.join(ROADS)}"


class RoadLimits(Strict):
    """How far a request may go. `forbid` holds whatever else is said; the others only for what is decided here."""

    floor: Road | None = Field(
        default=None, description="The lowest road: the decision, overflow and failover go to none below it."
    )
    ceiling: Road | None = Field(
        default=None,
        description="The highest road: the decision, overflow, failover and escalation go to none above it. It saves "
        "money and keeps nothing in, as a caller may still name a road above it: see `egress` and `forbid` for that.",
    )
    forbid: list[Road] | None = Field(
        default=None,
        description="Roads that are never used for it, not even where the caller names one. `commercial` keeps a "
        "request in as `egress: never` does.",
        json_schema_extra={"legal": _ROADS_LEGAL},
    )

    def limit_problems(
        self, pin: Road | None, pinned_by: str = "pin"
    ) -> Iterator[tuple[tuple[Step, ...], str]]:
        """What contradicts itself, as path and sentence.

        Args:
            pin: the road that the same rule fixes, if it does.
            pinned_by: the key that fixes it.
        """
        forbidden = self.forbid or []
        low, high = limits_of(self)
        for n, road in enumerate(forbidden):
            if road in forbidden[:n]:
                yield ("forbid", n), "this road is given twice"
        if low > high:
            yield ("floor",), f"must not be above ceiling {self.ceiling}"
            return
        if all(road in forbidden for road in ROADS[low : high + 1]):
            where = "" if (low, high) == (0, len(ROADS) - 1) else " from floor to ceiling"
            yield ("forbid",), f"leaves no road{where}"
        if pin is None:
            return
        if pin in forbidden:
            yield (pinned_by,), f"{pin} is forbidden by the same rule"
        elif RANK[pin] < low:
            yield (pinned_by,), f"{pin} is below floor {self.floor}"
        elif RANK[pin] > high:
            yield (pinned_by,), f"{pin} is above ceiling {self.ceiling}"


class RoadRules(RoadLimits):
    """The same with a pin, for a tenant or a key."""

    pin: Road | None = Field(
        default=None, description="Where its requests begin, whatever their task and score."
    )

    @model_validator(mode="after")
    def _not_against_itself(self) -> RoadRules:
        if found := list(self.limit_problems(self.pin)):
            raise wrong_all(found)
        return self


def limits_of(limits: RoadLimits) -> tuple[int, int]:
    """The ranks of floor and ceiling; the ends where there is none."""
    low = 0 if limits.floor is None else RANK[limits.floor]
    return low, len(ROADS) - 1 if limits.ceiling is None else RANK[limits.ceiling]


def roads_left(*rules: Sequence[Road] | None) -> bool:
    """Whether a road is left beside all that these rules forbid."""
    return {road for forbidden in rules for road in forbidden or ()} != set(ROADS)
