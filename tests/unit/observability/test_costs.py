"""The arithmetic of one amount: exact, rounded once, half to even, at the prices of its own instant."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import ledger_rows
from tests.support.money import BEGIN, DAY, MODELS, SECOND, TIERS, books
from tests.support.recompute import cost_of, exchange, worker_hour
from weighbridge.config.prices import in_currency, parse_prices, shipped_prices
from weighbridge.config.problems import ConfigProblems
from weighbridge.observability.costs import NOT_BILLED, CostTable, Timeline, round_half_even
from weighbridge.observability.money import decimal_text, exact, shown
from weighbridge.observability.price_pricer import BookPricer
from weighbridge.observability.pricing import MOST_NANO, Pricing


@given(st.integers(-(10**30), 10**30), st.integers(1, 10**15))
def test_rounding_is_half_to_even(numerator: int, denominator: int) -> None:
    assert round_half_even(numerator, denominator) == round(Fraction(numerator, denominator))


@pytest.mark.parametrize(("halves", "rounded"), [(1, 0), (3, 2), (5, 2), (7, 4), (-1, 0), (-3, -2)])
def test_halves(halves: int, rounded: int) -> None:
    assert round_half_even(halves, 2) == rounded


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=5, unique=True), st.integers(0, 60), st.integers(0, 60)
)
def test_a_period_is_cut_at_the_changes(starts: list[int], begin: int, end: int) -> None:
    line = Timeline((start, start) for start in starts)
    pieces = list(line.cut(begin, end))
    seen = [ns for start, stop in pieces for ns in range(start, stop)]
    assert seen == list(range(begin, end))
    for start, stop in pieces:
        assert {line.at(ns) for ns in range(start, stop)} == {line.at(start)}
    assert line.at(min(starts) - 1) is None


tokens = st.integers(0, 10**7)
moments = st.integers(BEGIN - DAY, BEGIN + 6 * DAY)


@settings(max_examples=60, deadline=None)
@given(
    books(),
    st.sampled_from((*TIERS, "commercial")),
    st.sampled_from(MODELS),
    moments,
    st.sampled_from(["ok", "upstream_cut", *sorted(NOT_BILLED)]),
    st.sampled_from(["", "e"]),
    tokens,
    tokens,
    tokens,
    st.one_of(st.none(), st.integers(0, 10**10)),
)
def test_an_attempt_costs_what_the_page_says(
    prices: str,
    road: str,
    model: str,
    at: int,
    outcome: str,
    egress_id: str,
    prompt: int,
    cached: int,
    completion: int,
    worker_us: int | None,
) -> None:
    known = {
        "road": road,
        "model": model,
        "started_ns": at,
        "outcome": outcome,
        "egress_id": egress_id,
        "worker_us": worker_us,
    }
    counted = {"prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": completion}
    expected = cost_of(yaml.load(prices, Loader=yaml.BaseLoader), known | counted)
    table = CostTable(parse_prices(prices.encode(), "p"))
    assert table.attempt(**known, prompt=prompt, cached=cached, completion=completion) == expected  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None)
@given(books(), st.sampled_from(TIERS), moments, st.integers(0, 3 * DAY))
def test_time_is_paid_at_the_rate_of_its_instant(prices: str, road: str, at: int, length: int) -> None:
    book = yaml.load(prices, Loader=yaml.BaseLoader)
    table = CostTable(parse_prices(prices.encode(), "p"))
    pieces = table.periods(road, at, at + length)
    assert sum(end - start for start, end, _ in pieces) == length
    for start, end, rate in pieces:
        for ns in (start, end - 1):
            hour = worker_hour(book, road, ns)
            assert (None if rate is None else Fraction(rate.numerator, rate.denominator)) == (
                None if hour is None else hour * 10**9
            )


@settings(max_examples=30, deadline=None)
@given(books(), moments)
def test_the_same_prices_in_another_currency(prices: str, at: int) -> None:
    book = parse_prices(prices.encode(), "p")
    plain = yaml.load(prices, Loader=yaml.BaseLoader)
    dollars, won = (CostTable(in_currency(book, currency)) for currency in ("USD", "KRW"))  # type: ignore[arg-type]
    at = max(at, BEGIN)
    for road in TIERS:
        first, second = dollars.worker_rate(road, at), won.worker_rate(road, at)
        if first is not None and second is not None:
            rate = exchange({**plain, "currency": "KRW"}, "USD", at)
            assert Fraction(first.numerator, first.denominator) * rate == Fraction(
                second.numerator, second.denominator
            )


def test_another_currency_needs_rates() -> None:
    price = "{since: 2026-01-01, currency: USD, input: 1, cached_input: 1, output: 1}"
    text = f"name: x\ncurrency: USD\ncommercial: {{m: [{price}]}}\n"
    text += "gpus: {}\ntiers: {}\nsavings: {compared_with: m, token_factor: 1}\n"
    with pytest.raises(ConfigProblems, match="needs exchange rates"):
        in_currency(parse_prices(text.encode(), "p"), "KRW")


def pricer() -> BookPricer:
    return BookPricer(CostTable(shipped_prices()))


def test_the_ledger_books_by_it() -> None:
    at = BEGIN
    outward: dict[str, Any] = {"road": "commercial", "model": "gpt-4o", "egress_id": "e", "started_ns": at}
    row = ledger_rows.attempt(**outward, prompt_tokens=1000, cached_tokens=400, completion_tokens=10)
    assert pricer().attempt(row) == 600 * 2500 + 400 * 1250 + 10 * 10_000
    assert pricer().attempt(ledger_rows.attempt(started_ns=at, worker_us=0)) == 0
    priced = pricer().completion(
        ledger_rows.completion(prompt_tokens=1000, cached_tokens=0, completion_tokens=0), at
    )
    assert priced.counterfactual_nano == 1_875_000  # three quarters of the tokens
    assert (priced.currency, priced.price_version) == ("USD", shipped_prices().version)
    aborted = ledger_rows.completion(outcome="client_aborted", prompt_tokens=1000)
    assert pricer().completion(aborted, at).counterfactual_nano == 0
    assert pricer().completion(ledger_rows.completion(), BEGIN - 999 * DAY).counterfactual_nano is None


def test_nonsense_is_no_bill() -> None:
    row = ledger_rows.attempt(started_ns=BEGIN, worker_us=2**62)
    assert pricer().attempt(row) > MOST_NANO  # type: ignore[operator]
    assert Pricing(pricer()).attempt(row) is None


@pytest.mark.parametrize(
    ("nano", "currency", "text"),
    [
        (1_234_560_000_000, "USD", "$1,234.56"),
        (-500_000_000, "USD", "-$0.50"),
        (0, "USD", "$0.00"),
        (0, "KRW", "₩0"),
        (1_234_567_400_000_000, "KRW", "₩1,234,567"),
        (1_234_567, "USD", "$0.0012"),
        (1, "USD", "$0.000000001"),
        (2_500_000_000, "KRW", "₩2.5"),
        (None, "KRW", "unpriced"),
    ],
)
def test_shown(nano: int | None, currency: str, text: str) -> None:
    assert shown(nano, currency) == text


@given(st.integers(-(10**25), 10**25))
def test_exact_text_is_the_amount(nano: int) -> None:
    found = exact(nano)
    assert found is not None
    assert Fraction(found) * 10**9 == nano
    assert len(found.split(".")[1]) == 9


@given(st.fractions(), st.integers(0, 9))
def test_a_fraction_as_text(value: Fraction, digits: int) -> None:
    assert Fraction(decimal_text(value, digits)) == round(value * 10**digits) / Fraction(10**digits)


def test_second_is_a_second() -> None:
    (rate,) = (rate for _, _, rate in CostTable(shipped_prices()).periods("local-8b", BEGIN, BEGIN + 1))
    assert rate is not None
    assert rate.of_ns(3600 * SECOND) == rate.of_us(3_600_000_000) == rate.shown


def outward(**changes: Any) -> int | None:
    known: dict[str, Any] = {
        "road": "commercial",
        "model": "gpt-4o",
        "started_ns": BEGIN,
        "outcome": "ok",
        "egress_id": "e",
        "prompt": 1000,
        "cached": 0,
        "completion": 0,
        "worker_us": 0,
    }
    return CostTable(shipped_prices()).attempt(**known | changes)


def test_cached_tokens_are_a_part_of_the_prompt() -> None:
    assert outward() == 2_500_000
    assert outward(cached=400) == 2_000_000
    assert outward(cached=1000) == outward(cached=999_999) == 1_250_000


def test_usage_that_nobody_told() -> None:
    assert outward(prompt=0, outcome="upstream_cut") is None
    assert outward(prompt=0, outcome="ok", completion=7) is None
    assert outward(prompt=0, outcome="upstream_cut", egress_id="") == 0
    for outcome in NOT_BILLED:
        assert outward(prompt=0, outcome=outcome) == 0
        # What was told is paid, however it ended.
        assert outward(outcome=outcome) == 2_500_000


def test_before_the_first_price() -> None:
    first = shipped_prices().document.commercial["gpt-4o"][0].since
    assert outward(started_ns=first) == 2_500_000
    assert outward(started_ns=first - 1) is None
    assert outward(model="unheard-of") is None
