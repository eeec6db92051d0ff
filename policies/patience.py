"""What a policy says about time: how long each step of an answer may take. All in seconds."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from weighbridge.config.limits import ExchangeLimits, LocalLimits
from weighbridge.policies.strict import Strict

MAX_S: Final = 86_400
_SHIPPED, _SHIPPED_LOCAL = ExchangeLimits(), LocalLimits()


class CommercialPatience(Strict):
    """How long the steps of an exchange with a commercial API may take."""

    connect_s: float = Field(
        default=_SHIPPED.connect_s, gt=0, le=MAX_S, description="Seconds to connect, TLS included."
    )
    headers_s: float = Field(
        default=_SHIPPED.headers_s,
        gt=0,
        le=MAX_S,
        description="Seconds from the sent request to the head of a stream.",
    )
    first_token_s: float = Field(
        default=_SHIPPED.first_token_s,
        gt=0,
        le=MAX_S,
        description="Seconds from the sent request to the first content of a stream.",
    )
    gap_s: float = Field(
        default=_SHIPPED.gap_s,
        gt=0,
        le=MAX_S,
        description="Seconds between two events of a stream after that; comments do not count.",
    )
    document_s: float = Field(
        default=_SHIPPED.document_s,
        gt=0,
        le=MAX_S,
        description="Seconds from the sent request to the head of an answer that is not streamed.",
    )
    total_s: float = Field(
        default=_SHIPPED.total_s, gt=0, le=MAX_S, description="Seconds one exchange may take in all."
    )

    def limits(self) -> ExchangeLimits:
        """The same as plain values."""
        return ExchangeLimits(**self.model_dump())


class LocalPatience(Strict):
    """How long the steps of a local answer may take."""

    first_token_s: float = Field(
        default=_SHIPPED_LOCAL.first_token_s,
        gt=0,
        le=MAX_S,
        description="Seconds from the granted slot to the first content of a stream.",
    )
    gap_s: float = Field(
        default=_SHIPPED_LOCAL.gap_s,
        gt=0,
        le=MAX_S,
        description="Seconds between two events of a stream after that.",
    )
    total_s: float = Field(
        default=_SHIPPED_LOCAL.total_s,
        gt=0,
        le=MAX_S,
        description="Seconds from the granted slot to the end of the answer.",
    )

    def limits(self) -> LocalLimits:
        """The same as plain values."""
        return LocalLimits(**self.model_dump())


class Patience(Strict):
    """The limits of both kinds of road. One that runs out before the first content moves the request on."""

    commercial: CommercialPatience = Field(
        default_factory=CommercialPatience, description="An exchange with a commercial API."
    )
    local: LocalPatience = Field(default_factory=LocalPatience, description="An answer of a local tier.")
