"""Writes the price book reference from the schema: `python -m weighbridge.config.prices_reference FILE`."""

from __future__ import annotations

import sys

from pydantic import BaseModel

from weighbridge.config.prices import SHIPPED_PRICES
from weighbridge.config.prices_schema import (
    ExchangeRate,
    GpuCost,
    PriceBookDocument,
    SavingsAssumptions,
    TierGpus,
    TokenPrices,
)
from weighbridge.config.reference import default_of, main, path_of, table, value_of
from weighbridge.config.shape import leaves

_INTRO = """\
# Price book reference

Generated from the schema by `python -m weighbridge.config.prices_reference docs/reference/prices.md`.

A price book is one YAML file, named by `prices.file` in the settings. [What things cost](../costs.md) says what is
reckoned with it. `weighbridge prices check FILE` checks one, `weighbridge check` the one in force; everything that is
wrong is named by file, line, column and field.

Each list stands in the order of its dates; an entry counts from its `since` until the `since` of the next. A date is
its midnight in UTC. Amounts are read as they are written, to the last digit; they may stand in quotes.
"""

_PARTS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("exchange[]", ExchangeRate),
    ("commercial.*[]", TokenPrices),
    ("gpus.*[]", GpuCost),
    ("tiers.*[]", TierGpus),
    ("savings", SavingsAssumptions),
)
_HEAD = ("Field", "Value", "Default", "Meaning")


def render() -> str:
    """The page as Markdown."""
    rows = [_row(name, PriceBookDocument) for name in PriceBookDocument.model_fields if name != "savings"]
    parts = [_INTRO, "## The book\n", table(_HEAD, [row for found in rows for row in found])]
    for path, model in _PARTS:
        words = (model.__doc__ or "").split("\n", 1)[0]
        fields = [row for name in model.model_fields for row in _row(name, model)]
        parts += [f"## {path}\n\n{words}\n", table(_HEAD, fields)]
    text = SHIPPED_PRICES.read_text(encoding="utf-8")
    parts.append(f"## The shipped example\n\n```yaml\n{text.strip()}\n```\n")
    return "\n".join(parts)


def _row(name: str, model: type[BaseModel]) -> list[tuple[str, ...]]:
    return [
        (
            f"`{path_of(leaf.path)}`",
            value_of(leaf.slot),
            default_of(leaf.slot),
            (leaf.slot.field.description or "") if leaf.slot.field is not None else "",
        )
        for leaf in leaves(model)
        if leaf.path == (name,)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], render()))
