"""Answers of the admin API about usage and money, as OpenAPI tells them. Amounts are decimal text, every digit."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Money = Annotated[str, Field(pattern=r"^-?[0-9]+\.[0-9]{9}$", examples=["0.003500000"])]
Share = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]{4}$", examples=["0.4375"])]


class _View(BaseModel):
    # What the report holds and the schema does not would otherwise be dropped in silence.
    model_config = ConfigDict(extra="forbid")


class UsageRowView(_View):
    """Finished requests of one kind."""

    day: str | None = Field(description="UTC day of the admission; null where it was not asked for.")
    tenant: str | None = Field(description="Null where it was not asked for.")
    road: str | None = Field(description="The road that answered, or the last one tried; null as above.")
    task: str | None = Field(description="Null where it was not asked for.")
    currency: str = Field(description="Of the amounts; empty for requests that were never priced.")
    requests: int
    answered: int = Field(description="With a whole answer.")
    attempts: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: Money = Field(description="Booked cost of all their attempts.")
    counterfactual: Money = Field(description="What the whole answers would have cost at the named model.")


class UsageView(_View):
    """A page of sums."""

    by: list[str]
    since: str | None
    until: str | None = Field(description="The first UTC day that is not in it.")
    rows: list[UsageRowView]
    total: list[UsageRowView] = Field(description="Of all pages, one for each currency.")
    price_versions: list[str] = Field(description="The price books that the costs were booked by.")
    unpriced_attempts: int = Field(description="Attempts of those days without a cost; not in the sums.")
    next_after: int | None = Field(description="`after` of the next page; null at the end.")


class TotalsView(_View):
    """The sum."""

    counterfactual: Money = Field(description="Of answers whose requests have a known cost.")
    counterfactual_unpriced: Money = Field(
        description="Of answers some attempt of whose requests has no known cost; not counted as saved."
    )
    commercial: Money
    local: Money
    idle: Money
    in_vain: Money = Field(description="Part of commercial and local: attempts that did not serve.")
    unanswered: Money = Field(description="Part of them: requests that were not answered whole.")
    saved: Money = Field(description="counterfactual - commercial - local - idle; may be negative.")


class SavingsLineView(_View):
    """One tenant's requests that one road answered."""

    tenant: str
    road: str
    requests: int
    answered: int
    tokens: int
    counterfactual: Money = Field(description="Of answers whose requests have a known cost.")
    counterfactual_unpriced: Money = Field(
        description="Of answers some attempt of whose requests has no known cost; not counted as saved."
    )
    commercial: Money
    local: Money
    in_vain: Money
    unanswered: Money
    saved: Money = Field(description="Before idle capacity, which belongs to no tenant.")


class RateView(_View):
    """Time up at one rate."""

    per_hour: Money
    up_ns: int
    cost: Money


class TierView(_View):
    """What a tier cost: used + idle - beyond = capacity."""

    road: str
    capacity: Money
    used: Money
    idle: Money
    beyond: Money = Field(description="Work recorded beyond the time its worker is known to have been up.")
    up_ns: int
    busy_us: int
    tokens: int
    generated: int
    occupancy: Share | None
    per_million: Money | None = Field(description="Capacity for 1,000,000 tokens of prompts and answers.")
    per_million_generated: Money | None
    rates: list[RateView]


class TierDayView(_View):
    """A tier's UTC day."""

    day: str
    road: str
    up_ns: int
    busy_us: int
    tokens: int
    capacity: Money
    occupancy: Share | None
    per_million: Money | None


class BreakEvenView(_View):
    """From which volume on the local tiers are cheaper than the named model."""

    tokens_per_day: int | None = Field(description="Null: never, at this mix.")
    measured_tokens_per_day: int
    capacity_per_day: Money
    margin_per_million: Money | None
    occupancy_at_break_even: Share | None


class GapsView(_View):
    """What could not be reckoned."""

    unknown_models: dict[str, int]
    usage_untold: int
    unknown_tiers: dict[str, int]
    work_unmeasured: int
    capacity_unpriced_ns: int
    not_compared: int
    sent_without_record: int
    without_request: int
    under_way: int
    lost: int
    deleted: int


class BookedView(_View):
    """What was booked when the requests were served."""

    currency: str
    price_version: str
    requests: int
    cost: Money


class SavingsView(_View):
    """The savings report."""

    currency: str
    price_version: str
    example_prices: bool = Field(
        description="Reckoned with the shipped example, whose figures are nobody's own."
    )
    compared_with: str
    token_factor: str
    from_ns: int | None
    to_ns: int | None
    totals: TotalsView
    lines: list[SavingsLineView]
    tiers: list[TierView]
    days: list[TierDayView]
    break_even: BreakEvenView
    gaps: GapsView
    booked: list[BookedView]
