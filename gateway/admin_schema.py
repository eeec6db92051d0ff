"""Answers of the admin API's smaller routes, as OpenAPI tells them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_NEXT = Field(description="`after` of the next page; null at the end.")


class PolicyView(BaseModel):
    """The policy in force, whole."""

    version: str
    name: str
    policy: dict[str, Any] = Field(description="In the policy file's shape, defaults filled in.")
    file: Literal["in_force", "refused", "conflict"] = Field(
        description="How the file as it stands on disk stands to it."
    )
    file_problems: list[str] = Field(description="Why the file is not in force, if it is not.")


class BoundsView(BaseModel):
    """The general bounds on the score."""

    local_8b: float
    local_70b: float


class BaseView(BaseModel):
    """What the policy file says."""

    bounds: BoundsView
    queue_lock_timeout_ms: int


class OverlayView(BaseModel):
    """One change by an administrator."""

    id: int
    at_ns: int = Field(description="When: nanoseconds since 1970, UTC.")
    who: str = Field(description="Id of the admin key; empty for the policy file.")
    why: str
    values: dict[str, Any] = Field(description="All that lies over the file from then on.")
    base_policy_version: str


class ThresholdsView(BaseModel):
    """Thresholds in force."""

    policy: str = Field(description="The version in force.")
    bounds: BoundsView
    queue_lock_timeout_ms: int
    base: BaseView
    overlay: OverlayView | None = Field(
        description="The last change, as long as something lies over the file."
    )


class ThresholdsHistoryView(ThresholdsView):
    """The same with a page of the changes."""

    history: list[OverlayView]
    next_after: int | None = _NEXT


class TierView(BaseModel):
    """One local tier; more fields tell of its slots, its queue and its engines."""

    model_config = ConfigDict(extra="allow")

    road: str
    ready: bool
    whole: bool
    state: str


class PoolView(BaseModel):
    """The local tiers."""

    tiers: list[TierView]


class EgressRowView(BaseModel):
    """What one outward request was, without its text."""

    seq: int = Field(description="Counts from 1 without gaps.")
    form: int
    key_id: str = Field(description="Which chain key signed it.")
    adopted: bool = Field(description="It is older than the chain.")
    egress_id: str
    request_id: str
    attempt: int
    at_ns: int = Field(description="When: nanoseconds since 1970, UTC.")
    endpoint: str
    reason: str
    body_hash: str = Field(description="Keyed hash of the bytes that were sent.")
    body_bytes: int
    entities: dict[str, int] = Field(description="How many values of each kind were masked.")
    policy_version: str
    detector_version: str
    chain: str = Field(description="The link of the row, hex.")


class ChainHeadView(BaseModel):
    """The last row of all."""

    seq: int
    chain: str


class EgressView(BaseModel):
    """A page of the record of what left."""

    rows: list[EgressRowView]
    head: ChainHeadView
    next_after: int | None = _NEXT


class SpanView(BaseModel):
    """Where something was found."""

    start: int
    end: int
    type: str


class PreviewView(BaseModel):
    """What would become of a text."""

    masked: str = Field(
        description="The masked form; empty where it is refused before anything was looked for."
    )
    spans: list[SpanView]
    refused: str | None = Field(description="Why it would not leave, if it would not.")
    explanation: str | None
    egress: str
    layers: list[str]
    policy_version: str
