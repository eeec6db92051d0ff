"""The commercial endpoints that one request asks: whose turn it is, after what wait, and when it is enough.

A provider sees at most `SAME` attempts of one request, two of them within a second and a half at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from weighbridge.commercial.breaker import Standing
from weighbridge.commercial.errors import UpstreamFailed, UpstreamRefused
from weighbridge.commercial.outlets import Outlet, first_open
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ContextLengthExceeded
from weighbridge.router.failover import POLICY_CODES, TOO_LONG, Opens, Setback

SAME: Final = 4
ATTEMPTS: Final = 6
"""Attempts of one request at one endpoint, and at all of them."""

_BACKOFF_S: Final = ((0.3, 0.5), (1.5, 2.0), (3.0, 4.0))
"""Between which bounds the wait before each further attempt at the same endpoint is drawn."""

_SPREAD_S: Final = 0.5
LONGEST_WAIT_S: Final = 20.0
"""A request waits so long for an endpoint that asked for it, and not longer."""

_AGAIN: Final = frozenset({408, 409, 425, 429})
_SILENT: Final = ("stall", "timeout")


@dataclass(frozen=True, slots=True)
class Turn:
    """The next attempt: at which endpoint, and after how many seconds."""

    outlet: Outlet
    wait_s: float


class Outward:
    """The commercial part of one request's way.

    Args:
        order: the endpoints, first to last.
        deadline: the request's.
        draw: a number from 0 to 1, anew each time.
    """

    def __init__(self, order: Sequence[Outlet], deadline: Deadline, draw: Callable[[], float]) -> None:
        self._order = order
        self._deadline = deadline
        self._draw = draw
        self._turn: Outlet | None = None
        self._asked: dict[str, int] = {}
        self._given_up: set[str] = set()
        """Endpoints that this request does not ask again."""
        self._first: Setback | None = None
        """The first failure that was none of the request's own fault."""

    def take(self, prompt_tokens: int) -> Outlet:
        """The endpoint to ask now.

        Args:
            prompt_tokens: the prompt is at least so long; 0 when nobody has counted.

        Raises:
            ContextLengthExceeded: no endpoint takes so long a prompt.
        """
        wide = [outlet for outlet in self._order if _takes(outlet, prompt_tokens)]
        if not wide:
            windows = [outlet.endpoint.max_context_tokens or 0 for outlet in self._order]
            raise ContextLengthExceeded(prompt_tokens, max(windows))
        self._given_up.update(outlet.name for outlet in self._order if outlet not in wide)
        if self._turn is None or self._turn not in wide:
            self._turn = first_open(wide, self._given_up) or _soonest(wide)
        return self._turn

    @property
    def present(self) -> str:
        """The name of the endpoint whose turn it is or was; empty before the first."""
        return "" if self._turn is None else self._turn.name

    def asked(self, outlet: Outlet) -> None:
        """A request has left for `outlet`."""
        self._asked[outlet.name] = self._asked.get(outlet.name, 0) + 1

    def met(self, setback: Setback) -> Setback:
        """Read how the present endpoint failed.

        Returns:
            What it means to the request: where an endpoint was only asked because another had failed, and refuses, that
            failure counts and not the refusal.
        """
        upstream = setback.upstream
        judged = isinstance(upstream, UpstreamRefused) and upstream.upstream_code in POLICY_CODES
        if isinstance(upstream, UpstreamRefused) and self._first is not None and not judged:
            setback = replace(self._first, upstream=upstream)
        elif isinstance(upstream, UpstreamFailed) and self._first is None:
            self._first = setback
        return setback

    def again(self, setback: Setback, elsewhere: bool) -> Turn | None:
        """The next attempt at a commercial endpoint; None where there is to be none.

        Args:
            setback: what `met` returned.
            elsewhere: whether the request has a local road to go on by.
        """
        upstream, present = setback.upstream, self._turn
        if present is None or upstream is None or sum(self._asked.values()) >= ATTEMPTS:
            return None
        if self._deadline.expired():
            return None
        if isinstance(upstream, UpstreamRefused):
            self._given_up.add(present.name)
            if upstream.upstream_code == TOO_LONG:
                self._give_up_narrower(present)
            elif setback.opens is Opens.NOTHING:
                return None
        elif upstream.kind in _SILENT or not _may_ask_again(upstream):
            self._given_up.add(present.name)
        fresh = first_open(self._order, {*self._asked, *self._given_up, present.name})
        if fresh is not None:
            self._turn = fresh
            return Turn(fresh, 0.0)
        return self._same_again(present, upstream, elsewhere)

    def _same_again(
        self, present: Outlet, upstream: UpstreamFailed | UpstreamRefused, elsewhere: bool
    ) -> Turn | None:
        left = [
            outlet
            for outlet in self._order
            if outlet.name not in self._given_up and self._asked.get(outlet.name, 0) < SAME
        ]
        ready = [outlet for outlet in left if outlet.breaker.standing in (Standing.OPEN, Standing.WAITING)]
        if not ready:
            return None
        outlet = present if present in ready else ready[0]
        asked = self._asked.get(outlet.name, 0)
        rest_s = outlet.breaker.rest_s
        if elsewhere and (asked > 1 or rest_s > 0):
            return None
        # Those who wait for the same moment do not come at the same moment.
        wait_s = rest_s + (_SPREAD_S * self._draw() if rest_s else 0.0)
        if asked:
            low, high = _BACKOFF_S[min(asked, len(_BACKOFF_S)) - 1]
            wait_s = max(wait_s, low + (high - low) * self._draw())
        if wait_s > LONGEST_WAIT_S or wait_s >= self._deadline.remaining():
            return None
        self._turn = outlet
        return Turn(outlet, wait_s)

    def _give_up_narrower(self, present: Outlet) -> None:
        """The prompt is too long for `present`: only a window that is known to be larger is worth a try."""
        window = present.endpoint.max_context_tokens
        for outlet in self._order:
            other = outlet.endpoint.max_context_tokens
            if window is None or other is None or other <= window:
                self._given_up.add(outlet.name)


def _takes(outlet: Outlet, prompt_tokens: int) -> bool:
    window = outlet.endpoint.max_context_tokens
    return window is None or prompt_tokens < window


def _soonest(outlets: Sequence[Outlet]) -> Outlet:
    return min(
        outlets, key=lambda outlet: (outlet.breaker.standing is not Standing.WAITING, outlet.breaker.rest_s)
    )


def _may_ask_again(failed: UpstreamFailed) -> bool:
    """Whether the same request may find the same endpoint in a better mood."""
    if failed.status is None:
        return True
    return failed.status in _AGAIN or (failed.status >= 500 and failed.status != 501)
