"""What a tier needs of a queue lock, whoever keeps the slots: the terms, the interface and its errors.

Implementations share one contract test (`tests/contract/test_slot_lock_contract.py`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

import msgspec

from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ApiError


class Priority(IntEnum):
    """Who is served first; the lower number."""

    CONTINUED = 0
    """An answer that has begun and lost its worker. It waits even while no worker is up, and no bound turns it away."""
    INTERACTIVE = 1
    BATCH = 2


class Ask(msgspec.Struct, frozen=True):
    """One request for a slot.

    Args:
        deadline: no slot is granted at it or after it.
        priority: a lower number goes first, whenever it came.
        tenant: within a priority the tenant that holds the fewest slots goes first, among equal ones the one whose
            first request has waited longest; each tenant's requests go in the order of asking.
        tokens: KV-cache tokens to reserve, prompt and expected answer. A first one for whose tokens there is no room
            keeps the others waiting.
        affinity: requests with the same bytes share the beginning of their prompts and do well on one worker;
            empty where nothing is known.
        wait: False takes a slot that is free now or none.
        shunned: places that have failed this request; one of them is granted only where no other has room.
    """

    deadline: Deadline
    priority: Priority = Priority.INTERACTIVE
    tenant: str = ""
    tokens: int = 0
    affinity: bytes = b""
    wait: bool = True
    shunned: frozenset[str] = frozenset()


class QueueLockTimeout(ApiError):
    """No slot came free in time; another road may serve."""

    def __init__(self, waited_ms: float, message: str | None = None) -> None:
        super().__init__(
            429,
            message or f"No slot came free on the local model within {waited_ms:.0f} ms. Please try again.",
            type="rate_limit_error",
            code="queue_lock_timeout",
            retry_after_s=1,
        )
        self.waited_ms = waited_ms


class WaitTooLong(QueueLockTimeout):
    """The queue ahead will not drain in time, so nobody waited for it.

    Args:
        predicted_ms: the wait that was to be expected, in milliseconds.
    """

    def __init__(self, predicted_ms: float) -> None:
        super().__init__(0.0, "The local model's queue is too long to be served in time. Please try again.")
        self.predicted_ms = predicted_ms


class NoFreeSlot(QueueLockTimeout):
    """No slot is free at this moment, and the request was not to wait."""

    def __init__(self) -> None:
        super().__init__(0.0, "No slot is free on the local model at this moment. Please try again.")


class QueueFull(ApiError):
    """As many wait already as may wait; another road may serve. Told at asking, or to one who waits and gives its place
    up to a tenant that has fewer waiting."""

    def __init__(self) -> None:
        super().__init__(
            429,
            "Too many requests already wait for the local model. Please try again.",
            type="rate_limit_error",
            code="queue_full",
            retry_after_s=2,
        )


class QueueClosed(Exception):
    """No place is open: the tier has no worker at the moment, or is gone."""


class Slot(Protocol):
    """One slot in the hands of one request."""

    @property
    def place(self) -> str:
        """The name of the place it is on."""
        ...

    @property
    def waited_ms(self) -> float:
        """Milliseconds from asking for the slot to getting it."""
        ...

    def resize(self, tokens: int) -> None:
        """Reserve `tokens` instead of what was asked for: the prompt was counted, or the answer runs on."""
        ...

    def release(self) -> None:
        """Give the slot back. Does not wait, may be called again, and may be called from a `finally`."""
        ...


class SlotLock(Protocol):
    """The slots of one tier. Each belongs to a *place*, a worker; a place that is closed grants nothing."""

    @property
    def slots(self) -> int:
        """Slots of all open places."""
        ...

    @property
    def in_use(self) -> int:
        """Slots granted and not given back."""
        ...

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        ...

    @property
    def reserved_tokens(self) -> int:
        """KV-cache tokens reserved by the slots in use."""
        ...

    def open(self, place: str, slots: int, tokens: int | None = None) -> None:
        """Let a worker's slots be granted. A place that is open already is replaced, like one that was closed: slots
        in use come back to the old one and are not counted on the new one.

        Args:
            slots: how many may be held there at a time.
            tokens: KV-cache tokens that may be reserved there; None for no such bound. A request larger than all of
                it is let in when nothing else is there.
        """
        ...

    def close_place(self, place: str) -> None:
        """Grant no more slots there; those in use come back as ever. With the last place gone, those who wait are
        turned away, `Priority.CONTINUED` excepted."""
        ...

    def avoid(self, place: str, avoided: bool) -> None:
        """Grant nothing there while another open place is not avoided: its worker may be in trouble."""
        ...

    async def acquire(self, ask: Ask) -> Slot:
        """Take a slot in turn. Cancelled at any point, it keeps no slot.

        Raises:
            QueueLockTimeout: no slot before the deadline; `WaitTooLong` and `NoFreeSlot` say so at once.
            QueueFull: too many wait already. A newcomer whose tenant has fewer waiting than another comes in all the
                same, and one of the other's leaves: the last to come of the least urgent, never one more urgent than
                the newcomer, never a `Priority.CONTINUED`. With just one fewer only where it holds fewer slots too:
                two tenants do not push each other out in turn.
            QueueClosed: no place is open, at asking or while waiting.
        """
        ...

    def close(self) -> None:
        """Turn away all who wait and all who will ask. Slots in use come back as ever."""
        ...
