"""A provider's bill against the records, and the usage sums."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.money import BEGIN, DAY, ledger_of
from weighbridge.config.prices import shipped_prices
from weighbridge.observability.costs import CostTable
from weighbridge.observability.reconcile import BadInvoice, Line, beyond, compare, read_bill

TABLE = CostTable(shipped_prices())


def attempt(n: int, **changes: Any) -> dict[str, Any]:
    row = {
        "request_id": f"r{n}",
        "n": 1,
        "road": "commercial",
        "backend": "main",
        "model": "gpt-4o",
        "started_ns": BEGIN + n,
        "outcome": "ok",
        "egress_id": f"e{n}",
        "prompt_tokens": 1_000_000,
        "cached_tokens": 0,
        "completion_tokens": 0,
    }
    return row | changes


def lines(bill: str, *attempts: dict[str, Any]) -> list[Line]:
    with closing(ledger_of({"attempts": list(attempts)})) as conn:
        return compare(conn, TABLE, read_bill(bill.encode(), "bill.csv"))


def test_agreement_by_day_and_model() -> None:
    found = lines(
        "date,model,amount\n2026-01-01,gpt-4o,5.00\n2026-01-02,gpt-4o,2.5\n",
        attempt(1),
        attempt(2),
        attempt(3, started_ns=BEGIN + DAY),
        attempt(4, started_ns=BEGIN + DAY, egress_id="", prompt_tokens=0),
    )
    assert [(line.day, line.billed_nano, line.difference_nano, line.attempts) for line in found] == [
        ("2026-01-01", 5 * 10**9, 0, 2),
        ("2026-01-02", 2_500_000_000, 0, 1),
    ]


def test_what_is_missing_on_either_side_is_a_line() -> None:
    found = lines(
        "date,model,amount\n2026-01-01,gpt-4.1,1\n",
        attempt(1),
        attempt(2, model="gpt-4o-mini", prompt_tokens=0, outcome="upstream_cut"),
    )
    assert [(line.model, line.billed_nano, line.recorded_nano, line.unpriced) for line in found] == [
        ("gpt-4.1", 10**9, 0, 0),
        ("gpt-4o", 0, 2_500_000_000, 0),
        ("gpt-4o-mini", 0, 0, 1),
    ]


def test_a_day_in_between_that_the_bill_leaves_out_is_a_difference() -> None:
    found = lines(
        "date,model,amount\n2026-01-01,gpt-4o,2.5\n2026-01-03,gpt-4o,2.5\n",
        attempt(1),
        attempt(2, started_ns=BEGIN + DAY),
        attempt(3, started_ns=BEGIN + 2 * DAY),
        attempt(4, started_ns=BEGIN + 3 * DAY),
    )
    assert [(line.day, line.difference_nano) for line in found] == [
        ("2026-01-01", 0),
        ("2026-01-02", -2_500_000_000),
        ("2026-01-03", 0),
    ]


@pytest.mark.parametrize(
    ("amount", "currency"), [("$5", "USD"), ("US$5", "USD"), ("₩500", "KRW"), ("500원", "KRW"), ("5", None)]
)
def test_a_sign_says_the_currency(amount: str, currency: str | None) -> None:
    assert read_bill(f"date,model,amount\n2026-01-01,m,{amount}\n".encode(), "b").currency == currency


def test_a_dated_name_is_the_model() -> None:
    (line,) = lines("date,model,cost\n2026-01-01,gpt-4o-2024-08-06,2.50\n", attempt(1))
    assert (line.model, line.difference_nano) == ("gpt-4o", 0)
    both = lines(
        "date,model,cost\n2026-01-01,gpt-4o-2024-08-06,2.50\n2026-01-01,gpt-4o,1\n",
        attempt(1),
        attempt(2, model="gpt-4o-2024-08-06"),
    )
    assert [(line.model, line.billed_nano, line.unpriced) for line in both] == [
        ("gpt-4o", 10**9, 0),
        ("gpt-4o-2024-08-06", 2_500_000_000, 1),
    ]


@pytest.mark.parametrize(
    "bill",
    [
        "Date,Model,Amount\n2026-01-01,gpt-4o,1234.5\n",
        "\ufeffUsage Date;Model Name;Cost\n2026-01-01T23:59:59Z;gpt-4o;$1,234.50\n",
        'day\tline_item\tcost_usd\n20260101\t"gpt-4o, input"\t1,234.500000000 USD\n',
        "일자,모델,금액,통화\n2026.01.01,gpt-4o,1234.5,USD\n",
        "date,model,amount\n2026-01-01,gpt-4o,1000\n\n2026-01-01,gpt-4o,200\n2026-01-01,gpt-4o,34.5\n",
        "date,model,amount\n2026-01-01,gpt-4o,1235\n2026-01-01,gpt-4o,-$0.50\n",
    ],
)
def test_ways_to_write_a_bill(bill: str) -> None:
    assert read_bill(bill.encode(), "b").amounts == {("2026-01-01", "gpt-4o"): 1_234_500_000_000}


def test_amounts_as_a_provider_prints_them() -> None:
    read = read_bill(
        b"start_time,model,amount_value\n1767225600,m,0.13080438340307526\n1767311999,m,1.2e-05\n"
        b"1767312000.5,m,1.5E+2\n2026-01-03,m,-2.5e-1\n",
        "b",
    )
    assert read.amounts == {
        ("2026-01-01", "m"): 130_816_383,
        ("2026-01-02", "m"): 150 * 10**9,
        ("2026-01-03", "m"): -250_000_000,
    }


def test_amounts_are_rounded_once() -> None:
    lines = "2026-01-01,m,0.0000000004\n" * 1000
    assert read_bill(b"date,model,amount\n" + lines.encode(), "b").amounts == {("2026-01-01", "m"): 400}
    halves = b"date,model,amount\n2026-01-01,m,2.5e-9\n2026-01-02,m,-3.5e-9\n"
    assert list(read_bill(halves, "b").amounts.values()) == [2, -4]


def test_the_currency() -> None:
    assert read_bill(b"date,model,amount_krw\n2026-01-01,m,1\n", "b").currency == "KRW"
    assert read_bill(b"date,model,amount,currency\n2026-01-01,m,1,usd\n", "b").currency == "USD"
    assert read_bill(b"date,model,amount\n2026-01-01,m,1\n", "b").currency is None
    with pytest.raises(BadInvoice, match="more than one currency: KRW, USD"):
        read_bill(b"date,model,amount,currency\n2026-01-01,m,1,usd\n2026-01-01,m,1,krw\n", "b")
    with pytest.raises(BadInvoice, match="must be USD or KRW"):
        read_bill(b"date,model,amount,currency\n2026-01-01,m,1,EUR\n", "b")


@pytest.mark.parametrize(
    ("bill", "words"),
    [
        ("", "b:1: has no column for the day; known names: day, date, "),
        ("date,amount\n", "b:1: has no column for the model"),
        ("date,model\n", "b:1: has no column for the amount"),
        ("date,model,amount\n2026-02-30,m,1\n", "b:2: day: must be a date"),
        ("date,model,amount\nyesterday,m,1\n", "b:2: day: must be a date"),
        ("date,model,amount\n2026-01-01,,1\n", "b:2: model: must be a name"),
        ("date,model,amount\n2026-01-01,m,1\n\n2026-01-01,m,free\n", "b:4: amount: must be a number"),
        ("date,model,amount\n2026-01-01,m\n", "b:2: amount: must be a number"),
        # A comma before the decimals would be read a hundred times too large.
        ('date,model,amount\n2026-01-01,m,"1,50"\n', "b:2: amount: must be a number"),
        ("date;model;amount\n2026-01-01;m;1.234,50\n", "b:2: amount: must be a number"),
        *(
            (f"date,model,amount\n2026-01-01,m,{wrong}\n", "b:2: amount: must be a number")
            for wrong in (
                "NaN",
                "inf",
                "-Infinity",
                "1e",
                "e5",
                "1e13",
                "1e999",
                "--1",
                "0x10",
                f"0.{'1' * 200}",
            )
        ),
        ('date,model,amount\n2026-01-01,m,"1,234e3"\n', "b:2: amount: must be a number"),
        ("date,model,amount\n", "b: has no line"),
        ("date,model,amount,currency\n2026-01-01,m,₩500,USD\n", "b: is in more than one currency"),
        ("date,model,amount_usd\n2026-01-01,m,₩500\n", "b: is in more than one currency"),
        ('date,model,amount\n2026-01-01,"m,1\n', "b:2: is not CSV"),
        *(
            (f"date,model,amount\n2026-01-01,{wrong},1\n", "b:")
            for wrong in (
                "=cmd|'x'!A1",
                "@SUM(A1)",
                "\x1b[31mred",
                "\u202egpt",
                '"a\ntotal 0 AGREES"',
                "m" * 101,
            )
        ),
        ("date,model,amount\n2262-04-11,m,1\n", "b:2: day: must be a date"),
        *(
            (f"date,model,amount\n{wrong},m,1\n", "b:2: day: must be a date")
            for wrong in ("-1767225600", "176722560", "9999999999", "1e9", "NaN")
        ),
    ],
)
def test_a_bill_that_cannot_be_read(bill: str, words: str) -> None:
    with pytest.raises(BadInvoice) as caught:
        read_bill(bill.encode(), "b")
    assert str(caught.value).startswith(words)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_bill_or_refused(raw: bytes) -> None:
    try:
        read_bill(b"date,model,amount\n" + raw, "b")
    except BadInvoice as exc:
        assert str(exc).startswith("b")


def test_tolerances() -> None:
    cent = Decimal("0.01")
    assert not beyond(10**9, 10_000_000, cent, Decimal(0))
    assert beyond(10**9, 10_000_001, cent, Decimal(0))
    assert beyond(10**9, -10_000_001, cent, Decimal(0))
    assert not beyond(-(10**9), 20_000_000, cent, Decimal(1))
    assert beyond(10**9, 20_000_001, cent, Decimal(1))
