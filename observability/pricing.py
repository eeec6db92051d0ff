"""What the ledger asks of a price book, and how a faulty one is kept from costing a record."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from weighbridge.observability.records import Attempt, Completion

if TYPE_CHECKING:
    from weighbridge.observability.metrics import Metrics

log = logging.getLogger("weighbridge.ledger")

MOST_NANO: Final = 1 << 52
"""No single amount may be larger (4.5 million units of a currency): a commit's sum then fits SQLite's 64 bits, and a
count of tokens that is nonsense does not become a bill."""


class Priced(msgspec.Struct, frozen=True):
    """What a request's price stands on, beside the cost of its attempts. All None where no prices apply."""

    currency: str | None = None
    price_version: str | None = None
    """The version of the price book, of the time the request was admitted."""
    counterfactual_nano: int | None = None
    """What the answer would have cost at the commercial model it is compared with, in 1e-9 of the currency."""


UNPRICED: Final = Priced()


class Pricer(Protocol):
    """A price book. Called in the ledger's thread, once or more for a row, and gives the same each time."""

    def attempt(self, row: Attempt) -> int | None:
        """The cost of one attempt in 1e-9 of the currency, at the price in force at `row.started_ns`; None where none
        applies."""
        ...

    def completion(self, row: Completion, admitted_ns: int) -> Priced:
        """The rest of a request's price, by the prices in force at `admitted_ns`."""
        ...


def admitted_ns(row: Completion) -> int:
    """When the request of `row` was admitted, from the row alone: its end less its duration."""
    return row.ended_ns - round(row.total_ms * 1e6)


class Pricing:
    """A price book that cannot fail: a row it has a fault with is stored without a price, and counted.

    Args:
        pricer: None prices nothing.
        metrics: counts such rows.
    """

    def __init__(self, pricer: Pricer | None, metrics: Metrics | None = None) -> None:
        self._pricer = pricer
        self._metrics = metrics
        self._told: set[str] = set()

    def attempt(self, row: Attempt) -> int | None:
        """As the price book's."""
        if self._pricer is None:
            return None
        try:
            return _amount(self._pricer.attempt(row))
        except Exception as exc:
            self._fault(exc)
            return None

    def completion(self, row: Completion, admitted: int) -> Priced:
        """As the price book's."""
        if self._pricer is None:
            return UNPRICED
        try:
            priced = self._pricer.completion(row, admitted)
            _amount(priced.counterfactual_nano)
            return priced
        except Exception as exc:
            self._fault(exc)
            return UNPRICED

    def _fault(self, exc: Exception) -> None:
        if self._metrics is not None:
            self._metrics.records_unpriced_total.inc()
        kind = type(exc).__name__
        if kind not in self._told:
            # Once for each kind: a book that is wrong is wrong for every row.
            self._told.add(kind)
            log.error("the price book failed with %s; such records have no price", kind)


def _amount(nano: int | None) -> int | None:
    """Raises: ValueError where it is no amount of money."""
    if nano is not None and not (type(nano) is int and 0 <= nano <= MOST_NANO):
        raise ValueError("not an amount of money")
    return nano
