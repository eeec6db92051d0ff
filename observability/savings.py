"""The savings report: what the answers would have cost at the named model, minus everything that was spent.

Pure arithmetic over rows of the ledger; docs/costs.md says it in words. All amounts are whole numbers of 1e-9 of the
book's currency ("nano").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from weighbridge.config.roads import COMMERCIAL
from weighbridge.observability.costs import CostTable, WorkerRate, round_half_even
from weighbridge.observability.savings_report import (
    NS_PER_DAY,
    AttemptRow,
    Booked,
    BreakEven,
    CapacityRow,
    Gaps,
    RateLine,
    RequestRow,
    SavingsLine,
    SavingsReport,
    TierDay,
    TierLine,
    Totals,
    Window,
    day_text,
)

_MILLION: Final = 1_000_000


class Tally:
    """Takes rows one by one and makes the report of them. Holds sums only, however many rows there are."""

    def __init__(self, table: CostTable, window: Window) -> None:
        self._table = table
        self._window = window
        self._lines: dict[tuple[str, str], SavingsLine] = {}
        self._used: Counter[tuple[str, str]] = Counter()
        self._work: dict[tuple[int, str], list[int]] = {}
        """By day and tier: busy microseconds, tokens, tokens generated."""
        self._up: Counter[tuple[str, str, int, WorkerRate]] = Counter()
        self.ended: Counter[int] = Counter()
        """Requests that have ended, by UTC day of admission."""
        self._booked: dict[tuple[str, str], list[int]] = {}
        self._first: int | None = None
        self._last: int | None = None
        self.gaps = Gaps()

    def request(self, row: RequestRow, attempts: Sequence[AttemptRow], forgotten: bool = False) -> None:
        """A request with all its attempts.

        Args:
            attempts: in their order.
            forgotten: something that it sent outwards has no record of its attempt.
        """
        self._span(row.at_ns)
        line = self._lines.setdefault((row.tenant, row.road), SavingsLine(row.tenant, row.road))
        line.requests += 1
        answered = row.outcome == "ok"
        saved: int | None = None
        if row.outcome is None:
            self.gaps.under_way += 1
        else:
            self.ended[row.at_ns // NS_PER_DAY] += 1
        if row.outcome == "lost":
            self.gaps.lost += 1
        if answered:
            line.answered += 1
            line.tokens += row.prompt + row.completion
            saved = self._table.counterfactual(
                outcome=row.outcome,
                road=row.road,
                at_ns=row.at_ns,
                prompt=row.prompt,
                cached=row.cached,
                completion=row.completion,
            )
            if saved is None:
                self.gaps.not_compared += 1
        if row.currency is not None and row.price_version is not None:
            booked = self._booked.setdefault((row.currency, row.price_version), [0, 0])
            booked[0] += 1
            booked[1] += row.cost_nano or 0
        served = _served(row.road, attempts) if answered else None
        # Every attempt is to be reckoned, so the list is made in full.
        priced = all(
            [
                self._attempt(line, attempt, row.at_ns, answered, n == served)
                for n, attempt in enumerate(attempts)
            ]
        )
        if priced and not forgotten:
            line.counterfactual_nano += saved or 0
        else:
            # Against a cost that nobody knows there is nothing to hold it.
            line.counterfactual_unpriced_nano += saved or 0

    def orphan(self, attempt: AttemptRow) -> None:
        """An attempt whose request has no row."""
        self.gaps.without_request += 1
        line = self._lines.setdefault(("", attempt.road), SavingsLine("", attempt.road))
        self._attempt(line, attempt, attempt.started_ns, answered=False, served=False)

    def capacity(self, row: CapacityRow) -> None:
        """A period in which a worker was up."""
        from_ns, to_ns = self._window.clip(row.from_ns, row.to_ns)
        if from_ns >= to_ns:
            return
        self._span(from_ns)
        self._span(to_ns)
        for start, end, rate in self._table.periods(row.road, from_ns, to_ns):
            if rate is None:
                self.gaps.capacity_unpriced_ns += end - start
                continue
            while start < end:
                day = start // NS_PER_DAY
                stop = min(end, (day + 1) * NS_PER_DAY)
                self._up[row.road, row.worker, day, rate] += stop - start
                start = stop

    def _span(self, ns: int) -> None:
        self._first = ns if self._first is None else min(self._first, ns)
        self._last = ns if self._last is None else max(self._last, ns)

    def _attempt(self, line: SavingsLine, row: AttemptRow, at_ns: int, answered: bool, served: bool) -> bool:
        """Returns whether its cost is known."""
        cost = self._table.attempt(
            road=row.road,
            model=row.model,
            started_ns=row.started_ns,
            outcome=row.outcome,
            egress_id=row.egress_id,
            prompt=row.prompt,
            cached=row.cached,
            completion=row.completion,
            worker_us=row.worker_us,
        )
        if cost is None:
            self._unpriced(row)
        nano = cost or 0
        if row.road == COMMERCIAL:
            line.commercial_nano += nano
        else:
            line.local_nano += nano
            self._used[row.road, row.worker] += nano
            done = self._work.setdefault((at_ns // NS_PER_DAY, row.road), [0, 0, 0])
            done[0] += row.worker_us or 0
            done[1] += row.prompt + row.completion
            done[2] += row.completion
        if not answered:
            line.unanswered_nano += nano
        elif not served:
            line.in_vain_nano += nano
        return cost is not None

    def _unpriced(self, row: AttemptRow) -> None:
        gaps = self.gaps
        if row.road != COMMERCIAL:
            if row.worker_us is None:
                gaps.work_unmeasured += 1
            else:
                gaps.unknown_tiers[row.road] = gaps.unknown_tiers.get(row.road, 0) + 1
        elif row.prompt == 0:
            gaps.usage_untold += 1
        else:
            gaps.unknown_models[row.model] = gaps.unknown_models.get(row.model, 0) + 1

    # ---- the report ----

    def report(self) -> SavingsReport:
        """Of all rows taken so far."""
        for line in self._lines.values():
            line.saved_nano = line.counterfactual_nano - line.commercial_nano - line.local_nano
        lines = sorted(self._lines.values(), key=lambda line: (line.tenant, line.road))
        tiers, days = self._tiers()
        totals = Totals(
            counterfactual_nano=sum(line.counterfactual_nano for line in lines),
            counterfactual_unpriced_nano=sum(line.counterfactual_unpriced_nano for line in lines),
            commercial_nano=sum(line.commercial_nano for line in lines),
            local_nano=sum(line.local_nano for line in lines),
            idle_nano=sum(tier.idle_nano for tier in tiers),
            in_vain_nano=sum(line.in_vain_nano for line in lines),
            unanswered_nano=sum(line.unanswered_nano for line in lines),
        )
        totals.saved_nano = sum(line.saved_nano for line in lines) - totals.idle_nano
        window = self._window
        return SavingsReport(
            currency=self._table.currency,
            price_version=self._table.version,
            example_prices=self._table.is_example,
            compared_with=self._table.compared_with,
            token_factor=self._table.token_factor_text,
            from_ns=self._first if window.since_ns is None else window.since_ns,
            to_ns=self._last if window.until_ns is None else window.until_ns,
            totals=totals,
            lines=lines,
            tiers=tiers,
            days=days,
            break_even=self._break_even(lines, tiers),
            gaps=self.gaps,
            booked=[Booked(*key, *sums) for key, sums in sorted(self._booked.items())],
        )

    def _tiers(self) -> tuple[list[TierLine], list[TierDay]]:
        capacity: Counter[tuple[str, str]] = Counter()
        tiers: dict[str, TierLine] = {}
        days: dict[tuple[int, str], TierDay] = {}
        rates: dict[tuple[str, WorkerRate], list[int]] = {}

        def tier_of(road: str) -> TierLine:
            return tiers.setdefault(road, TierLine(road, rates=[]))

        for (road, worker, day, rate), ns in self._up.items():
            nano = rate.of_ns(ns)
            capacity[road, worker] += nano
            tier, on_day = tier_of(road), self._day_of(days, day, road)
            tier.capacity_nano += nano
            tier.up_ns += ns
            on_day.capacity_nano += nano
            on_day.up_ns += ns
            at_rate = rates.setdefault((road, rate), [0, 0])
            at_rate[0] += ns
            at_rate[1] += nano
        for road, worker in capacity.keys() | self._used.keys():
            left = capacity[road, worker] - self._used[road, worker]
            tier = tier_of(road)
            tier.used_nano += self._used[road, worker]
            tier.idle_nano += max(left, 0)
            tier.beyond_nano += max(-left, 0)
        for (day, road), (busy_us, tokens, generated) in self._work.items():
            tier, on_day = tier_of(road), self._day_of(days, day, road)
            tier.busy_us += busy_us
            tier.tokens += tokens
            tier.generated += generated
            on_day.busy_us, on_day.tokens = busy_us, tokens
        for (road, rate), (ns, nano) in sorted(
            rates.items(), key=lambda item: (item[0][0], item[0][1].shown)
        ):
            tiers[road].rates.append(RateLine(rate.shown, ns, nano))
        for tier in tiers.values():
            tier.occupancy = _share(tier.busy_us, tier.up_ns)
            tier.nano_per_million = _per_million(tier.capacity_nano, tier.tokens)
            tier.nano_per_million_generated = _per_million(tier.capacity_nano, tier.generated)
        for on_day in days.values():
            on_day.occupancy = _share(on_day.busy_us, on_day.up_ns)
            on_day.nano_per_million = _per_million(on_day.capacity_nano, on_day.tokens)
        return [tiers[road] for road in sorted(tiers)], [days[key] for key in sorted(days)]

    def _day_of(self, days: dict[tuple[int, str], TierDay], day: int, road: str) -> TierDay:
        if (day, road) not in days:
            days[day, road] = TierDay(day_text(day), road)
        return days[day, road]

    def _break_even(self, lines: list[SavingsLine], tiers: list[TierLine]) -> BreakEven:
        # Not the window that was asked for: a year of which there are two days of records is two days.
        span = 0 if self._first is None or self._last is None else self._last - self._first
        if span <= 0:
            return BreakEven(None, 0, 0, None, None)
        tokens = sum(line.tokens for line in lines)
        # What a token brings in pays for the workers, which cost the same however many tokens there are.
        margin = sum(line.counterfactual_nano - line.commercial_nano for line in lines)
        capacity = sum(tier.capacity_nano for tier in tiers)
        per_day = round_half_even(capacity * NS_PER_DAY, span)
        measured = tokens * NS_PER_DAY // span
        margin_per_million = _per_million(margin, tokens)
        if not tokens or margin <= 0 or not capacity:
            return BreakEven(None, measured, per_day, margin_per_million, None)
        needed = Fraction(capacity * NS_PER_DAY * tokens, span * margin)
        busy = Fraction(sum(tier.busy_us for tier in tiers) * 1000, sum(tier.up_ns for tier in tiers))
        return BreakEven(
            tokens_per_day=-(-needed.numerator // needed.denominator),
            measured_tokens_per_day=measured,
            capacity_nano_per_day=per_day,
            margin_nano_per_million=margin_per_million,
            occupancy_at_break_even=_digits(busy * capacity / margin),
        )


def _served(road: str, attempts: Sequence[AttemptRow]) -> int | None:
    """Which attempt the caller's answer is of. Its outcome does not tell: an answer that was to be bettered on a road
    above, and was given all the same when none served, keeps `escalated_...`."""
    return max((n for n, attempt in enumerate(attempts) if attempt.road == road), default=None)


def _share(busy_us: int, up_ns: int) -> str | None:
    return _digits(Fraction(busy_us * 1000, up_ns)) if up_ns else None


def _digits(share: Fraction) -> str:
    scaled = round_half_even(share.numerator * 10_000, share.denominator)
    return f"{scaled // 10_000}.{scaled % 10_000:04d}"


def _per_million(nano: int, tokens: int) -> int | None:
    return round_half_even(nano * _MILLION, tokens) if tokens else None
