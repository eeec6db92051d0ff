"""Token counts of one request, written by whoever serves it and read by the ledger."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TokenMeter:
    """A running count. The engine or the gate writes it while the answer is made, so that a request that is
    cut at any moment still has its tokens recorded.

    `exact` is False where the backend sent no usage and the completion count is the number of content events.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    exact: bool = True
