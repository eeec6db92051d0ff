"""Which roads one request goes along: where it begins, and where it goes after each setback."""

from __future__ import annotations

from weighbridge.config.errors import ApiError
from weighbridge.config.roads import ROADS, Road
from weighbridge.router.decision import Decision
from weighbridge.router.failover import Opens, Setback, egress_reason, final_error, next_road


class Walk:
    """The way of one request, a road at a time."""

    def __init__(self, decision: Decision) -> None:
        self._decision = decision
        self.road: Road = decision.road
        """The road to try now."""
        self.reason = decision.egress_reason
        """Why the request would leave, should this road lead out."""
        self.wait = True
        """Whether it may wait for a slot; else it takes a free one or none."""
        self._tried: list[Road] = [decision.road]
        self._setbacks: list[Setback] = []
        self._busy: Road | None = None
        """The first local tier that was left because it was busy."""
        self._kept_in = False
        """The way out was tried and closed."""
        self._escalated = False
        """A road has answered, and is left only for one above it."""
        self._again: Road | None = None
        """The road to ask again where none above it serves."""
        self.returned = False
        """The present road is asked again, as none above it has served."""

    def met(self, setback: Setback) -> None:
        """The present road has not served."""
        self._setbacks.append(setback)
        if setback.opens is Opens.ABOVE:
            self._escalated = True
            self._again = self.road if setback.again else None
            return
        if setback.opens is Opens.OVERFLOW and self._busy is None:
            self._busy = self.road
        self._kept_in = self._kept_in or (setback.refused and setback.opens is Opens.LOCAL)

    def go_on(self, queued_ms: float) -> Road | None:
        """Take the next road after the last setback.

        Args:
            queued_ms: milliseconds the request has waited for slots so far.

        Returns:
            The road; None where none is left, and `error` says what the caller is told.
        """
        setback = self._setbacks[-1]
        onward = self._onward(setback)
        wait = setback.opens is not Opens.OVERFLOW
        if onward is None and self._may_return(queued_ms):
            onward, wait = self._busy, True
            self._kept_in = False
        if onward is None and self._again is not None:
            onward, wait, self._again = self._again, True, None
            self.returned = True
            self._tried = list(ROADS)
        if onward is not None:
            self._tried.append(onward)
            self.road, self.wait = onward, wait
            self.reason = "escalation" if self._escalated else egress_reason(setback)
        return onward

    def _onward(self, setback: Setback) -> Road | None:
        if setback.opens is not Opens.ABOVE:
            return next_road(self._decision, self._tried, setback)
        above = self.above
        # Never down from here: there is an answer from there.
        self._tried += ROADS[: ROADS.index(self.road)]
        return above[0] if above else None

    @property
    def above(self) -> tuple[Road, ...]:
        """The roads above the present one that the decision leaves open and that were not tried, the next one first."""
        decision = self._decision
        higher = ROADS[ROADS.index(self.road) + 1 :]
        return tuple(
            road
            for road in higher
            if road not in self._tried and (road in decision.alternates or road in decision.overflow)
        )

    @property
    def elsewhere(self) -> bool:
        """Whether the last setback leaves another road, or an answer."""
        return self._escalated or next_road(self._decision, self._tried, self._setbacks[-1]) is not None

    def _may_return(self, queued_ms: float) -> bool:
        """Whether a tier is asked again that was left early because the way out seemed open: once, for the rest of
        the time that the request may wait."""
        return self._kept_in and not self._escalated and queued_ms < self._decision.queue_lock_timeout_ms

    def error(self) -> ApiError:
        """What the caller is told when no road is left."""
        return final_error([setback for setback in self._setbacks if setback.opens is not Opens.ABOVE])
