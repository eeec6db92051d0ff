"""Amounts and instants out of a price book: exact, from the text in the file. No binary float comes near them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, PlainSerializer

Currency = Literal["USD", "KRW"]

DIGITS: Final = 9
"""The most digits behind the point that an amount may have."""

LARGEST: Final = 10**12
"""The largest amount."""

_TEXT = re.compile(r"[0-9]{1,13}(?:\.[0-9]{1,9}0*)?")
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d(?::\d\d)?)(Z|[+-]\d\d:\d\d))?", re.ASCII)
_NS: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

AMOUNT_LEGAL: Final = f"a number from 0 to {LARGEST} with at most {DIGITS} digits behind the point"
POSITIVE_LEGAL: Final = f"a number above 0 and up to {LARGEST} with at most {DIGITS} digits behind the point"
INSTANT_LEGAL: Final = "a date such as 2026-01-31, or an instant such as 2026-01-31T15:00:00Z"


def amount(value: object) -> Decimal:
    """The number that was written, without trailing zeros.

    Args:
        value: a whole number, a Decimal made of the file's text, or text.

    Raises:
        ValueError: anything else, a float above all; negative, too large or too fine.
    """
    if isinstance(value, str) and _TEXT.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ValueError(f"must be {AMOUNT_LEGAL}")
    number = Decimal(value)
    if not number.is_finite() or number < 0:
        raise ValueError("must not be negative" if number.is_finite() else f"must be {AMOUNT_LEGAL}")
    if number == 0:
        return Decimal(0)
    # Looked at before anything is computed: 1e-999999999 is a short text and a very long number.
    if number > LARGEST or not _fine_enough(number):
        raise ValueError(f"must be {AMOUNT_LEGAL}")
    return Decimal(f"{number:f}".rstrip("0").rstrip(".") if "." in f"{number:f}" else f"{number:f}")


def _fine_enough(number: Decimal) -> bool:
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return len(digits) - 1 - number.adjusted() <= DIGITS


def positive(value: object) -> Decimal:
    """The same, and not 0."""
    found = amount(value)
    if found == 0:
        raise ValueError("must be above 0")
    return found


def instant(value: object) -> int:
    """Nanoseconds since 1970 of a date (its midnight in UTC) or of an instant that names its zone.

    Raises:
        ValueError: neither.
    """
    found = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"must be {INSTANT_LEGAL}")
    day, time, zone = found.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{time or '00:00'}{(zone or 'Z').replace('Z', '+00:00')}")
        past = moment - _EPOCH
    except (ValueError, OverflowError):
        raise ValueError(f"must be {INSTANT_LEGAL}") from None
    ns = (past.days * 86_400 + past.seconds) * _NS
    if not 0 <= ns < 2**63:  # what the ledger's columns hold
        raise ValueError("must not be before 1970 or after 2261")
    return ns


def instant_text(ns: int) -> str:
    """`2026-01-31`, or with the time of day in UTC where it is not midnight; whole seconds."""
    moment = datetime.fromtimestamp(ns // _NS, UTC)
    return f"{moment:%Y-%m-%d}" if ns % (86_400 * _NS) == 0 else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _as(check: Callable[[object], Any]) -> BeforeValidator:
    return BeforeValidator(check)


_plain = PlainSerializer(lambda number: f"{number:f}", return_type=str)

Amount = Annotated[Decimal, _as(amount), _plain]
"""An exact number, not negative."""
Positive = Annotated[Decimal, _as(positive), _plain]
"""An exact number above 0."""
Instant = Annotated[int, _as(instant)]
"""Nanoseconds since 1970, UTC."""
