"""Holds a provider's bill against what was recorded, by UTC day and model."""

from __future__ import annotations

import csv
import io
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from weighbridge.config.exact import LARGEST, Currency, instant
from weighbridge.config.roads import COMMERCIAL
from weighbridge.observability.costs import NANO, CostTable, round_half_even
from weighbridge.observability.savings_report import NS_PER_DAY, day_text

MAX_BYTES: Final = 64 << 20

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "day": ("day", "date", "usagedate", "usageday", "starttime", "timestamp", "날짜", "일자"),
    "model": ("model", "modelname", "modelid", "lineitem", "sku", "모델"),
    "amount": (
        "amount",
        "cost",
        "total",
        "amountusd",
        "costusd",
        "amountkrw",
        "costkrw",
        "amountvalue",
        "costinmajor",
        "금액",
        "비용",
    ),
    "currency": ("currency", "amountcurrency", "통화"),
}
_CURRENCIES: Final[dict[str, Currency]] = {"USD": "USD", "KRW": "KRW"}
_DAY = re.compile(r"(\d{4})[-/.]?(\d\d)[-/.]?(\d\d)(?:[T ].*)?")
_EPOCH = re.compile(r"([0-9]{10})(?:\.[0-9]*)?")
"""Seconds since 1970, of the years from 2001 on; a date without marks has eight digits."""
_LONGEST: Final = 100
"""Characters of an amount, and of a model's name."""
_AMOUNT = re.compile(
    r"(-?)\s*(?:US\$|\$|₩|USD|KRW)?\s*(-?)([0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?"
    # Providers that print binary floats write small ones with an exponent.
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,2})?)"
    r"\s*(?:USD|KRW|원)?"
)
_SIGN = re.compile(r"USD|\$|KRW|₩|원")
_LAST_NS: Final = 1 << 62
"""No bill is of the year 2116."""
_DATED = re.compile(r"-\d{4}-?\d\d-?\d\d$")


class BadInvoice(Exception):
    """The file is no bill that can be read; says the line and the field."""


@dataclass(frozen=True, slots=True)
class Line:
    """One day and one model."""

    day: str
    model: str
    billed_nano: int
    recorded_nano: int
    attempts: int
    prompt_tokens: int
    completion_tokens: int
    unpriced: int
    """Attempts of the day and model that have no cost, because nobody told their usage or the book has no price."""

    @property
    def difference_nano(self) -> int:
        """What was billed beyond what was recorded."""
        return self.billed_nano - self.recorded_nano


@dataclass(frozen=True, slots=True)
class Bill:
    """A provider's bill: amounts in 1e-9 of its currency, by day and model."""

    currency: Currency | None
    """None where the file does not say."""
    amounts: dict[tuple[str, str], int]


