"""The roads a request can take, by the names users type and auditors read."""

from __future__ import annotations

from typing import Final, Literal

Road = Literal["local-8b", "local-70b", "commercial"]

LOCAL_8B: Final = "local-8b"
LOCAL_70B: Final = "local-70b"
COMMERCIAL: Final = "commercial"
AUTO: Final = "auto"

LOCAL_ROADS: Final[tuple[Road, ...]] = (LOCAL_8B, LOCAL_70B)
"""Local roads from the cheapest to the most capable."""

ROADS: Final[tuple[Road, ...]] = (LOCAL_8B, LOCAL_70B, COMMERCIAL)
MODEL_NAMES: Final[tuple[str, ...]] = (AUTO, *ROADS)
