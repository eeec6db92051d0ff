"""What goes wrong with a server of a tier, told to the log; the callers hear less of it."""

from __future__ import annotations

import logging
from typing import Final

from weighbridge.config.clock import Clock
from weighbridge.pool.http_exchange import LostKind

log = logging.getLogger("weighbridge.pool")

_QUIET_S: Final = 60.0
"""Seconds between two lines of the same complaint: every request may meet the same fault."""


class Trouble:
    """Complains about one server, each complaint at most once a minute.

    Args:
        road: the tier's name.
        url: the server's base URL.
        model: what it is asked for.
    """

    def __init__(self, road: str, url: str, model: str, clock: Clock) -> None:
        self._road = road
        self._url = url
        self._model = model
        self._clock = clock
        self._told_at: dict[str, float] = {}

    def lost(self, kind: LostKind) -> None:
        """An exchange was lost."""
        if kind == "address":
            self._tell("leads outside the private network; nothing was sent")
        elif kind != "ended":
            self._tell(f"gave no whole answer ({kind})")

    def refused(self, status: int) -> None:
        """The server answered with a status that says nothing against the request."""
        settings = f"tiers.{self._road}"
        if status in (401, 403):
            self._tell(f"refuses our key (HTTP {status}): {settings}.endpoint_api_key_file")
        elif 300 <= status < 400:
            self._tell(f"answers with a redirect, which is not followed: {settings}.endpoints")
        elif 400 <= status < 500:
            self._tell(f"does not know {self._model} (HTTP {status}): {settings}.endpoint_model")
        else:
            self._tell(f"failed (HTTP {status})")

    def _tell(self, what: str) -> None:
        now = self._clock.monotonic()
        if now - self._told_at.get(what, -_QUIET_S) >= _QUIET_S:
            self._told_at[what] = now
            log.error("%s: %s %s", self._road, self._url, what)