def read_bill(raw: bytes, name: str) -> Bill:
    """Read a bill as CSV: a header, then one or more lines for each day and model, whose amounts are added up.

    Args:
        name: what the problems call the file.

    Raises:
        BadInvoice: a line cannot be understood.
    """
    if len(raw) > MAX_BYTES:
        raise BadInvoice(f"{name}: is larger than {MAX_BYTES} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInvoice(f"{name}: is not UTF-8 text") from None
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    try:
        header = next(rows, [])
        places = _places(header, name)
        # Exact, and rounded once: amounts may be finer than ours, and a thousand roundings add up.
        amounts: dict[tuple[str, str], Fraction] = {}
        currencies: set[str] = set()
        if at := _currency_in_header(header, places["amount"]):
            currencies.add(at)
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            where = f"{name}:{rows.line_num}"
            cells = {field: row[at].strip() if at < len(row) else "" for field, at in places.items()}
            key = (_day(cells["day"], where), _model(cells["model"], where))
            amount, sign = _amount(cells["amount"], where)
            amounts[key] = amounts.get(key, Fraction()) + amount
            if sign is not None:
                currencies.add(sign)
            if cells.get("currency"):
                currencies.add(cells["currency"].upper())
    except csv.Error as exc:
        raise BadInvoice(f"{name}:{rows.line_num}: is not CSV: {exc}") from None
    if not amounts:
        raise BadInvoice(f"{name}: has no line below its header")
    if len(currencies) > 1:
        raise BadInvoice(f"{name}: is in more than one currency: {', '.join(sorted(currencies))}")
    found = next(iter(currencies), None)
    if found is not None and found not in _CURRENCIES:
        raise BadInvoice(f"{name}: currency: must be USD or KRW")
    nanos = {
        key: round_half_even((total * NANO).numerator, (total * NANO).denominator)
        for key, total in amounts.items()
    }
    return Bill(_CURRENCIES.get(found or ""), nanos)


def compare(conn: sqlite3.Connection, table: CostTable, bill: Bill) -> list[Line]:
    """The bill's lines and ours, in order; of all days from its first to its last, and all models of ours on them.

    A model of the bill with a date behind its name, as providers bill `gpt-4o-2024-08-06`, is the model without it
    unless we asked for that very name.

    Args:
        table: in the bill's currency.

    Raises:
        sqlite3.Error: the ledger cannot be read.
    """
    days = {day for day, _ in bill.amounts}
    ours: dict[tuple[str, str], list[int]] = {}
    for key, sums in _recorded(conn, table, days):
        held = ours.setdefault(key, [0] * len(sums))
        for n, value in enumerate(sums):
            held[n] += value
    billed: dict[tuple[str, str], int] = {}
    for (day, model), nano in bill.amounts.items():
        plain = _DATED.sub("", model)
        key = (day, plain) if (day, model) not in ours and (day, plain) in ours else (day, model)
        billed[key] = billed.get(key, 0) + nano
    return [
        Line(day, model, billed.get((day, model), 0), *ours.get((day, model), (0, 0, 0, 0, 0)))
        for day, model in sorted(billed.keys() | ours.keys())
    ]


def beyond(billed_nano: int, difference_nano: int, tolerance: Decimal, percent: Decimal) -> bool:
    """Whether a difference is more than `tolerance` and `percent` of what was billed together allow."""
    allowed = tolerance * NANO * 100 + percent * abs(billed_nano)
    return abs(difference_nano) * 100 > allowed


_ATTEMPTS: Final = """SELECT started_ns, coalesce(model, ''), coalesce(outcome, ''), coalesce(egress_id, ''),
    coalesce(prompt_tokens, 0), coalesce(cached_tokens, 0), coalesce(completion_tokens, 0)
FROM attempts WHERE road = ? AND egress_id <> '' AND started_ns >= ? AND started_ns < ?"""


def _recorded(
    conn: sqlite3.Connection, table: CostTable, days: set[str]
) -> Iterator[tuple[tuple[str, str], Sequence[int]]]:
    if not days:
        return
    first, last = _begins(min(days)), _begins(max(days)) + NS_PER_DAY
    cursor = conn.cursor()
    cursor.row_factory = None
    for started, model, outcome, egress_id, prompt, cached, completion in cursor.execute(
        _ATTEMPTS, (COMMERCIAL, first, last)
    ):
        day = day_text(started // NS_PER_DAY)
        cost = table.attempt(
            road=COMMERCIAL,
            model=model,
            started_ns=started,
            outcome=outcome,
            egress_id=egress_id,
            prompt=prompt,
            cached=cached,
            completion=completion,
            worker_us=0,
        )
        yield (day, model), (cost or 0, 1, prompt, completion, cost is None)


def _begins(day: str) -> int:
    return instant(day)


def _delimiter(text: str) -> str:
    header = text.split("\n", 1)[0]
    return max(",;\t", key=header.count)


def _places(header: Sequence[str], name: str) -> dict[str, int]:
    plain = [re.sub(r"[\W_]", "", cell.lower()) for cell in header]
    places: dict[str, int] = {}
    for field, names in _NAMES.items():
        # In the order of the names: a column called `amount` goes before one called `total`.
        found = [plain.index(known) for known in names if known in plain]
        if found:
            places[field] = found[0]
        elif field != "currency":
            raise BadInvoice(f"{name}:1: has no column for the {field}; known names: {', '.join(names)}")
    return places


def _currency_in_header(header: Sequence[str], at: int) -> str | None:
    found = re.search("usd|krw", header[at].lower())
    return None if found is None else found[0].upper()


def _day(text: str, where: str) -> str:
    if epoch := _EPOCH.fullmatch(text):
        day = day_text(int(epoch[1]) * 1_000_000_000 // NS_PER_DAY)
    else:
        found = _DAY.fullmatch(text)
        day = "-".join(found.groups()) if found else ""
    try:
        begins = _begins(day)
    except ValueError:
        begins = _LAST_NS
    if begins >= _LAST_NS:
        raise BadInvoice(f"{where}: day: must be a date such as 2026-01-31, or seconds since 1970")
    return day


def _model(text: str, where: str) -> str:
    # Some bills say `gpt-4o-2024-08-06, input` in one cell.
    model = text.split(",", 1)[0].strip()
    # It is printed again: nothing that moves a terminal's cursor, forges a line or is a spreadsheet's formula.
    if not (model.isprintable() and model[:1].isalnum() and len(model) <= _LONGEST):
        raise BadInvoice(f"{where}: model: must be a name of 1 to {_LONGEST} printable characters")
    return model


def _amount(text: str, where: str) -> tuple[Fraction, Currency | None]:
    """The amount, and the currency where a sign names it."""
    found = _AMOUNT.fullmatch(text) if len(text) <= _LONGEST else None
    value = None if found is None else Fraction(found[3].replace(",", ""))
    if found is None or value is None or value > LARGEST or (found[1] and found[2]):
        raise BadInvoice(
            f"{where}: amount: must be a number of {LARGEST} at most, such as 1234.56 or 1.2e-05"
        )
    sign = _SIGN.search(text)
    currency: Currency | None = None if sign is None else "USD" if sign[0] in ("$", "USD") else "KRW"
    return -value if found[1] or found[2] else value, currency
