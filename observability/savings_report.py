"""What goes into a savings report and what comes out. Amounts are whole numbers of 1e-9 of the book's currency."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final, NamedTuple

import msgspec

NS_PER_DAY: Final = 86_400 * 1_000_000_000


class RequestRow(NamedTuple):
    """What the report reads of a request; `None` where the ledger has nothing."""

    at_ns: int
    """Admission; the end, where the admission was lost."""
    tenant: str
    road: str
    """The road that answered."""
    outcome: str | None
    """None while it is under way."""
    prompt: int
    cached: int
    completion: int
    currency: str | None
    price_version: str | None
    cost_nano: int | None
    """What was booked when it was written."""


class AttemptRow(NamedTuple):
    """What the report reads of an attempt."""

    road: str
    worker: str
    model: str
    started_ns: int
    outcome: str
    egress_id: str
    prompt: int
    cached: int
    completion: int
    worker_us: int | None


class CapacityRow(NamedTuple):
    """A period in which a worker was up."""

    road: str
    worker: str
    from_ns: int
    to_ns: int


class SavingsLine(msgspec.Struct):
    """One tenant's requests that one road answered."""

    tenant: str
    road: str
    requests: int = 0
    answered: int = 0
    """Of them, with a whole answer; only these can have saved anything."""
    tokens: int = 0
    """Prompt and answer of those."""
    counterfactual_nano: int = 0
    counterfactual_unpriced_nano: int = 0
    """Of answered requests some attempt of which has no known cost: not in the one before, and not saved."""
    commercial_nano: int = 0
    local_nano: int = 0
    in_vain_nano: int = 0
    """Part of the two before: attempts that did not serve, of requests that were answered. The last attempt on the
    road that answered is the one that served."""
    unanswered_nano: int = 0
    """Part of the two before: all attempts of requests that were not answered whole."""
    saved_nano: int = 0
    """Before idle capacity, which belongs to no tenant."""


class RateLine(msgspec.Struct, frozen=True):
    """The time the workers of a tier were up at one rate."""

    nano_per_hour: int
    """What an hour of one worker costs, rounded; the cost is reckoned from the exact rate."""
    up_ns: int
    cost_nano: int


class TierLine(msgspec.Struct):
    """What a tier cost, and what became of it: `used + idle - beyond = capacity`."""

    road: str
    capacity_nano: int = 0
    used_nano: int = 0
    idle_nano: int = 0
    beyond_nano: int = 0
    """Work recorded beyond the time its worker is known to have been up."""
    up_ns: int = 0
    busy_us: int = 0
    tokens: int = 0
    """Prompt and answer, of all attempts on the tier."""
    generated: int = 0
    occupancy: str | None = None
    """Busy time of the time up, 0 to 1."""
    nano_per_million: int | None = None
    """All the tier cost, idle time too, for 1,000,000 tokens."""
    nano_per_million_generated: int | None = None
    rates: list[RateLine] = []


class TierDay(msgspec.Struct):
    """The same for one day, to see what occupancy does to the price of a token."""

    day: str
    road: str
    up_ns: int = 0
    busy_us: int = 0
    tokens: int = 0
    capacity_nano: int = 0
    occupancy: str | None = None
    nano_per_million: int | None = None


class Totals(msgspec.Struct):
    """The sum."""

    counterfactual_nano: int = 0
    counterfactual_unpriced_nano: int = 0
    """Of answered requests some attempt of which has no known cost: not in the one before, and not saved."""
    commercial_nano: int = 0
    local_nano: int = 0
    idle_nano: int = 0
    in_vain_nano: int = 0
    unanswered_nano: int = 0
    saved_nano: int = 0


class BreakEven(msgspec.Struct, frozen=True):
    """From which volume on the local tiers are cheaper than the named model."""

    tokens_per_day: int | None
    """None: never, at this mix; or nothing to reckon with."""
    measured_tokens_per_day: int
    capacity_nano_per_day: int
    margin_nano_per_million: int | None
    """What 1,000,000 tokens save before the workers are paid."""
    occupancy_at_break_even: str | None
    """How full the workers would be; above 1 there would have to be more of them."""


class Booked(msgspec.Struct, frozen=True):
    """What was booked when the requests were written, by the prices of then."""

    currency: str
    price_version: str
    requests: int
    cost_nano: int


class Gaps(msgspec.Struct):
    """What the report cannot reckon. Nothing here is counted as 0 without being told."""

    unknown_models: dict[str, int] = {}
    """Attempts at models that the book has no price for, on that day."""
    usage_untold: int = 0
    """Commercial attempts that were sent, and whose usage no one told us."""
    unknown_tiers: dict[str, int] = {}
    """Attempts on tiers that the book has no cost for, on that day."""
    work_unmeasured: int = 0
    """Local attempts from before worker time was measured."""
    capacity_unpriced_ns: int = 0
    """Time up that the book has no cost for."""
    not_compared: int = 0
    """Answers from before the named model's first price: counted as no saving."""
    sent_without_record: int = 0
    """Outward requests without the record of their attempt: a gateway died meanwhile."""
    without_request: int = 0
    """Attempts whose request has no row."""
    under_way: int = 0
    lost: int = 0
    deleted: int = 0
    """Requests of whole days of the window whose records are no longer kept: their workers' time is all idle here."""

    @property
    def unpriced(self) -> int:
        """Attempts without a cost."""
        return (
            sum(self.unknown_models.values())
            + self.usage_untold
            + sum(self.unknown_tiers.values())
            + self.work_unmeasured
            + self.sent_without_record
        )


class SavingsReport(msgspec.Struct):
    """The whole report."""

    currency: str
    price_version: str
    example_prices: bool
    compared_with: str
    token_factor: str
    from_ns: int | None
    to_ns: int | None
    totals: Totals
    lines: list[SavingsLine]
    tiers: list[TierLine]
    days: list[TierDay]
    break_even: BreakEven
    gaps: Gaps
    booked: list[Booked]


class Window(NamedTuple):
    """What a report is about: requests admitted in it, and workers' time in it."""

    since_ns: int | None = None
    until_ns: int | None = None
    """The first nanosecond after it."""

    def clip(self, from_ns: int, to_ns: int) -> tuple[int, int]:
        return (
            from_ns if self.since_ns is None else max(from_ns, self.since_ns),
            to_ns if self.until_ns is None else min(to_ns, self.until_ns),
        )


def day_text(day: int) -> str:
    """`2026-01-31` of a UTC day's number since 1970."""
    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()
