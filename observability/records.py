"""The rows of the usage ledger. Numbers, names and ids only: no row has a place for request text.

`request_id` is the UUIDv7 made at admission. Times are nanoseconds since 1970 (UTC); durations are milliseconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Outcome = Literal["ok", "client_aborted", "truncated", "refused", "error", "lost"]
"""How a request ended.

ok: the whole answer was made. client_aborted: the caller went away or read too slowly. truncated: the answer broke
off after its first content byte. refused: we answered with a 4xx of our own or of the backend. error: 5xx.
lost: the gateway died before the request ended; written by the next start.
"""


class Intent(msgspec.Struct, frozen=True):
    """Written once a request is admitted and decided, before any backend is called."""

    request_id: str
    admitted_ns: int
    tenant: str
    key_id: str
    model_requested: str
    stream: bool
    road: str
    score: float | None
    """None for a request that named its road and was not weighed."""
    task: str
    policy_version: str
    calibration_version: str
    reasons: tuple[str, ...]
    p_8b_fails: float | None = None
    """P(the 8B fails), 0 to 1, before any clamp; None where it was not weighed."""
    p_70b_fails: float | None = None
    """P(the 70B fails and the frontier model does not), the same."""


class Progress(msgspec.Struct, frozen=True):
    """Every 64 tokens or second of an answer under way; what a `lost` row takes its tokens from."""

    request_id: str
    prompt_tokens: int
    completion_tokens: int


class Attempt(msgspec.Struct, frozen=True):
    """One backend tried for a request; `n` counts from 1."""

    request_id: str
    n: int
    road: str
    started_ns: int
    ended_ns: int
    outcome: str
    """`ok`, or why the road was left: `queue_timeout`, `queue_full`, `not_ready`, `engine_unavailable`,
    `escalated_invalid_json` or another word for what spoke against its answer, `masking_refused`, `upstream_status`,
    `upstream_connect`, `upstream_stall`, `upstream_cut`, ..."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    queue_ms: float = 0.0
    egress_id: str = ""
    backend: str = ""
    """Which worker of the tier, or which commercial endpoint; empty while none was asked."""
    model: str = ""
    """The model that was asked there, by the name it was asked by."""
    worker_us: int = 0
    """What a local attempt had of its worker: microseconds it held a slot, divided by the worker's slots and rounded,
    halves to the even number. 0 for a commercial one."""


class Completion(msgspec.Struct, frozen=True):
    """Written once when a request ends, whatever its end."""

    request_id: str
    ended_ns: int
    outcome: Outcome
    status: int
    """The HTTP status the caller saw, 0 when nothing was sent."""
    road: str
    """The road that answered; the last one tried when none did; empty when none was tried."""
    attempts: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    tokens_exact: bool
    queue_ms: float
    ttft_ms: float | None
    """Admission to the first content byte; None when there was none."""
    total_ms: float
    error_code: str = ""
    tpot_ms: float | None = None
    """Milliseconds for each token after the first, from the first to the last event of a stream; None for fewer than
    two tokens and for an answer that was not streamed."""


class Capacity(msgspec.Struct, frozen=True):
    """A period in which a worker of a tier was up. Written again as it goes on; the last one counts.

    `to_ns` is `from_ns` and the time that has passed since, whatever was done to the machine's clock meanwhile.
    """

    road: str
    worker: str
    from_ns: int
    to_ns: int
    slots: int


class Rejected(msgspec.Struct, frozen=True, array_like=True):
    """A record that the collector would not take for good, or that could not be put into words."""

    stream: str
    """`requests` or `egress`."""
    id: str
    seq: int
    at_ns: int
    reason: str


class Shipped(msgspec.Struct, frozen=True):
    """How far the collector has everything. No record of its own: the last one says all that earlier ones said."""

    requests: int
    """Up to this number of `requests.seq`."""
    egress: int
    """Up to this number of `egress.seq`."""
    rejected: tuple[Rejected, ...] = ()


class Egress(msgspec.Struct, frozen=True):
    """One outward request. Durable before its first byte leaves; keeps a keyed hash of the bytes, never them.

    The table holds it with a sequence number, tied to the row before: see `egress_chain`.
    """

    egress_id: str
    request_id: str
    attempt: int
    at_ns: int
    endpoint: str
    reason: str
    """Why it left: `score`, `task`, `rule`, `explicit`, `queue_lock_timeout`, `worker_lost`, `local_late`, `window`,
    `escalation`, `shadow`."""
    body_hash: str
    body_bytes: int
    entities: dict[str, int]
    policy_version: str
    detector_version: str
