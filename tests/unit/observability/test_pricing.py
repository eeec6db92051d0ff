"""What records cost: asked of the price book in the ledger's thread, and never at the price of a record."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support import ledger_rows as rows
from weighbridge.config.clock import SystemClock
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.metrics import Metrics
from weighbridge.observability.pricing import MOST_NANO, Priced
from weighbridge.observability.records import Attempt, Completion


class Book:
    """A thousand billionths a token; what it was asked, and in which thread."""

    def __init__(self) -> None:
        self.admitted: list[int] = []
        self.threads: set[str] = set()

    def attempt(self, row: Attempt) -> int | None:
        self.threads.add(threading.current_thread().name)
        return 1_000 * row.completion_tokens

    def completion(self, row: Completion, admitted_ns: int) -> Priced:
        self.admitted.append(admitted_ns)
        return Priced("USD", "p1", 9_000 * row.completion_tokens)


class Broken(Book):
    """One that fails, or answers nonsense."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self._answer = answer

    def attempt(self, row: Attempt) -> int | None:
        return self._give()

    def completion(self, row: Completion, admitted_ns: int) -> Priced:
        amount = self._give()
        return amount if isinstance(amount, str) else Priced("USD", "p1", amount)  # type: ignore[return-value]

    def _give(self) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def opened(spool: Path, book: Book, metrics: Metrics | None = None) -> Ledger:
    return Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY, pricer=book, metrics=metrics)


def money(spool: Path, name: str = "r1") -> tuple[Any, ...]:
    row = rows.requests(spool)[name]
    return row["currency"], row["price_version"], row["cost_nano"], row["counterfactual_nano"]


async def test_a_record_costs_what_all_its_attempts_cost(spool: Path) -> None:
    book = Book()
    ledger = opened(spool, book)
    await ledger.intent(rows.intent())
    ledger.attempt(rows.attempt(outcome="upstream_cut", completion_tokens=3))
    ledger.attempt(rows.attempt(n=2, completion_tokens=20))
    await ledger.completion(rows.completion(total_ms=900.125))
    await ledger.close()
    assert money(spool) == ("USD", "p1", 23_000, 180_000)
    assert [row["cost_nano"] for row in rows.attempts(spool)] == [3_000, 20_000]
    assert book.threads == {"weighbridge-ledger"}
    assert book.admitted == [1_767_225_601_000_000_000 - 900_125_000]


async def test_an_attempt_that_comes_late_is_added(spool: Path) -> None:
    ledger = opened(spool, Book())
    await ledger.completion(rows.completion())
    assert money(spool) == ("USD", "p1", 0, 180_000)
    ledger.attempt(rows.attempt(completion_tokens=4, worker_us=60))
    ledger.attempt(rows.attempt(completion_tokens=9))  # the same one again
    await ledger.completion(rows.completion("other"))
    await ledger.close()
    assert money(spool) == ("USD", "p1", 4_000, 180_000)
    assert rows.requests(spool)["r1"]["worker_us"] == 60


async def test_a_lost_request_keeps_its_attempts_cost_and_saves_nothing(spool: Path) -> None:
    ledger = opened(spool, Book())
    await ledger.intent(rows.intent())
    ledger.attempt(rows.attempt(completion_tokens=5, worker_us=70))
    await ledger.intent(rows.intent("untouched"))
    ledger.progress(rows.progress("untouched", completion=64))
    await ledger.close()
    book = Book()
    await opened(spool, book).close()
    assert money(spool) == ("USD", "p1", 5_000, 0)
    assert rows.requests(spool)["r1"]["worker_us"] == 70
    assert money(spool, "untouched") == ("USD", "p1", 0, 0)
    assert book.admitted == [1_767_225_600_123_456_789] * 2


async def test_without_prices_a_record_has_none(ledger: Ledger, spool: Path) -> None:
    ledger.attempt(rows.attempt())
    await ledger.completion(rows.completion())
    assert money(spool) == (None, None, None, None)


@pytest.mark.parametrize(
    "answer",
    [KeyError("model"), -1, MOST_NANO + 1, 0.5, True, "nonsense"],
    ids=["raises", "negative", "too-much", "float", "bool", "text"],
)
async def test_a_broken_price_book_costs_no_record(
    spool: Path, metrics: Metrics, caplog: pytest.LogCaptureFixture, answer: object
) -> None:
    caplog.set_level(logging.INFO)
    ledger = opened(spool, Broken(answer), metrics)
    for name in ("r1", "r2"):
        await ledger.intent(rows.intent(name))
        ledger.attempt(rows.attempt(name))
        await ledger.completion(rows.completion(name))
    await ledger.intent(rows.intent("left"))
    await ledger.close()
    assert money(spool) == money(spool, "r2") == (None, None, None, None)
    assert len(rows.attempts(spool)) == 2
    assert metrics.records_unpriced_total.value == 4
    assert metrics.records_dropped_total.value == 0
    told = [record for record in caplog.records if "price book" in record.message]
    assert len(told) <= 2 and "model" not in caplog.text
    await opened(spool, Broken(answer)).close()
    assert rows.requests(spool)["left"]["outcome"] == "lost"
    assert money(spool, "left") == (None, None, None, None)


async def test_the_largest_amounts_fit_in_one_commit(spool: Path, metrics: Metrics) -> None:
    ledger = opened(spool, Broken(MOST_NANO), metrics)
    with rows.held_by_another(spool):
        for n in range(1_000):
            ledger.attempt(rows.attempt("r1", n))
        written = ledger.completion(rows.completion())
    await written
    await ledger.close()
    assert money(spool) == ("USD", "p1", 1_000 * MOST_NANO, MOST_NANO)
