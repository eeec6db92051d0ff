"""What a policy asks of masking, as far as it looks at the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


class Blocked(Protocol):
    """Terms and markings that keep a request in."""

    def found(self, texts: Sequence[str], *, within_s: float | None = None) -> bool:
        """Whether one of them stands in one of the texts. Too long a search counts as found.

        Raises:
            TimeoutError: it was not too long yet, but took more than `within_s` seconds.
        """
        ...


@dataclass(frozen=True, slots=True)
class Rules:
    """One policy's rules, for one request.

    Args:
        free_text: what becomes of prose: `mask`, it may leave masked; `refuse`, it does not leave.
        refused: entity types that are refused instead of masked (see `entities.TYPES`).
        max_people: distinct people in one request that may leave masked.
        max_chars: characters of text in one request; None leaves it to `masking.max_chars`, which it cannot exceed.
        blocked: terms and markings; None when there are none.
    """

    free_text: Literal["mask", "refuse"] = "mask"
    refused: frozenset[str] = frozenset({"RRN", "FRN"})
    max_people: int = 20
    max_chars: int | None = None
    blocked: Blocked | None = None
