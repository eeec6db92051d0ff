"""Leaving an endpoint alone that fails, until one request has found it well again."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Final

from weighbridge.config.clock import Clock

LONGEST_REST_S: Final = 60.0
"""What an endpoint says in `Retry-After` is believed up to so many seconds."""

LONGEST_TRIAL_S: Final = 15.0
"""After so many seconds without a word of the request on trial another one may try: an endpoint that has come back is
not to wait for the end of one that hangs."""


class Standing(Enum):
    """How an endpoint stands at this moment."""

    OPEN = "open"
    """It is asked like any other."""
    WAITING = "waiting"
    """It asked not to be called for a while."""
    RESTING = "resting"
    """It is passed by for a while: it failed too often."""
    ON_TRIAL = "on_trial"
    """One request is finding out whether it is well; the others pass it by."""


class Breaker:
    """The failures of one endpoint, whoever's requests they were.

    Closed while all is well. After `failures` in a row it opens for `rest_s`; then one request at a time is let
    through, and the first that is answered closes it. What is heard of requests from before it opened, or from before
    it closed, is old and no longer counts. What the endpoint says in `Retry-After` is kept as well, whoever else is
    answered meanwhile.

    Args:
        failures: how many in a row open it.
        rest_s: seconds until it is tried again.
        clock: as everywhere.
        on_change: told whether the endpoint is being passed by, whenever that changes.
    """

    def __init__(
        self,
        failures: int,
        rest_s: float,
        clock: Clock,
        on_change: Callable[[bool], None] = lambda passed_by: None,
    ) -> None:
        self._most = failures
        self._rest_s = rest_s
        self._clock = clock
        self._on_change = on_change
        self._failed = 0
        self._rests_until = -math.inf
        self._told_until = -math.inf
        """Until when the endpoint itself asked not to be called."""
        self._on_trial: Ticket | None = None
        self._trial_ends = 0.0
        self._age = 0
        """Goes up whenever it opens or closes and with each trial: what began in another age teaches nothing."""

    @property
    def standing(self) -> Standing:
        if self._on_trial is not None and self._clock.monotonic() < self._trial_ends:
            return Standing.ON_TRIAL
        if self.rest_s <= 0:
            return Standing.OPEN
        return Standing.RESTING if self._failed >= self._most else Standing.WAITING

    @property
    def rest_s(self) -> float:
        """Seconds until it may be tried; 0 when it may be now."""
        return max(0.0, max(self._rests_until, self._told_until) - self._clock.monotonic())

    def enter(self) -> Ticket | None:
        """Leave to ask the endpoint once; None while it is to be passed by. Hand the ticket in whatever happens."""
        if self.standing is not Standing.OPEN:
            return None
        if self._failed < self._most:
            return Ticket(self, self._age)
        self._age += 1
        self._on_trial = ticket = Ticket(self, self._age)
        self._trial_ends = self._clock.monotonic() + LONGEST_TRIAL_S
        return ticket

    def _well(self) -> None:
        was = self._failed >= self._most
        self._failed = 0
        if was:
            self._age += 1
            self._on_change(False)

    def _told(self, wait_s: float) -> None:
        self._told_until = max(self._told_until, self._clock.monotonic() + min(wait_s, LONGEST_REST_S))

    def _ill(self) -> None:
        was = self._failed >= self._most
        self._failed += 1
        if self._failed >= self._most:
            self._rests_until = self._clock.monotonic() + self._rest_s
            if not was:
                self._age += 1
                self._on_change(True)

    def _leave(self, ticket: Ticket) -> bool:
        """Whether what the ticket has to tell still counts."""
        if self._on_trial is ticket:
            self._on_trial = None
        return ticket.age == self._age


class Ticket:
    """One request's leave to ask an endpoint. The first word counts."""

    def __init__(self, breaker: Breaker, age: int) -> None:
        self._breaker: Breaker | None = breaker
        self.age = age
        """The breaker's, when the request began."""

    def begun(self) -> None:
        """An answer has begun: enough to end a trial, so that nobody waits for its end. May still fail."""
        breaker = self._breaker
        if breaker is not None and breaker._on_trial is self:
            breaker._leave(self)
            breaker._well()
            self.age = breaker._age

    def answered(self) -> None:
        """The endpoint answered, if only to refuse."""
        breaker = self._taken()
        if breaker is not None and breaker._leave(self):
            breaker._well()

    def failed(self, wait_s: float | None = None, *, busy: bool = False) -> None:
        """The endpoint failed.

        Args:
            wait_s: what it said in `Retry-After`, in seconds.
            busy: it only has too much to do. One that says for how long is taken at its word, and has not failed.
        """
        breaker = self._taken()
        if breaker is None:
            return
        if wait_s:
            breaker._told(wait_s)
        if breaker._leave(self) and not (busy and wait_s):
            breaker._ill()

    def returned(self) -> None:
        """Nothing was learned of the endpoint: the request ended for another reason. Idempotent."""
        breaker = self._taken()
        if breaker is not None:
            breaker._leave(self)

    def _taken(self) -> Breaker | None:
        breaker, self._breaker = self._breaker, None
        return breaker
