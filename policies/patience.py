"""What a policy says about time: how long each step of an answer may take. All in seconds."""

from __future__ import annotations

from typing import Any, Final

from pydantic import Field

from weighbridge.config.limits import ExchangeLimits, LocalLimits
from weighbridge.policies.strict import Strict

MAX_S: Final = 86_400
_COMMERCIAL, _LOCAL = ExchangeLimits(), LocalLimits()


def _seconds(default: float, description: str) -> Any:
    return Field(default=default, gt=0, le=MAX_S, description=f"Seconds {description}.")


class CommercialPatience(Strict):
    """How long the steps of an exchange with a commercial API may take."""

    connect_s: float = _seconds(_COMMERCIAL.connect_s, "to connect, TLS included")
    headers_s: float = _seconds(_COMMERCIAL.headers_s, "from the sent request to the head of a stream")
    first_token_s: float = _seconds(
        _COMMERCIAL.first_token_s, "from the sent request to the first content of a stream"
    )
    gap_s: float = _seconds(
        _COMMERCIAL.gap_s, "between two events of a stream after that; comments do not count"
    )
    document_s: float = _seconds(
        _COMMERCIAL.document_s, "from the sent request to the head of an answer that is not streamed"
    )
    total_s: float = _seconds(_COMMERCIAL.total_s, "one exchange may take in all")

    def limits(self) -> ExchangeLimits:
        """The same as plain values."""
        return ExchangeLimits(**self.model_dump())


class LocalPatience(Strict):
    """How long the steps of a local answer may take."""

    first_token_s: float = _seconds(
        _LOCAL.first_token_s, "from the granted slot to the first content of a stream"
    )
    gap_s: float = _seconds(_LOCAL.gap_s, "between two events of a stream after that")
    total_s: float = _seconds(_LOCAL.total_s, "from the granted slot to the end of the answer")

    def limits(self) -> LocalLimits:
        """The same as plain values."""
        return LocalLimits(**self.model_dump())


class Patience(Strict):
    """The limits of both kinds of road. One that runs out before the first content moves the request on."""

    commercial: CommercialPatience = Field(
        default_factory=CommercialPatience, description="An exchange with a commercial API."
    )
    local: LocalPatience = Field(default_factory=LocalPatience, description="An answer of a local tier.")
