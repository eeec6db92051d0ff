"""What the gateway hands to the router: an authenticated, parsed request, and where the answer goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from weighbridge.config.roads import Road

_FIRST_TURN: Final = ("system", "developer", "user")


class Admitted(msgspec.Struct, frozen=True):
    """A request that is authenticated and parsed. From here the dispatch owes exactly one usage record.

    Args:
        request_id: UUIDv7 made at admission; the ledger, the engine and the upstream share it.
        body: the decoded chat-completions body, unknown fields kept.
        body_bytes: length of the body as received, in bytes.
        model: the requested model name: one of `config.roads.MODEL_NAMES`, a tier's adapter, or a policy's alias.
        stream: whether the caller asked for Server-Sent Events.
        admitted_at: monotonic seconds at admission.
        admitted_ns: UTC nanoseconds at admission.
        max_queue_ms: milliseconds the caller wants to wait for a slot at most; None leaves it to the policy.
        batch: whether the caller lets interactive requests go first.
        data_class: class of its data as the caller names it, in small letters; None leaves it to the policy.
        conversation: the caller's name for the conversation it belongs to; None where it names none.
        explain: whether the answer's headers are to say how the decision came about.
        traceparent: the header of this name as it came; None where none did.
        barred: roads that its key may not use.
    """

    request_id: str
    body: dict[str, Any]
    body_bytes: int
    model: str
    stream: bool
    tenant: str
    key_id: str
    admitted_at: float
    admitted_ns: int
    max_queue_ms: int | None = None
    batch: bool = False
    data_class: str | None = None
    conversation: str | None = None
    explain: bool = False
    traceparent: bytes | None = None
    barred: frozenset[Road] = frozenset()

    @property
    def begun(self) -> bool:
        """Whether an answer was given before: the messages hold a turn that is neither the user's nor the system's."""
        messages = self.body.get("messages")
        return isinstance(messages, list) and any(
            isinstance(message, dict) and message.get("role") not in _FIRST_TURN for message in messages
        )


class ClientGone(Exception):
    """The caller has disconnected, or reads so slowly that we gave up on it.

    Args:
        code: `disconnected` or `slow_reader`; goes into the record.
    """

    def __init__(self, code: str = "disconnected") -> None:
        super().__init__(code)
        self.code = code


Header = tuple[bytes, bytes]


class Sink(Protocol):
    """Where an answer is written. Writing waits while the caller is not reading."""

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        """Send the status line and headers (names in lower case). Called once."""
        ...

    async def write(self, data: bytes) -> None:
        """Send a piece of the body.

        Raises:
            ClientGone: nobody takes it, or did not for longer than the slow-reader limit.
        """
        ...

    async def end(self) -> None:
        """Finish the body."""
        ...
