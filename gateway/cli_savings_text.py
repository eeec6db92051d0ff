"""How `weighbridge usage savings` prints."""

from __future__ import annotations

from fractions import Fraction

from weighbridge.config.exact import instant_text
from weighbridge.config.roads import COMMERCIAL
from weighbridge.gateway.cli_usage_text import csv_text, json_text, table_text
from weighbridge.observability.money import decimal_text, exact, shown, told
from weighbridge.observability.savings_report import Gaps, SavingsReport

_NS_PER_HOUR = 3_600 * 1_000_000_000


def savings_text(report: SavingsReport, form: str) -> str:
    """The report in one of the forms."""
    if form == "json":
        return json_text(told(report))
    return _csv(report) if form == "csv" else "\n".join(part for part in _parts(report) if part)


def _csv(report: SavingsReport) -> str:
    """Lines whose amounts add up to the last one."""
    head = (
        "line",
        "tenant",
        "road",
        "requests",
        "answered",
        "tokens",
        "counterfactual",
        "counterfactual_unpriced",
        "commercial",
        "local",
        "idle",
        "in_vain",
        "unanswered",
        "saved",
        "currency",
    )
    rows = [
        (
            "requests",
            line.tenant,
            line.road,
            line.requests,
            line.answered,
            line.tokens,
            *map(exact, (line.counterfactual_nano, line.counterfactual_unpriced_nano)),
            *map(exact, (line.commercial_nano, line.local_nano, 0)),
            *map(exact, (line.in_vain_nano, line.unanswered_nano, line.saved_nano)),
            report.currency,
        )
        for line in report.lines
    ]
    nothing = exact(0)
    rows += [
        (
            "idle",
            "",
            tier.road,
            0,
            0,
            0,
            *(nothing,) * 4,
            exact(tier.idle_nano),
            *(nothing,) * 2,
            exact(-tier.idle_nano),
            report.currency,
        )
        for tier in report.tiers
    ]
    sums = report.totals
    rows.append(
        (
            "total",
            "",
            "",
            *(sum(row[n] for row in rows) for n in (3, 4, 5)),  # type: ignore[misc]
            *map(exact, (sums.counterfactual_nano, sums.counterfactual_unpriced_nano)),
            *map(exact, (sums.commercial_nano, sums.local_nano, sums.idle_nano)),
            *map(exact, (sums.in_vain_nano, sums.unanswered_nano, sums.saved_nano)),
            report.currency,
        )
    )
    return csv_text([head, *rows])


def _parts(report: SavingsReport) -> list[str]:
    return [
        _head(report),
        _lines(report),
        _sum(report),
        _tiers(report),
        _days(report),
        _even(report),
        _notes(report),
    ]


def _head(report: SavingsReport) -> str:
    start, stop = (
        "-" if ns is None else instant_text(ns - ns % 1_000_000_000) for ns in (report.from_ns, report.to_ns)
    )
    example = (
        "\nThese prices are the shipped EXAMPLE, not yours: put in your own (prices.file)."
        if report.example_prices
        else ""
    )
    return (
        f"Savings against {report.compared_with}, {start} up to {stop} (UTC), in {report.currency}\n"
        f"prices: {report.price_version}{example}\n"
        f"assumed: a local token is {report.token_factor} tokens of {report.compared_with}; cached tokens cost its\n"
        "cached price; only whole answers would have been bought there.\n"
    )


def _lines(report: SavingsReport) -> str:
    def money(nano: int) -> str:
        return shown(nano, report.currency)

    rows = [
        (
            "tenant",
            "road",
            "requests",
            "answered",
            "tokens",
            f"at {report.compared_with}",
            "commercial",
            "local work",
            "in vain",
            "unanswered",
            "saved before idle",
        )
    ]
    rows += [
        (
            line.tenant,
            line.road,
            f"{line.requests:,}",
            f"{line.answered:,}",
            f"{line.tokens:,}",
            money(line.counterfactual_nano),
            money(line.commercial_nano),
            money(line.local_nano),
            money(line.in_vain_nano),
            money(line.unanswered_nano),
            money(line.saved_nano),
        )
        for line in report.lines
    ]
    note = "(`in vain` and `unanswered` are parts of commercial and local work; idle capacity is below.)\n"
    return table_text(rows, left=2) + note


def _sum(report: SavingsReport) -> str:
    sums, currency = report.totals, report.currency
    rows = [
        (f"the same answers at {report.compared_with}", shown(sums.counterfactual_nano, currency)),
        ("commercial spend", shown(-sums.commercial_nano, currency)),
        ("local work", shown(-sums.local_nano, currency)),
        ("idle local capacity", shown(-sums.idle_nano, currency)),
        ("saved", shown(sums.saved_nano, currency)),
    ]
    text = table_text(rows, left=1) + _whose(report)
    if sums.counterfactual_unpriced_nano:
        apart = shown(sums.counterfactual_unpriced_nano, currency)
        text += (
            f"Not in it: answers worth {apart} at {report.compared_with}, part of whose cost is unknown.\n"
        )
    if sums.saved_nano < 0:
        more = shown(-sums.saved_nano, currency)
        known = " for the answers whose cost is known" if sums.counterfactual_unpriced_nano else ""
        text += f"Nothing was saved: this cost {more} more than {report.compared_with} would have{known}.\n"
    return text


