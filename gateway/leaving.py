"""Word from our server that a caller has left, without a task that waits for it."""

from __future__ import annotations

from collections.abc import Callable

LEAVING = "weighbridge.leaving"
"""The ASGI extension that holds a request's `Leaving` (see `gateway.protocol`)."""


class Leaving:
    """One request's caller. Any other server is asked by `receive`, which takes a task for each request."""

    __slots__ = ("_gone", "_tell")

    def __init__(self) -> None:
        self._gone = False
        self._tell: Callable[[], object] | None = None

    def gone(self) -> None:
        """The caller has left. Said by the server, once."""
        self._gone = True
        if self._tell is not None:
            self._tell()

    def watch(self, tell: Callable[[], object]) -> None:
        """Call `tell` when the caller leaves, or now where that has happened."""
        self._tell = tell
        if self._gone:
            tell()

    def unwatch(self) -> None:
        """Tell nobody any more."""
        self._tell = None
