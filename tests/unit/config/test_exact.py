"""Amounts and instants are what was written, to the last digit, or refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.exact import DIGITS, LARGEST, amount, instant, instant_text, positive

written = st.from_regex(re.compile(r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,9})?", re.ASCII), fullmatch=True)


@given(written, st.booleans())
def test_an_amount_is_what_was_written(text: str, quoted: bool) -> None:
    found = amount(text if quoted else Decimal(text))
    assert Fraction(found) == Fraction(text)
    assert found == amount(f"{text}0" if "." in text else f"{text}.0")
    assert str(found) == str(amount(f"{text}0" if "." in text else f"{text}.0"))


@given(written)
def test_nobodys_decimal_context_changes_it(text: str) -> None:
    with localcontext() as context:
        context.prec = 3
        assert Fraction(amount(Decimal(text))) == Fraction(text)


@pytest.mark.parametrize("text", ["2.50", "1e3", "0e-999999999", "1E-9", ".5", "1000000000000"])
def test_ways_to_write_one(text: str) -> None:
    assert Fraction(amount(Decimal(text))) == (0 if text.startswith("0e") else Fraction(text))


@pytest.mark.parametrize(
    "value",
    [
        0.15,
        1.0,
        float("nan"),
        True,
        None,
        [],
        -1,
        Decimal("-0.1"),
        "-1",
        "1e3",
        "",
        "abc",
        "٣",
        "1_000",
        "1,000",
        Decimal("NaN"),
        Decimal("Infinity"),
        Decimal("1e-999999999"),
        Decimal("1e999999999"),
        Decimal("0.0000000001"),
        Decimal("1.0000000001"),
        LARGEST + 1,
        Decimal(f"{LARGEST}.1"),
    ],
)
def test_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must"):
        amount(value)


def test_zero_is_not_positive() -> None:
    assert amount(0) == amount("0.0") == 0
    with pytest.raises(ValueError, match="above 0"):
        positive(Decimal("0.00"))
    assert positive(Decimal(f"1e-{DIGITS}")) > 0


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2261, 12, 30)), st.integers(-840, 840))
def test_an_instant_in_any_zone(moment: datetime, minutes: int) -> None:
    moment = moment.replace(microsecond=0)
    sign = "+" if minutes >= 0 else "-"
    zone = f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    expected = int(moment.replace(tzinfo=UTC).timestamp()) - minutes * 60
    assert instant(f"{moment:%Y-%m-%dT%H:%M:%S}{zone}") == expected * 10**9
    assert instant(instant_text(expected * 10**9)) == expected * 10**9


def test_a_date_is_its_midnight_in_utc() -> None:
    assert instant("1970-01-02") == 86_400 * 10**9 == instant("1970-01-02T00:00Z")
    assert instant_text(86_400 * 10**9) == "1970-01-02"
    assert instant_text(86_401 * 10**9) == "1970-01-02T00:00:01Z"


@pytest.mark.parametrize(
    "value",
    [
        "2026-02-30",
        "2026-1-1",
        "2026-01-01T00:00:00",
        "2026-01-01 00:00:00Z",
        "1969-12-31",
        "2263-01-01",
        "9999-12-31",
        "２０２６-01-01",
        "now",
        20260101,
        None,
    ],
)
def test_no_instant(value: object) -> None:
    with pytest.raises(ValueError, match="must"):
        instant(value)