def _whose(report: SavingsReport) -> str:
    """Of what was saved how much is the local tiers' doing, and how much that of a commercial model cheaper than the
    named one; the share of the whole."""
    sums, currency = report.totals, report.currency
    outward = sum(line.saved_nano for line in report.lines if line.road == COMMERCIAL)
    parts = []
    if sums.counterfactual_nano > 0:
        share = Fraction(sums.saved_nano, sums.counterfactual_nano) * 100
        parts.append(f"{decimal_text(share, 1)} % of what {report.compared_with} would have cost")
    if outward:
        local = shown(sums.saved_nano - outward, currency)
        parts.append(
            f"{local} of it by the local tiers with their idle time, {shown(outward, currency)} by the commercial road "
            "alone"
        )
    return f"That is {'; '.join(parts)}.\n" if parts else ""


def _tiers(report: SavingsReport) -> str:
    if not report.tiers:
        return ""
    head = (
        "tier",
        "worker hours",
        "rate",
        "capacity",
        "used",
        "idle",
        "beyond",
        "busy",
        "cost of 1M tokens",
        "of 1M made",
    )
    rows: list[tuple[str, ...]] = [head]
    for tier in report.tiers:
        money = [
            shown(nano, report.currency)
            for nano in (tier.capacity_nano, tier.used_nano, tier.idle_nano, tier.beyond_nano)
        ]
        per = [
            "-" if nano is None else shown(nano, report.currency)
            for nano in (tier.nano_per_million, tier.nano_per_million_generated)
        ]
        rates = [shown(rate.nano_per_hour, report.currency) for rate in tier.rates]
        rows.append(
            (tier.road, _hours(tier.up_ns), ", ".join(rates) or "-", *money, _percent(tier.occupancy), *per)
        )
    text = table_text(rows, left=1) + "capacity = worker hours x rate = used + idle - beyond\n"
    if any(tier.beyond_nano for tier in report.tiers):
        text += "`beyond` is work recorded beyond the time its worker is known to have been up.\n"
    return text


def _days(report: SavingsReport) -> str:
    if not report.days:
        return ""
    rows = [("day", "tier", "worker hours", "busy", "tokens", "capacity", "cost of 1M tokens")]
    rows += [
        (
            day.day,
            day.road,
            _hours(day.up_ns),
            _percent(day.occupancy),
            f"{day.tokens:,}",
            shown(day.capacity_nano, report.currency),
            "-" if day.nano_per_million is None else shown(day.nano_per_million, report.currency),
        )
        for day in report.days
    ]
    return table_text(rows, left=2)


def _even(report: SavingsReport) -> str:
    even = report.break_even
    measured = f"measured: {even.measured_tokens_per_day:,} tokens a day"
    if even.tokens_per_day is None:
        if even.margin_nano_per_million is not None and even.margin_nano_per_million <= 0:
            return f"Break-even: at this mix never; {measured}.\n"
        return ""
    return (
        f"Break-even: {even.tokens_per_day:,} tokens a day at this mix ({measured}); the workers would be "
        f"{_percent(even.occupancy_at_break_even)} busy.\n"
    )


def _notes(report: SavingsReport) -> str:
    gaps = _gaps(report.gaps)
    text = ""
    if report.gaps.unpriced:
        text += f"UNPRICED: {report.gaps.unpriced} attempts have no known cost; more was spent than is said here.\n"
    text += "".join(f"- {line}\n" for line in gaps)
    others = [one for one in report.booked if one.price_version != report.price_version]
    for one in others:
        text += (
            f"- {one.requests} requests were booked by {one.price_version}: {shown(one.cost_nano, one.currency)}; "
            "they are reckoned anew here.\n"
        )
    return text


def _gaps(gaps: Gaps) -> list[str]:
    told_gaps = [
        f"{count} attempts at {model or 'a model nobody recorded'}, which the price book does not know on that day"
        for model, count in sorted(gaps.unknown_models.items())
    ]
    told_gaps += [
        f"{count} attempts on {road}, which the price book does not know on that day"
        for road, count in sorted(gaps.unknown_tiers.items())
    ]
    for count, words in (
        (gaps.usage_untold, "attempts were sent, and the provider never told their usage"),
        (gaps.work_unmeasured, "local attempts are from before worker time was measured"),
        (gaps.sent_without_record, "outward requests have no record of their end: a gateway died"),
        (
            gaps.not_compared,
            "answers are from before the first price of the named model: counted as no saving",
        ),
        (gaps.without_request, "attempts belong to no request that has a row"),
        (gaps.lost, "requests were lost with a gateway that died: counted as no saving"),
        (gaps.deleted, "requests are no longer kept: the report knows their workers' time only, as idle"),
        (gaps.under_way, "requests are under way"),
    ):
        if count:
            told_gaps.append(f"{count} {words}")
    if gaps.capacity_unpriced_ns:
        told_gaps.append(f"{_hours(gaps.capacity_unpriced_ns)} worker hours the price book has no cost for")
    return told_gaps


def _hours(ns: int) -> str:
    return decimal_text(Fraction(ns, _NS_PER_HOUR), 2)


def _percent(share: str | None) -> str:
    return "-" if share is None else f"{decimal_text(Fraction(share) * 100, 1)} %"
