"""How much may be under way at once: requests in all, requests of one key, and bytes of bodies in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weighbridge.config.errors import ApiError

RETRY_AFTER_S: Final = 1.0

SMALL_BODY_BYTES: Final = 65_536
"""Bodies up to this size (bytes) are bounded by the number of requests, and not counted one by one."""


_TOO_MANY: Final = "too_many_requests"
_BUSY: Final = "gateway_busy"
UNREAD: Final = frozenset((_TOO_MANY, _BUSY))
"""Codes of refusals that come before the body is read."""


class Concurrency:
    """Counts requests from their authentication to their end. Not for several threads.

    Args:
        most: requests in all.
        most_per_key: requests of one API key.
        most_body_bytes: bytes of bodies that are being read or whose requests are under way.
        refused: told the reason of every refusal: `requests`, `key` or `bodies`.
    """

    def __init__(
        self,
        *,
        most: int,
        most_per_key: int,
        most_body_bytes: int,
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._most = most
        self._most_per_key = most_per_key
        self._most_body_bytes = most_body_bytes
        self._refused = refused
        self._count = 0
        self._of_key: dict[str, int] = {}
        self._body_bytes = 0

    @property
    def count(self) -> int:
        """Requests under way."""
        return self._count

    @property
    def body_bytes(self) -> int:
        """Bytes of bodies held, small ones not counted."""
        return self._body_bytes

    def enter(self, key_id: str, most_of_key: int | None = None) -> None:
        """Count one more request; `leave` takes it back.

        Args:
            most_of_key: requests of this key, where that is fewer than of any key.

        Raises:
            ApiError: 429 where the key, 503 where the gateway has as many as it may. Nothing was counted then.
        """
        of_key = self._of_key.get(key_id, 0)
        most = self._most_per_key if most_of_key is None else min(most_of_key, self._most_per_key)
        if of_key >= most:
            self._refused("key")
            raise ApiError(
                429,
                f"This API key has as many requests under way as it may have at once ({most}).",
                type="rate_limit_error",
                code=_TOO_MANY,
                retry_after_s=RETRY_AFTER_S,
            )
        if self._count >= self._most:
            self._refused("requests")
            raise gateway_busy("The gateway has as many requests under way as it takes at once.")
        self._of_key[key_id] = of_key + 1
        self._count += 1

    def leave(self, key_id: str, held: int = 0) -> None:
        """The end of a request that `enter` let in.

        Args:
            held: what `hold`, or `settle` after it, returned.
        """
        of_key = self._of_key.pop(key_id) - 1
        if of_key:  # keys come and go while it runs
            self._of_key[key_id] = of_key
        self._count -= 1
        self._body_bytes -= held

    def hold(self, declared: int | None, limit: int) -> int:
        """Set bytes aside for a body before it is read.

        Args:
            declared: its length if that is known; else the whole `limit` is set aside.
            limit: bytes that one body may have.

        Returns:
            The bytes set aside, to be given back with `leave`.

        Raises:
            ApiError: 503, there is no room for it.
        """
        if declared is not None and declared <= SMALL_BODY_BYTES:
            return 0
        wanted = limit if declared is None else min(declared, limit)
        if self._body_bytes + wanted > self._most_body_bytes:
            self._refused("bodies")
            raise gateway_busy("The gateway holds as many request bodies as it takes at once.")
        self._body_bytes += wanted
        return wanted

    def settle(self, held: int, size: int) -> int:
        """Give back what a body of `size` bytes did not need. Returns: what is still held."""
        self._body_bytes += size - held
        return size


def gateway_busy(message: str) -> ApiError:
    """503: come again when something has ended."""
    return ApiError(503, message, type="server_error", code=_BUSY, retry_after_s=RETRY_AFTER_S)
