"""A price book is read exactly, and what is wrong with one is named by line and column."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config import prices_reference
from weighbridge.config.prices import (
    SHIPPED_PRICES,
    check_prices,
    load_prices,
    parse_prices,
    prices_path,
    shipped_prices,
)
from weighbridge.config.prices_schema import GpuCost, hourly
from weighbridge.config.problems import ConfigProblems
from weighbridge.config.sections import PriceSettings
from weighbridge.observability.costs import CostTable

BOOK = """\
name: ours
currency: USD
exchange:
  - {since: 2026-01-01, krw_per_usd: 1473}
  - {since: 2026-02-01, krw_per_usd: 1460.5}
commercial:
  gpt-4o:
    - {since: 2026-01-01, currency: USD, input: 2.50, cached_input: 1.25, output: 10}
    - {since: 2026-02-01T15:00:00Z, currency: KRW, input: 3500, cached_input: 1700, output: 14000}
gpus:
  a100:
    - since: 2026-01-01
      currency: USD
      purchase: 15000
      amortisation_years: 3
      watts: 400
      pue: 1.5
      electricity_per_kwh: 0.13
    - {since: 2026-03-01, currency: USD, per_hour: 1.9}
tiers:
  local-8b:
    - {since: 2026-01-01, gpu: a100, gpus_per_worker: 1}
savings:
  compared_with: gpt-4o
  token_factor: 0.75
