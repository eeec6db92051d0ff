"""How `weighbridge usage` prints: a table for people, CSV and JSON to the last digit."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal

import msgspec

from weighbridge.observability.money import exact, shown, told
from weighbridge.observability.reconcile import Line, beyond
from weighbridge.observability.usage_report import UsageReport, UsageRow

Cell = str | int | None

_COLUMNS = (
    "requests",
    "answered",
    "attempts",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
)


def usage_text(report: UsageReport, form: str) -> str:
    """The usage report in one of the forms."""
    if form == "json":
        return json_text(told(report))
    head = (*report.by, *_COLUMNS)
    if form == "csv":
        return csv_text(
            [(*head, "currency", "cost", "counterfactual")]
            + [(*_numbers(report, row), row.currency, *_amounts(row)) for row in report.rows]
        )
    lines = [tuple(name.replace("_", " ") for name in (*head, "cost", "counterfactual"))]
    told_rows = [*report.rows, *(() if not report.by else report.total)]
    for row in told_rows:
        money = (shown(row.cost_nano, row.currency), shown(row.counterfactual_nano, row.currency))
        first = [str(cell) for cell in _numbers(report, row)]
        if any(row is total for total in report.total) and report.by:
            first[0] = "total"
        lines.append((*first, *(money if row.currency else ("-", "-"))))
    text = table_text(lines, left=len(report.by))
    if report.unpriced_attempts:
        text += f"\n{report.unpriced_attempts} attempts have no cost and are not in the sums: see `usage savings`.\n"
    if report.price_versions:
        text += f"\nbooked by: {', '.join(report.price_versions)}\n"
    return text


def _numbers(report: UsageReport, row: UsageRow) -> list[Cell]:
    keys: list[Cell] = [getattr(row, key) or "" for key in report.by]
    return keys + [getattr(row, name) for name in _COLUMNS]


def _amounts(row: UsageRow) -> tuple[Cell, Cell]:
    return (exact(row.cost_nano), exact(row.counterfactual_nano)) if row.currency else ("", "")


def bill_text(
    lines: Sequence[Line], currency: str, tolerance: Decimal, percent: Decimal, form: str
) -> tuple[str, bool]:
    """The comparison with a bill in one of the forms, and whether a difference is beyond what is allowed."""
    total = Line(
        "total",
        "",
        *(
            sum(getattr(line, name) for line in lines)
            for name in (
                "billed_nano",
                "recorded_nano",
                "attempts",
                "prompt_tokens",
                "completion_tokens",
                "unpriced",
            )
        ),
    )
    rows = [
        (line, beyond(line.billed_nano, line.difference_nano, tolerance, percent)) for line in (*lines, total)
    ]
    differs = any(too_much for _, too_much in rows)
    if form == "json":
        objects = [_bill_object(line, too_much) for line, too_much in rows]
        told_bill = {"currency": currency, "lines": objects[:-1], "total": objects[-1], "agrees": not differs}
        return json_text(told_bill), differs
    if form == "csv":
        return csv_text([_BILL_HEAD, *(_bill_cells(line, too_much) for line, too_much in rows)]), differs
    table = [(*(name.replace("_", " ") for name in _BILL_HEAD[:-1]), "")]
    for line, too_much in rows:
        counts = (line.attempts, line.prompt_tokens, line.completion_tokens, line.unpriced)
        money = (line.billed_nano, line.recorded_nano, line.difference_nano)
        table.append(
            (
                line.day,
                line.model,
                *map(str, counts),
                *(shown(nano, currency) for nano in money),
                "DIFFERS" if too_much else "",
            )
        )
    verdict = "does not agree" if differs else "agrees"
    return (
        table_text(table, left=2)
        + f"\nThe bill {verdict} with the records within {tolerance:f} {currency} and {percent:f} %.\n",
        differs,
    )


_BILL_HEAD = (
    "day",
    "model",
    "attempts",
    "prompt_tokens",
    "completion_tokens",
    "unpriced",
    "billed",
    "recorded",
    "difference",
    "beyond_tolerance",
)


def _bill_cells(line: Line, too_much: bool) -> list[Cell]:
    return [
        line.day,
        line.model,
        line.attempts,
        line.prompt_tokens,
        line.completion_tokens,
        line.unpriced,
        exact(line.billed_nano),
        exact(line.recorded_nano),
        exact(line.difference_nano),
        "true" if too_much else "false",
    ]


def _bill_object(line: Line, too_much: bool) -> dict[str, Cell | bool]:
    cells: dict[str, Cell | bool] = dict(zip(_BILL_HEAD, _bill_cells(line, too_much), strict=True))
    return cells | {"beyond_tolerance": too_much}


def json_text(value: object) -> str:
    """Indented, with a line end."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def csv_text(rows: Iterable[Sequence[Cell]]) -> str:
    """As RFC 4180 has it, but with plain line ends."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def table_text(rows: Sequence[Sequence[str]], left: int) -> str:
    """Columns side by side, the first `left` of them flush left and the rest flush right."""
    widths = [max(_width(row[n]) for row in rows) for n in range(len(rows[0]))]
    text = ""
    for row in rows:
        cells = [
            cell + " " * (width - _width(cell)) if n < left else " " * (width - _width(cell)) + cell
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        text += "  ".join(cells).rstrip() + "\n"
    return text


def _width(text: str) -> int:
    """In columns of a terminal: the won sign's full-width cousin and Korean letters take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
