"""A disk that hangs: neither takes the rows nor refuses them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weighbridge.observability.metrics import Metrics

log = logging.getLogger("weighbridge.ledger")


class Stall:
    """Whether somebody gave up waiting while the commit under way lasts.

    It ends with that commit by itself, whatever comes of it: nothing can be left saying that the disk hangs.
    """

    def __init__(self, metrics: Metrics | None) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._committing = False
        self._hangs = False

    @property
    def hangs(self) -> bool:
        return self._hangs

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Around each commit, in the writer's thread."""
        self._committing = True
        try:
            yield
        finally:
            with self._lock:
                self._committing = False
                hung, self._hangs = self._hangs, False
            if hung:
                log.warning("the ledger's disk answers again")

    def given_up(self) -> None:
        """A row was waited for too long. Without a commit under way that is the queue's fault, not the disk's."""
        with self._lock:
            if not self._committing or self._hangs:
                return
            self._hangs = True
            if self._metrics is not None:
                self._metrics.ledger_healthy.set(0)
        log.error("the ledger's disk hangs; rows wait in memory")
