"""Prices rows by the price book in force, as they are written."""

from __future__ import annotations

from weighbridge.observability.costs import CostTable
from weighbridge.observability.pricing import Priced
from weighbridge.observability.records import Attempt, Completion


class BookPricer:
    """The ledger's pricer. Holds nothing that changes, so any thread may call it."""

    def __init__(self, table: CostTable) -> None:
        self._table = table

    def attempt(self, row: Attempt) -> int | None:
        """What the attempt cost, in 1e-9 of the book's currency; None where that cannot be told."""
        return self._table.attempt(
            road=row.road,
            model=row.model,
            started_ns=row.started_ns,
            outcome=row.outcome,
            egress_id=row.egress_id,
            prompt=row.prompt_tokens,
            cached=row.cached_tokens,
            completion=row.completion_tokens,
            worker_us=row.worker_us,
        )

    def completion(self, row: Completion, admitted_ns: int) -> Priced:
        """What the request is reckoned by, and what the named model would have cost."""
        table = self._table
        return Priced(
            table.currency,
            table.version,
            table.counterfactual(
                outcome=row.outcome,
                road=row.road,
                at_ns=admitted_ns,
                prompt=row.prompt_tokens,
                cached=row.cached_tokens,
                completion=row.completion_tokens,
            ),
        )
