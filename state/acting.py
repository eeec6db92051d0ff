"""What is under way on an administrator's behalf, for the audit log.

Held beside the call and not in its arguments: whoever changes something says who asked and why, and the row of that
change gets role, action and request from here, however many rooms lie between. `asyncio.to_thread` takes it along.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Acting:
    """One request of an administrator, or what stands for it.

    Args:
        action: what is being done, such as `key.create`.
        role: of the admin key; empty without one.
        request_id: id of the request; empty without one.
    """

    action: str
    role: str = ""
    request_id: str = ""


BY_FILE: Final = Acting("policy.file")
"""Nobody asked: the policy file has changed."""

_acting: ContextVar[Acting] = ContextVar("acting", default=BY_FILE)


def now_acting() -> Acting:
    """What is under way in this task or thread."""
    return _acting.get()


def set_acting(acting: Acting) -> None:
    """From now on, in this task and what it starts."""
    _acting.set(acting)


@contextmanager
def acting(what: Acting) -> Iterator[None]:
    """Within the block."""
    token = _acting.set(what)
    try:
        yield
    finally:
        _acting.reset(token)
