"""Which roads one request goes along: where it begins, and where it goes after each setback."""

from __future__ import annotations

from weighbridge.config.errors import ApiError
from weighbridge.config.roads import Road
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

    def met(self, setback: Setback) -> None:
        """The present road has not served."""
        self._setbacks.append(setback)
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
        onward = next_road(self._decision, self._tried, setback)
        wait = setback.opens is not Opens.OVERFLOW
        if onward is None and self._may_return(queued_ms):
            onward, wait = self._busy, True
            self._kept_in = False
        if onward is not None:
            self._tried.append(onward)
            self.road, self.wait, self.reason = onward, wait, egress_reason(setback)
        return onward

    @property
    def elsewhere(self) -> bool:
        """Whether the last setback leaves another road."""
        return next_road(self._decision, self._tried, self._setbacks[-1]) is not None

    def _may_return(self, queued_ms: float) -> bool:
        """Whether a tier is asked again that was left early because the way out seemed open: once, for the rest of
        the time that the request may wait."""
        return self._kept_in and queued_ms < self._decision.queue_lock_timeout_ms

    def error(self) -> ApiError:
        """What the caller is told when no road is left."""
        return final_error(self._setbacks)
