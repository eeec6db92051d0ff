"""From a price file to a price book, with every problem named by file, line, column and field."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from weighbridge.config.exact import Currency
from weighbridge.config.prices_schema import PriceBookDocument
from weighbridge.config.problems import ConfigProblems, Problem, dotted, explain
from weighbridge.config.sections import PriceSettings
from weighbridge.config.yamlsource import read_bytes, scan_yaml

SHIPPED_PRICES: Final = Path(__file__).with_name("prices.yaml")
"""The example that is in force where the settings name no other."""


@dataclass(frozen=True, slots=True)
class PriceBook:
    """A checked price book."""

    version: str
    """Its name and a hash of its content, so that a record tells which prices it was reckoned by."""
    document: PriceBookDocument

    @property
    def is_example(self) -> bool:
        """Whether it is the shipped one, whose figures are nobody's own."""
        return self.version == shipped_prices().version


def parse_prices(raw: bytes, name: str) -> PriceBook:
    """Parse and check a price file's content; `name` is what the problems call it.

    Raises:
        ConfigProblems: every problem found, one line each, in the order of the file.
    """
    source = scan_yaml(raw, name, real=_exact)
    problems = list(source.problems)
    try:
        document = PriceBookDocument.model_validate(source.data)
    except ValidationError as exc:
        problems += [
            source.problem(at, why)
            for at, why in explain(PriceBookDocument, exc.errors())
            if not any(at[: len(path)] == path for path in source.unread)
        ]
    if problems:
        raise ConfigProblems(sorted(problems, key=lambda p: (p.line or 0, p.column or 0, p.field)))
    return PriceBook(f"{document.name}@{_digest(document)}", document)


def _exact(text: str) -> Decimal | str:
    """The number as it is written; as text, which no field takes, where its exponent is beyond all bounds."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


def _digest(document: PriceBookDocument) -> str:
    """Of the content, so that comments, order of names and the way a number is written change no version."""
    content = json.dumps(document.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def load_prices(path: Path) -> PriceBook:
    """The price book in a file.

    Raises:
        ConfigProblems: every problem found, one line each.
    """
    return parse_prices(read_bytes(path), str(path))


def in_currency(book: PriceBook, currency: Currency) -> PriceBook:
    """The same prices, reckoned in another currency.

    Raises:
        ConfigProblems: the book has no exchange rate for some price.
    """
    document = book.document.model_copy(update={"currency": currency})
    if found := list(document.not_covered()):
        raise ConfigProblems([Problem(book.version, None, dotted(at), why) for at, why in found])
    return PriceBook(book.version, document)


def check_prices(path: Path) -> list[Problem]:
    """What is wrong with a price file; empty when it can be used."""
    try:
        load_prices(path)
    except ConfigProblems as exc:
        return list(exc.problems)
    return []


def shipped_prices() -> PriceBook:
    """The example that comes with the product."""
    return load_prices(SHIPPED_PRICES)


def prices_path(settings: PriceSettings) -> Path:
    """The file the settings choose."""
    return SHIPPED_PRICES if settings.file is None else settings.file
