"""Amounts as text: exact for machines, readable for people."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Final

import msgspec

from weighbridge.observability.costs import NANO, round_half_even

_SIGNS: Final = {"USD": "$", "KRW": "₩"}
_NANO: Final = re.compile(r"^nano_(?=per_)|_nano(?=$|_per_)")
_SHOWN: Final = {"USD": 2, "KRW": 0}


def exact(nano: int | None) -> str | None:
    """All nine digits: `-0.001234567`."""
    if nano is None:
        return None
    whole, rest = divmod(abs(nano), NANO)
    return f"{'-' if nano < 0 else ''}{whole}.{rest:09d}"


def shown(nano: int | None, currency: str) -> str:
    """For a table: `$1,234.56`, `₩1,234`, `-$0.50`; an amount that would show as nothing gets two digits that do."""
    if nano is None:
        return "unpriced"
    digits = _SHOWN.get(currency, 2)
    while digits < 9 and nano and abs(nano) * 10**digits < 10 * NANO:
        digits += 1
    scaled = round_half_even(abs(nano) * 10**digits, NANO)
    whole, rest = divmod(scaled, 10**digits)
    behind = f".{rest:0{digits}d}" if digits else ""
    return f"{'-' if nano < 0 and scaled else ''}{_SIGNS.get(currency, currency + ' ')}{whole:,}{behind}"


def decimal_text(value: Fraction, digits: int) -> str:
    """A fraction with so many digits, rounded half to even."""
    scaled = round_half_even(abs(value.numerator) * 10**digits, value.denominator)
    whole, rest = divmod(scaled, 10**digits)
    sign = "-" if value < 0 and scaled else ""
    return f"{sign}{whole}.{rest:0{digits}d}" if digits else f"{sign}{whole}"


def told(report: msgspec.Struct) -> dict[str, Any]:
    """A report as plain data for JSON: amounts as decimal text in the currency, under their names without `nano`."""
    plain: dict[str, Any] = _told(msgspec.to_builtins(report))
    return plain


def _told(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_told(held) for held in value]
    if not isinstance(value, dict):
        return value
    made: dict[str, Any] = {}
    for name, held in value.items():
        plain = _NANO.sub("", name)
        made[plain] = _told(held) if plain == name or isinstance(held, str) else exact(held)
    return made
