"""The arithmetic of money: whole numbers and exact fractions, rounded once, half to even, to 1e-9 of the currency.

docs/costs.md says the same in words and formulas. "Nano" is 1e-9 of the book's currency.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Final, Generic, TypeVar

from weighbridge.config.exact import Currency
from weighbridge.config.prices import PriceBook
from weighbridge.config.prices_schema import Dated, PriceBookDocument, TierGpus, hourly
from weighbridge.config.roads import COMMERCIAL

NANO: Final = 1_000_000_000
NS_PER_HOUR: Final = 3_600 * NANO

NOT_BILLED: Final = frozenset(
    {"upstream_connect", "upstream_status", "upstream_resting", "refused", "window", "masking_refused"}
)
"""Ends of a commercial attempt after which a provider has nothing to bill: no answer was begun. After any other end an
attempt that was sent and has no prompt tokens is one whose usage nobody told us."""

T = TypeVar("T")
U = TypeVar("U")
D = TypeVar("D", bound=Dated)


def round_half_even(numerator: int, denominator: int) -> int:
    """The whole number nearest to a fraction; of two equally near ones the even one.

    Args:
        denominator: above 0.
    """
    quotient, rest = divmod(numerator, denominator)
    twice = rest * 2
    return quotient + (twice > denominator or (twice == denominator and quotient % 2 == 1))


@dataclass(frozen=True, slots=True)
class TokenRate:
    """Nano per token, as numerators over one denominator."""

    prompt: int
    cached: int
    completion: int
    per: int

    def cost(self, prompt: int, cached: int, completion: int) -> int:
        """Nano. Cached tokens are a part of the prompt's, and never more than those."""
        cached = min(cached, prompt)
        return round_half_even(
            (prompt - cached) * self.prompt + cached * self.cached + completion * self.completion, self.per
        )

    def times(self, factor: Fraction) -> TokenRate:
        """The rate where every token counts `factor` times."""
        return TokenRate(
            self.prompt * factor.numerator,
            self.cached * factor.numerator,
            self.completion * factor.numerator,
            self.per * factor.denominator,
        )


@dataclass(frozen=True, slots=True)
class WorkerRate:
    """What an hour of one worker costs, in nano, exactly."""

    numerator: int
    denominator: int

    def of_us(self, us: int) -> int:
        """Nano for so many microseconds."""
        return self.of_ns(us * 1000)

    def of_ns(self, ns: int) -> int:
        """Nano for so many nanoseconds."""
        return round_half_even(ns * self.numerator, NS_PER_HOUR * self.denominator)

    @property
    def shown(self) -> int:
        """Nano for an hour, rounded."""
        return round_half_even(self.numerator, self.denominator)


class Timeline(Generic[T]):
    """Values that count from an instant on, until the next."""

    def __init__(self, entries: Iterable[tuple[int, T]]) -> None:
        found = sorted(entries, key=lambda entry: entry[0])
        self.starts = [since for since, _ in found]
        self._values = [value for _, value in found]

    def at(self, ns: int) -> T | None:
        """What counts at an instant; None before the first."""
        n = bisect_right(self.starts, ns)
        return self._values[n - 1] if n else None

    def map(self, change: Callable[[T], U]) -> Timeline[U]:
        """The same instants with other values."""
        return Timeline(zip(self.starts, map(change, self._values), strict=True))

    def cut(self, from_ns: int, to_ns: int) -> Iterator[tuple[int, int]]:
        """A period in pieces, none of which holds a change."""
        start = from_ns
        for change in self.starts[bisect_right(self.starts, from_ns) :]:
            if change >= to_ns:
                break
            yield start, change
            start = change
        if start < to_ns:
            yield start, to_ns


