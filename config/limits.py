"""How long the steps of an answer may take, as a policy says it. Seconds throughout."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExchangeLimits:
    """Limits on one exchange with a commercial API. Each is its own; the defaults are the shipped policy's."""

    connect_s: float = 3.0
    """To connect, TLS included."""
    headers_s: float = 30.0
    """From the sent request to the head of a stream."""
    first_token_s: float = 60.0
    """From the sent request to the first event of a stream that carries content."""
    gap_s: float = 60.0
    """Between two events of a stream after that; between two pieces of a document."""
    document_s: float = 180.0
    """From the sent request to the head of an answer that is one document: providers send it when all of it is made."""
    total_s: float = 300.0
    """The whole exchange."""


@dataclass(frozen=True, slots=True)
class LocalLimits:
    """Limits on one answer of a local tier."""

    first_token_s: float = 120.0
    """From the granted slot to the first content of a stream."""
    gap_s: float = 60.0
    """Between two events of a stream after that."""
    total_s: float = 600.0
    """From the granted slot to the end of the answer."""
