"""What a caller may ask for in request headers. A wish can only shorten a wait, lower a priority or keep a request in.

A header that is given more than once counts with its humblest value: the shortest wait, and `batch` before
`interactive`. So nothing that adds a header on the way can win more than the caller asked for. A data class or a
conversation that is given twice must be the same each time: which of two is the stricter only the policy can tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from weighbridge.config.errors import InvalidRequest
from weighbridge.policies.schema import MAX_QUEUE_LOCK_MS

MAX_QUEUE_MS: Final = b"x-weighbridge-max-queue-ms"
PRIORITY: Final = b"x-weighbridge-priority"
DATA_CLASS: Final = b"x-weighbridge-data-class"
CONVERSATION: Final = b"x-weighbridge-conversation-id"
EXPLAIN: Final = b"x-weighbridge-explain"

_DIGITS: Final = re.compile(rb"[0-9]{1,6}")
_CLASS: Final = re.compile(rb"[A-Za-z0-9._-]{1,32}")
_NAME: Final = re.compile(rb"[A-Za-z0-9._:@/+=-]{1,200}")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What one caller asked for.

    Args:
        max_queue_ms: milliseconds to wait for a slot at most, 0 for no wait; None leaves it to the policy. Never
            lengthens the policy's wait.
        batch: interactive requests go first. False says nothing against a tenant that is `batch` by policy.
        data_class: class of the request's data, in small letters; one less strict than the policy's changes nothing.
        conversation: the name of the conversation that the request belongs to.
        explain: the answer's headers are to say how the decision came about.
    """

    max_queue_ms: int | None = None
    batch: bool = False
    data_class: str | None = None
    conversation: str | None = None
    explain: bool = False


_NONE: Final = Wishes()


def read_wishes(headers: Mapping[bytes, bytes]) -> Wishes:
    """The wishes in a request's headers.

    Args:
        headers: by name in lower case, the values of a repeated name joined by commas (`gateway.auth.header_map`).

    Raises:
        InvalidRequest: a value is none of the legal ones; `param` is the header's name.
    """
    wait, priority = headers.get(MAX_QUEUE_MS), headers.get(PRIORITY)
    data_class, conversation = headers.get(DATA_CLASS), headers.get(CONVERSATION)
    explain = headers.get(EXPLAIN)
    if wait is None and priority is None and data_class is None and conversation is None and explain is None:
        return _NONE
    return Wishes(
        max_queue_ms=None if wait is None else min(_milliseconds(value) for value in _values(wait)),
        batch=priority is not None and any([_is_batch(value) for value in _values(priority)]),
        data_class=None if data_class is None else _one(DATA_CLASS, data_class, _CLASS, _CLASS_LEGAL).lower(),
        conversation=None if conversation is None else _one(CONVERSATION, conversation, _NAME, _NAME_LEGAL),
        explain=explain is not None and all([_is_true(value) for value in _values(explain)]),
    )


def _values(raw: bytes) -> list[bytes]:
    return [value.strip(b" \t") for value in raw.split(b",")]


def _milliseconds(value: bytes) -> int:
    wait = int(value) if _DIGITS.fullmatch(value) else None
    if wait is None or wait > MAX_QUEUE_LOCK_MS:
        raise _refused(MAX_QUEUE_MS, f"a whole number of milliseconds from 0 to {MAX_QUEUE_LOCK_MS}")
    return wait


def _is_batch(value: bytes) -> bool:
    if value not in (b"batch", b"interactive"):
        raise _refused(PRIORITY, "interactive or batch")
    return value == b"batch"


def _is_true(value: bytes) -> bool:
    if value not in (b"true", b"false"):
        raise _refused(EXPLAIN, "true or false")
    return value == b"true"


_CLASS_LEGAL: Final = "1 to 32 letters, digits and . _ -"
_NAME_LEGAL: Final = "1 to 200 letters, digits and . _ : @ / + = -"


def _one(header: bytes, raw: bytes, legal: re.Pattern[bytes], words: str) -> str:
    values = set(_values(raw))
    value = values.pop()
    if values or legal.fullmatch(value) is None:
        raise _refused(header, words)
    return value.decode("ascii")


def _refused(header: bytes, legal: str) -> InvalidRequest:
    name = header.decode("ascii")
    return InvalidRequest(f"The header '{name}' must be {legal}.", code="invalid_header", param=name)
