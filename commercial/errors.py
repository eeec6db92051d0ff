"""What the gate raises. No message holds a word of the provider's answer."""

from __future__ import annotations

from typing import Literal

from weighbridge.config.errors import ApiError

FailureKind = Literal["connect", "status", "reset", "stall", "cut", "malformed", "timeout", "resting"]
"""How an outward request failed.

- connect: no connection (name, TCP, TLS, or its time limit).
- status: an HTTP status that says nothing against the request, such as 500 or 429, or an error document or event
  under status 200.
- reset: the connection was lost before an answer began.
- stall: no head, no first content or no further event within the limit for it.
- cut: the answer broke off.
- malformed: what came is not what the protocol says.
- timeout: the exchange took longer than the total limit or the request's deadline.
- resting: the endpoint was not asked, because it failed too often or said when to come again.
"""


class SealBroken(Exception):
    """The request is not, or no longer, what masking sealed in this process. Nothing was sent."""

    def __init__(self) -> None:
        super().__init__("the seal of a masked request does not fit its content")


ClosedBy = Literal["switched_off", "pinned"]
"""What closed the way out after the decision: the kill switch, or a pin that keeps the conversation local."""


class EgressClosed(Exception):
    """Nothing may leave any more, so nothing of this request was sent."""

    def __init__(self, by: ClosedBy) -> None:
        super().__init__(f"the way out is closed: {by}")
        self.by: ClosedBy = by


class UpstreamFailed(Exception):
    """The commercial API did not deliver; another road may serve.

    Args:
        kind: how.
        status: the HTTP status, where one came.
        retry_after_s: what the API asked for in `Retry-After`, in seconds.
    """

    def __init__(
        self, kind: FailureKind, *, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"the commercial API failed: {kind}" + ("" if status is None else f" {status}"))
        self.kind: FailureKind = kind
        self.status = status
        self.retry_after_s = retry_after_s


class UpstreamRefused(ApiError):
    """The commercial API refused this very request; no other road is tried.

    What lies in the request (400, 413, 422) is answered with its own status. What lies between us and the provider
    (401, 403, 404: key, permission, model name) is 502: the caller's own key is in order.

    Args:
        status: the provider's HTTP status.
        code: the provider's error code, where it is one we know.
    """

    def __init__(self, status: int, code: str | None = None) -> None:
        ours = status in (400, 413, 422)
        named = f", code {code}" if code else ""
        super().__init__(
            status if ours else 502,
            f"The commercial API refused the request (HTTP {status}{named}).",
            type="invalid_request_error" if ours else "server_error",
            code=code if ours and code else "upstream_refused",
        )
        self.upstream_status = status
        self.upstream_code = code


REFUSALS = frozenset({400, 401, 403, 404, 413, 422})