class CostTable:
    """A price book, ready to reckon with."""

    def __init__(self, book: PriceBook) -> None:
        document = book.document
        self.version = book.version
        self.is_example = book.is_example
        self.currency: Currency = document.currency
        self.compared_with = document.savings.compared_with
        self.token_factor_text = f"{document.savings.token_factor:f}"
        self._exchange = _Exchange(document)
        self._models = {
            model: self._timeline(
                [(entry.since, entry) for entry in entries],
                lambda ns, entry: self._exchange.token_rate(
                    entry.currency, (entry.input, entry.cached_input, entry.output), ns
                ),
            )
            for model, entries in document.commercial.items()
        }
        gpus = self._gpu_rates(document)
        self._workers: dict[str, Timeline[WorkerRate]] = {
            road: self._worker_rates(entries, gpus) for road, entries in document.tiers.items()
        }
        self._compared = self._models[self.compared_with]
        factor = Fraction(document.savings.token_factor)
        self._compared_local = self._compared.map(lambda rate: rate.times(factor))

    def token_rate(self, model: str, at_ns: int) -> TokenRate | None:
        """What a token of a commercial model costs; None where the book does not know."""
        held = self._models.get(model)
        return None if held is None else held.at(at_ns)

    def worker_rate(self, road: str, at_ns: int) -> WorkerRate | None:
        """What an hour of one worker of a tier costs; None where the book does not know."""
        held = self._workers.get(road)
        return None if held is None else held.at(at_ns)

    def periods(self, road: str, from_ns: int, to_ns: int) -> list[tuple[int, int, WorkerRate | None]]:
        """A period of a tier in pieces of one rate each."""
        held = self._workers.get(road)
        if held is None:
            return [(from_ns, to_ns, None)] if from_ns < to_ns else []
        return [(start, end, held.at(start)) for start, end in held.cut(from_ns, to_ns)]

    def attempt(
        self,
        *,
        road: str,
        model: str | None,
        started_ns: int,
        outcome: str,
        egress_id: str,
        prompt: int,
        cached: int,
        completion: int,
        worker_us: int | None,
    ) -> int | None:
        """What one attempt cost, in nano, at the prices of when it began; None where that cannot be told.

        Args:
            worker_us: a local attempt's share of its worker; None where it was not measured.
        """
        if road == COMMERCIAL:
            if not egress_id:
                return 0
            if prompt == 0:
                # A prompt has tokens, so nobody told us how many.
                return 0 if outcome in NOT_BILLED else None
            rate = self.token_rate(model or "", started_ns)
            return None if rate is None else rate.cost(prompt, cached, completion)
        if worker_us == 0:
            return 0
        hour = self.worker_rate(road, started_ns)
        return None if hour is None or worker_us is None else hour.of_us(worker_us)

    def counterfactual(
        self, *, outcome: str | None, road: str, at_ns: int, prompt: int, cached: int, completion: int
    ) -> int | None:
        """What the same answer would have cost at the named model, in nano; None where the book has no price for it.

        Nothing for a request that was not answered whole: what was not delivered saved nothing.

        Args:
            road: the road that answered. A local model's tokens are taken `token_factor` times.
            at_ns: the admission.
        """
        if outcome != "ok":
            return 0
        rate = (self._compared if road == COMMERCIAL else self._compared_local).at(at_ns)
        return None if rate is None else rate.cost(prompt, cached, completion)

    def _timeline(self, entries: Sequence[tuple[int, D]], value: Callable[[int, D], T]) -> Timeline[T]:
        """The value of each entry at its own beginning and at every change of the exchange rate after the first."""
        held = Timeline(entries)
        moments = sorted({*held.starts, *(ns for ns in self._exchange.changes if ns > held.starts[0])})
        made = []
        for ns in moments:
            entry = held.at(ns)
            assert entry is not None
            made.append((ns, value(ns, entry)))
        return Timeline(made)

    def _gpu_rates(self, document: PriceBookDocument) -> dict[str, Timeline[Fraction]]:
        """Nano per hour of one GPU of each kind."""
        return {
            name: self._timeline(
                [(entry.since, entry) for entry in entries],
                lambda ns, entry: self._exchange.rate(entry.currency, ns) * Fraction(*hourly(entry)) * NANO,
            )
            for name, entries in document.gpus.items()
        }

    def _worker_rates(
        self, entries: Sequence[TierGpus], gpus: Mapping[str, Timeline[Fraction]]
    ) -> Timeline[WorkerRate]:
        held = Timeline((entry.since, entry) for entry in entries)
        changes = {ns for rates in gpus.values() for ns in rates.starts if ns > held.starts[0]}
        made = []
        for ns in {*held.starts, *changes}:
            entry = held.at(ns)
            assert entry is not None
            hour = gpus[entry.gpu].at(ns)
            assert hour is not None
            each = hour * Fraction(entry.gpus_per_worker)
            made.append((ns, WorkerRate(each.numerator, each.denominator)))
        return Timeline(made)


class _Exchange:
    """From a price's currency to the book's."""

    def __init__(self, document: PriceBookDocument) -> None:
        self._home = document.currency
        self._rates = Timeline([(entry.since, Fraction(entry.krw_per_usd)) for entry in document.exchange])
        self.changes = self._rates.starts

    def rate(self, currency: Currency, at_ns: int) -> Fraction:
        if currency == self._home:
            return Fraction(1)
        won = self._rates.at(at_ns)
        assert won is not None  # the book is checked for it
        return won if currency == "USD" else 1 / won

    def token_rate(self, currency: Currency, prices: Sequence[Decimal], at_ns: int) -> TokenRate:
        """Of prices per 1,000,000 tokens: prompt, cached prompt, answer."""
        each = self.rate(currency, at_ns) * Fraction(NANO, 1_000_000)
        exact = [Fraction(price) * each for price in prices]
        per = lcm(*(price.denominator for price in exact))
        prompt, cached, completion = (price.numerator * (per // price.denominator) for price in exact)
        return TokenRate(prompt, cached, completion, per)
