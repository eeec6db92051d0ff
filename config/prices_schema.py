"""The price book: what tokens and GPU hours cost, from which day on. Amounts are Decimals made of the file's text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, model_validator

from weighbridge.config.exact import (
    AMOUNT_LEGAL,
    INSTANT_LEGAL,
    POSITIVE_LEGAL,
    Amount,
    Currency,
    Instant,
    Positive,
    instant_text,
)
from weighbridge.config.legal import NAME_LEGAL, NAME_PATTERN
from weighbridge.config.problems import wrong, wrong_all
from weighbridge.config.section import Section
from weighbridge.config.shape import Step

HOURS_PER_YEAR: Final = 8760
"""What a year of amortisation counts: 365 days of 24 hours."""

_MODEL_PATTERN: Final = r"^[\x21-\x7e]{1,256}$"
_MODEL_LEGAL: Final = "text of 1 to 256 printable ASCII characters without spaces"
_BUILT: Final = ("purchase", "amortisation_years", "watts", "pue", "electricity_per_kwh")

Found = tuple[tuple[Step, ...], str]

ModelName = Annotated[str, StringConstraints(pattern=_MODEL_PATTERN)]
GpuName = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
TierName = Literal["local-8b", "local-70b"]


class Dated(Section):
    """An entry that counts from a day on, until the next one of its list."""

    since: Instant = Field(
        description="From when on it counts, UTC; until the `since` of the next entry.",
        json_schema_extra={"legal": INSTANT_LEGAL},
    )


class TokenPrices(Dated):
    """What a commercial model costs, per 1,000,000 tokens."""

    currency: Currency = Field(description="Currency of the prices.")
    input: Amount = Field(
        description="Per 1,000,000 prompt tokens that were not cached.",
        json_schema_extra={"legal": AMOUNT_LEGAL},
    )
    cached_input: Amount = Field(
        description="Per 1,000,000 prompt tokens that the provider had cached.",
        json_schema_extra={"legal": AMOUNT_LEGAL},
    )
    output: Amount = Field(
        description="Per 1,000,000 tokens of the answer.", json_schema_extra={"legal": AMOUNT_LEGAL}
    )


class GpuCost(Dated):
    """What one GPU costs per hour: rented, or built from what was paid for it."""

    currency: Currency = Field(description="Currency of the amounts.")
    per_hour: Amount | None = Field(
        default=None,
        description="Rent per hour, with everything in it. Either this or the five fields below.",
        json_schema_extra={"legal": AMOUNT_LEGAL},
    )
    purchase: Amount | None = Field(
        default=None,
        description="Purchase price of one GPU with its share of the server, network and rack.",
        json_schema_extra={"legal": AMOUNT_LEGAL},
    )
    amortisation_years: Positive | None = Field(
        default=None,
        description=f"Years it is written off over, of {HOURS_PER_YEAR} hours each.",
        json_schema_extra={"legal": POSITIVE_LEGAL},
    )
    watts: Amount | None = Field(
        default=None,
        description="Watts one GPU and its share of the server draw on average while a worker is up.",
        json_schema_extra={"legal": AMOUNT_LEGAL},
    )
    pue: Positive | None = Field(
        default=None,
        description="Power usage effectiveness: what the site draws for every watt of the machines; 1 or more.",
        json_schema_extra={"legal": "a number from 1 up"},
    )
    electricity_per_kwh: Amount | None = Field(
        default=None, description="Price of a kilowatt hour.", json_schema_extra={"legal": AMOUNT_LEGAL}
    )

    @model_validator(mode="after")
    def _rented_or_built(self) -> GpuCost:
        given = [name for name in _BUILT if getattr(self, name) is not None]
        if self.per_hour is not None:
            if given:
                raise wrong(
                    given[0], "stands beside per_hour, which holds everything already: give one of them"
                )
        elif missing := [name for name in _BUILT if name not in given]:
            raise wrong((), f"needs per_hour, or all of {', '.join(_BUILT)}; missing: {', '.join(missing)}")
        if self.pue is not None and self.pue < 1:
            raise wrong("pue", "must not be below 1")
        return self


class TierGpus(Dated):
    """What a worker of a tier runs on."""

    gpu: str = Field(description="A name out of `gpus`.", pattern=NAME_PATTERN)
    gpus_per_worker: Positive = Field(
        description="GPUs of one worker; 0.5 where two workers share one.",
        json_schema_extra={"legal": POSITIVE_LEGAL},
    )


class ExchangeRate(Dated):
    """A rate between the two currencies."""

    krw_per_usd: Positive = Field(
        description="Won for one dollar.", json_schema_extra={"legal": POSITIVE_LEGAL}
    )


class SavingsAssumptions(Section):
    """What the savings report compares with, and how carefully."""

    compared_with: str = Field(
        description="The commercial model that would have answered instead; one out of `commercial`.",
        pattern=_MODEL_PATTERN,
        json_schema_extra={"legal": _MODEL_LEGAL},
    )
    token_factor: Positive = Field(
        description="Tokens that model would count for one token of a local model, for prompts and answers alike; 1 or "
        "less. Below 1 its tokenizer is taken to need fewer, which makes the saving smaller.",
        json_schema_extra={"legal": "a number above 0 and up to 1"},
    )

    @model_validator(mode="after")
    def _careful(self) -> SavingsAssumptions:
        if self.token_factor > 1:
            raise wrong(
                "token_factor", "must not be above 1: that would claim a saving that nobody has measured"
            )
        return self


class PriceBookDocument(Section):
    """A whole price book."""

    name: str = Field(
        description="Name of the book; it begins the price version in every record.",
        pattern=NAME_PATTERN,
        json_schema_extra={"legal": NAME_LEGAL},
    )
    currency: Currency = Field(description="The one currency of costs, records and reports.")
    exchange: tuple[ExchangeRate, ...] = Field(
        default=(), description="Rates by day; needed from the first price in the other currency on."
    )
    commercial: dict[ModelName, tuple[TokenPrices, ...]] = Field(
        description="Token prices by model, as the settings' `commercial` names it.",
        json_schema_extra={"keys": _MODEL_LEGAL},
    )
    gpus: dict[GpuName, tuple[GpuCost, ...]] = Field(
        description="Cost of a GPU hour by kind of GPU.", json_schema_extra={"keys": NAME_LEGAL}
    )
    tiers: dict[TierName, tuple[TierGpus, ...]] = Field(description="What the workers of each tier run on.")
    savings: SavingsAssumptions = Field(description="The comparison.")

    @model_validator(mode="after")
    def _whole(self) -> PriceBookDocument:
        if found := [*self._out_of_order(), *self.not_covered()]:
            raise wrong_all(found)
        return self

    def _lists(self) -> Iterable[tuple[tuple[Step, ...], Sequence[Dated]]]:
        yield ("exchange",), self.exchange
        for section in ("commercial", "gpus", "tiers"):
            for name, entries in getattr(self, section).items():
                yield (section, name), entries

    def _out_of_order(self) -> Iterable[Found]:
        for at, entries in self._lists():
            if not entries and at != ("exchange",):
                yield at, "must hold at least one entry"
            for n in range(1, len(entries)):
                before, since = entries[n - 1].since, entries[n].since
                if since == before:
                    yield (
                        (*at, n, "since"),
                        f"overlaps the entry before, which counts from {instant_text(since)} too",
                    )
                elif since < before:
                    yield (
                        (*at, n, "since"),
                        f"must be later than that of the entry before ({instant_text(before)})",
                    )

    def not_covered(self) -> Iterable[Found]:
        """What has no price or no exchange rate on some day on which it needs one."""
        for at, entries in self._lists():
            for n, entry in enumerate(entries):
                if isinstance(entry, TierGpus):
                    yield from self._gpu_missing((*at, n), entry)
                elif isinstance(entry, TokenPrices | GpuCost):
                    yield from self._rate_missing((*at, n, "currency"), entry)
        if self.savings.compared_with not in self.commercial:
            yield ("savings", "compared_with"), "must be one of the models in commercial"

    def _gpu_missing(self, at: tuple[Step, ...], entry: TierGpus) -> Iterable[Found]:
        known = self.gpus.get(entry.gpu)
        if known is None:
            yield (*at, "gpu"), "must be one of the names in gpus"
        elif known and known[0].since > entry.since:
            first = instant_text(known[0].since)
            yield (*at, "since"), f"has no GPU cost: gpus.{entry.gpu} begins on {first} only"

    def _rate_missing(self, at: tuple[Step, ...], entry: TokenPrices | GpuCost) -> Iterable[Found]:
        if entry.currency == self.currency:
            return
        if not self.exchange:
            yield at, f"needs exchange rates: the book is kept in {self.currency}"
        elif self.exchange[0].since > entry.since:
            first = instant_text(self.exchange[0].since)
            yield (
                at,
                f"needs an exchange rate from {instant_text(entry.since)} on; they begin on {first} only",
            )


def hourly(cost: GpuCost) -> tuple[int, int]:
    """Cost of one GPU hour in the entry's currency, as an exact fraction: numerator and denominator."""
    if cost.per_hour is not None:
        return cost.per_hour.as_integer_ratio()
    purchase, years, watts, pue, kwh = (_given(cost, name).as_integer_ratio() for name in _BUILT)
    # purchase / (years x hours) + watts / 1000 x pue x kwh
    bought = (purchase[0] * years[1], purchase[1] * years[0] * HOURS_PER_YEAR)
    drawn = (watts[0] * pue[0] * kwh[0], watts[1] * pue[1] * kwh[1] * 1000)
    return bought[0] * drawn[1] + drawn[0] * bought[1], bought[1] * drawn[1]


def _given(cost: GpuCost, name: str) -> Decimal:
    held = getattr(cost, name)
    assert isinstance(held, Decimal)
    return held