"""

AMOUNT = "must be a number from 0 to 1000000000000 with at most 9 digits behind the point"


def wrong(text: str) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        parse_prices(text.encode(), "p.yaml")
    return str(caught.value).split("\n")


def test_a_price_never_was_a_float() -> None:
    # 0.15 has no binary float; one that had been one would show it.
    text = BOOK.replace("output: 10}", "output: 0.15}")
    (first, _) = parse_prices(text.encode(), "p.yaml").document.commercial["gpt-4o"]
    assert first.output == Decimal("0.15")
    assert Fraction(first.output) == Fraction(3, 20)
    assert type(first.output) is Decimal


def test_gpu_hours() -> None:
    built, rented = parse_prices(BOOK.encode(), "p.yaml").document.gpus["a100"]
    assert Fraction(*hourly(built)) == Fraction(15000, 3 * 8760) + Fraction(400, 1000) * Fraction(
        3, 2
    ) * Fraction(13, 100)
    assert Fraction(*hourly(rented)) == Fraction(19, 10)


WRONG = {
    "unknown key": (
        "currency: USD\n",
        "currency: USD\nvat: 1\n",
        "p.yaml:3:1: vat: unknown key; known here: name, ",
    ),
    "unknown key inside": (
        "input: 2.50",
        "input: 2.50, vat: 1",
        "p.yaml:8:55: commercial.gpt-4o[0].vat: unknown key",
    ),
    "missing": (", output: 10", "", f"p.yaml:8:7: commercial.gpt-4o[0].output: is missing: {AMOUNT}"),
    "no date": (
        "since: 2026-01-01, currency",
        "currency",
        "p.yaml:8:7: commercial.gpt-4o[0].since: is missing: must be a",
    ),
    "negative": (
        "input: 2.50",
        "input: -2.50",
        "p.yaml:8:42: commercial.gpt-4o[0].input: must not be negative",
    ),
    "too fine": ("input: 2.50", "input: 2.5000000001", f"p.yaml:8:42: commercial.gpt-4o[0].input: {AMOUNT}"),
    "not a number": ("input: 2.50", "input: .nan", f"p.yaml:8:42: commercial.gpt-4o[0].input: {AMOUNT}"),
    "true": ("input: 2.50", "input: true", f"p.yaml:8:42: commercial.gpt-4o[0].input: {AMOUNT}"),
    "words": ("input: 2.50", "input: free", f"p.yaml:8:42: commercial.gpt-4o[0].input: {AMOUNT}"),
    "no such day": (
        "2026-02-01T15",
        "2026-02-30T15",
        "p.yaml:9:8: commercial.gpt-4o[1].since: must be a date such as",
    ),
    "no zone": ("15:00:00Z", "15:00:00", "p.yaml:9:8: commercial.gpt-4o[1].since: must be a date such as"),
    "the same date twice": (
        "2026-02-01T15:00:00Z",
        "2026-01-01",
        "p.yaml:9:8: commercial.gpt-4o[1].since: overlaps the entry before, which counts from 2026-01-01 too",
    ),
    "out of order": (
        "2026-02-01, krw",
        "2025-12-31, krw",
        "p.yaml:5:6: exchange[1].since: must be later than that of the entry before (2026-01-01)",
    ),
    "empty list": (
        "\n    - {since: 2026-01-01, gpu: a100, gpus_per_worker: 1}",
        " []",
        "p.yaml:21:3: tiers.local-8b: must hold",
    ),
    "other currency": (
        "currency: KRW, input",
        "currency: EUR, input",
        "p.yaml:9:37: commercial.gpt-4o[1].currency: must be one of USD, KRW",
    ),
    "no exchange rate": (
        "exchange:\n  - {since: 2026-01-01, krw_per_usd: 1473}\n  - {since: 2026-02-01, krw_per_usd: 1460.5}\n",
        "",
        "p.yaml:6:37: commercial.gpt-4o[1].currency: needs exchange rates: the book is kept in USD",
    ),
    "exchange rate too late": (
        "  - {since: 2026-01-01, krw_per_usd: 1473}\n  - {since: 2026-02-01,",
        "  - {since: 2026-02-02,",
        "p.yaml:8:37: commercial.gpt-4o[1].currency: needs an exchange rate from 2026-02-01T15:00:00Z on; they "
        "begin on 2026-02-02 only",
    ),
    "exchange rate of nothing": ("1473", "0", "p.yaml:4:25: exchange[0].krw_per_usd: must be above 0"),
    "unknown GPU": (
        "gpu: a100",
        "gpu: h100",
        "p.yaml:22:27: tiers.local-8b[0].gpu: must be one of the names in gpus",
    ),
    "GPU too late": (
        "- {since: 2026-01-01, gpu",
        "- {since: 2025-01-01, gpu",
        "p.yaml:22:8: tiers.local-8b[0].since: has no GPU cost: gpus.a100 begins on 2026-01-01 only",
    ),
    "unknown tier": (
        "  local-8b:",
        "  local-9b:",
        "p.yaml:21:3: tiers.local-9b: unknown name: must be one of local-8b, local-70b",
    ),
    "rent beside purchase": (
        "per_hour: 1.9",
        "per_hour: 1.9, watts: 1",
        "p.yaml:19:57: gpus.a100[1].watts: stands beside per_hour",
    ),
    "half built": ("      pue: 1.5\n", "", "p.yaml:12:7: gpus.a100[0]: needs per_hour, or all of purchase, "),
    "pue below 1": ("pue: 1.5", "pue: 0.9", "p.yaml:17:7: gpus.a100[0].pue: must not be below 1"),
    "unknown comparison": (
        "compared_with: gpt-4o",
        "compared_with: gpt-5",
        "p.yaml:24:3: savings.compared_with: must be one of the",
    ),
    "a factor that boasts": (
        "token_factor: 0.75",
        "token_factor: 1.01",
        "p.yaml:25:3: savings.token_factor: must not be above 1",
    ),
    "duplicate": (
        "currency: USD\n",
        "currency: USD\ncurrency: KRW\n",
        "p.yaml:3:1: currency: duplicate key, first given on line 2",
    ),
}


@pytest.mark.parametrize(("old", "new", "line"), WRONG.values(), ids=WRONG)
def test_refused_with_its_place(old: str, new: str, line: str) -> None:
    assert BOOK.count(old) >= 1
    found = wrong(BOOK.replace(old, new, 1))
    assert found[0].startswith(line)
    assert len(found) == 1


numbers = st.from_regex(
    re.compile(r"[-+]?[0-9]{0,20}(\.[0-9]{0,20})?([eE][-+]?[0-9]{1,22})?", re.ASCII), fullmatch=True
)


@given(
    st.one_of(numbers, st.text(max_size=30)),
    st.sampled_from(["2.50", "0.13", "1460.5", "2026-01-01", "0.75", "3"]),
)
def test_whatever_stands_in_a_place_is_read_or_refused(text: str, place: str) -> None:
    changed = BOOK.replace(f": {place}", f": {text}", 1).encode("utf-8", "surrogatepass")
    try:
        book = parse_prices(changed, "p.yaml")
    except ConfigProblems as exc:
        assert str(exc).startswith("p.yaml")
    else:
        CostTable(book)


def test_an_exponent_beyond_all_bounds() -> None:
    for text in ("1e99999999999999999999", "1e-99999999999999999999", "1e999999999"):
        assert wrong(BOOK.replace("2.50", text)) == [f"p.yaml:8:42: commercial.gpt-4o[0].input: {AMOUNT}"]


def test_every_problem_is_named_at_once() -> None:
    text = (
        BOOK.replace("input: 2.50", "input: -1")
        .replace("pue: 1.5", "pue: x")
        .replace("USD\n", "USD\nvat: 1\n", 1)
    )
    assert [line.split(": ")[1] for line in wrong(text)] == [
        "vat",
        "commercial.gpt-4o[0].input",
        "gpus.a100[0].pue",
    ]


def test_the_version_is_that_of_the_content() -> None:
    version = parse_prices(BOOK.encode(), "a").version
    same = BOOK.replace("2.50", '"2.5"').replace("currency: USD\n", "currency: USD   # ours\n", 1)
    assert parse_prices(same.encode(), "b").version == version
    assert version.startswith("ours@")
    tiny = "  tiny:\n    - {since: 2026-01-01, currency: USD, input: 1, cached_input: 1, output: 1}\n"
    before, after = (
        BOOK.replace(mark, put, 1)
        for mark, put in (("  gpt-4o:", f"{tiny}  gpt-4o:"), ("gpus:", f"{tiny}gpus:"))
    )
    assert parse_prices(before.encode(), "e").version == parse_prices(after.encode(), "f").version != version
    for old, new in (
        ("2.50", "2.51"),
        ("15:00:00Z", "15:00:01Z"),
        ("token_factor: 0.75", "token_factor: 0.76"),
    ):
        assert parse_prices(BOOK.replace(old, new).encode(), "c").version != version
    zone = BOOK.replace("2026-02-01T15:00:00Z", "2026-02-02T00:00:00+09:00")
    assert parse_prices(zone.encode(), "d").version == version


def test_the_shipped_book_is_an_example_and_says_so() -> None:
    book = shipped_prices()
    assert book.is_example
    assert "EXAMPLE" in SHIPPED_PRICES.read_text()
    assert set(book.document.tiers) == {"local-8b", "local-70b"}
    assert not parse_prices(BOOK.encode(), "p").is_example
    # Plausible: an A100 hour is a dollar or two, and no model is dearer to read than to write.
    for entries in book.document.gpus.values():
        for entry in entries:
            assert isinstance(entry, GpuCost)
            assert 0.5 < Fraction(*hourly(entry)) < 5
    for prices in book.document.commercial.values():
        for price in prices:
            assert price.cached_input < price.input < price.output


def test_the_settings_choose(tmp_path: Path) -> None:
    assert prices_path(PriceSettings()) == SHIPPED_PRICES
    file = tmp_path / "p.yaml"
    file.write_text(BOOK)
    assert prices_path(PriceSettings(file=file)) == file
    assert load_prices(file).document.name == "ours"
    assert check_prices(file) == []
    assert [str(problem) for problem in check_prices(tmp_path / "q.yaml")] == [
        f"{tmp_path}/q.yaml: no such file"
    ]


def test_everything_in_it_can_be_hashed() -> None:
    assert json.dumps(shipped_prices().document.model_dump(mode="json"))


def test_the_committed_reference_is_the_generated_one() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "prices.md"
    assert page.read_text(encoding="utf-8") == prices_reference.render(), (
        "run: python -m weighbridge.config.prices_reference docs/reference/prices.md"
    )
