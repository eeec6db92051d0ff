"""The savings report adds up, and equals what an independent program makes of the exported records."""

from __future__ import annotations

import csv
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.money import BEGIN, DAY, DAYS, SECOND, as_recomputed, books, histories, ledger_of, sent
from tests.support.recompute import recompute, text
from weighbridge.config.prices import parse_prices
from weighbridge.gateway.cli_savings_text import savings_text
from weighbridge.observability import savings_read
from weighbridge.observability.costs import CostTable
from weighbridge.observability.money import exact, told
from weighbridge.observability.savings_read import read_savings
from weighbridge.observability.savings_report import SavingsReport, Window
from weighbridge.observability.usage_export import export

PAGE = Path(__file__).parents[3] / "docs" / "costs.md"
windows = st.one_of(
    st.just(Window()),
    st.tuples(st.integers(0, DAYS * 8), st.integers(0, DAYS * 8)).map(
        lambda pair: Window(BEGIN + min(pair) * (DAY // 8), BEGIN + max(pair) * (DAY // 8) + 1)
    ),
    st.integers(BEGIN, BEGIN + DAYS * DAY).map(lambda ns: Window(ns, None)),
    st.integers(BEGIN, BEGIN + DAYS * DAY).map(lambda ns: Window(None, ns)),
)


def table_of(prices: str) -> CostTable:
    return CostTable(parse_prices(prices.encode(), "prices.yaml"))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(books(), histories(), windows)
def test_it_equals_an_independent_recomputation(prices: str, tables: dict[str, Any], window: Window) -> None:
    with closing(ledger_of(tables)) as conn:
        report = read_savings(conn, table_of(prices), window)
        lines = list(export(conn, window))
    assert as_recomputed(report) == recompute(lines, prices, window.since_ns, window.until_ns)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(books(), histories(), windows)
def test_everything_adds_up(prices: str, tables: dict[str, Any], window: Window) -> None:
    with closing(ledger_of(tables)) as conn:
        report = read_savings(conn, table_of(prices), window)
    sums = report.totals
    for tier in report.tiers:
        # Point by point what the page promises: all that the workers cost is somewhere.
        assert tier.used_nano + tier.idle_nano - tier.beyond_nano == tier.capacity_nano
        assert sum(rate.cost_nano for rate in tier.rates) == tier.capacity_nano
        assert sum(rate.up_ns for rate in tier.rates) == tier.up_ns
        assert sum(day.capacity_nano for day in report.days if day.road == tier.road) == tier.capacity_nano
        assert sum(day.busy_us for day in report.days if day.road == tier.road) == tier.busy_us
        assert sum(day.tokens for day in report.days if day.road == tier.road) == tier.tokens
    assert sum(tier.used_nano for tier in report.tiers) == sums.local_nano
    assert sum(line.local_nano for line in report.lines) == sums.local_nano
    assert (
        sums.saved_nano == sums.counterfactual_nano - sums.commercial_nano - sums.local_nano - sums.idle_nano
    )
    for line in report.lines:
        assert 0 <= line.in_vain_nano + line.unanswered_nano <= line.commercial_nano + line.local_nano
        assert line.answered <= line.requests
        if not line.answered:
            assert line.counterfactual_nano == line.counterfactual_unpriced_nano == 0
    if window == Window():
        ends = [request["outcome"] for request in tables["requests"]]
        assert sum(line.requests for line in report.lines) == len(ends)
        assert (report.gaps.lost, report.gaps.under_way) == (ends.count("lost"), ends.count(None))
        known = {request["request_id"] for request in tables["requests"]}
        orphans = [attempt for attempt in tables["attempts"] if attempt["request_id"] not in known]
        assert report.gaps.without_request == len(orphans)


def book(**changes: str) -> str:
    (text_of_page,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for old, new in changes.items():
        text_of_page = text_of_page.replace(old, new)
    return str(text_of_page)


def tables_of(lines: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, list[dict[str, Any]]] = {"requests": [], "attempts": [], "capacity": []}
    for line in lines:
        kind = line.pop("record")
        if kind == "request":
            tables["attempts"] += [
                attempt | {"request_id": line["request_id"]} for attempt in line.pop("attempts")
            ]
        tables[{"request": "requests", "capacity": "capacity"}[kind]].append(line)
    return tables


def test_the_worked_example_of_the_page() -> None:
    page = PAGE.read_text()
    (records,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    rows = dict(re.findall(r"^\| (.+?) \| .+? \| (-?\d\.\d{9}) \|$", page, re.MULTILINE))
    lines = [json.loads(line) for line in records.splitlines()]
    with closing(ledger_of(tables_of([dict(line) for line in lines]))) as conn:
        report = read_savings(conn, table_of(book()), Window())
        exported = list(export(conn, Window()))
    found = recompute(exported, book())
    assert as_recomputed(report) == found == recompute(records.splitlines(), book())
    groups, (tier,) = found["groups"], report.tiers
    assert rows == {
        "`a`, local": groups["acme", "local-8b"]["local"],
        "`a` at gpt-4o": groups["acme", "local-8b"]["counterfactual"],
        "`b`, commercial": groups["acme", "commercial"]["commercial"],
        "`b` at gpt-4o": groups["acme", "commercial"]["counterfactual"],
        "`c`, local, aborted": groups["bank", "local-8b"]["unanswered"],
        "capacity": exact(tier.capacity_nano),
        "used": exact(tier.used_nano),
        "idle": exact(tier.idle_nano),
        "saved, acme, local-8b": groups["acme", "local-8b"]["saved"],
        "saved, acme, commercial": groups["acme", "commercial"]["saved"],
        "saved, bank, local-8b": groups["bank", "local-8b"]["saved"],
        "saved": exact(report.totals.saved_nano),
    }
    assert f"Break-even would have been at {report.break_even.tokens_per_day:,} tokens a day" in page


def one(end: str = "ok", **attempt: Any) -> dict[str, list[dict[str, Any]]]:
    """A request with one attempt."""
    tokens = {"prompt_tokens": 1000, "cached_tokens": 0, "completion_tokens": 100}
    request = {
        "request_id": "r",
        "admitted_ns": BEGIN,
        "tenant": "t",
        "road": "commercial",
        "outcome": end,
    }
    row = {
        "request_id": "r",
        "n": 1,
        "road": "commercial",
        "model": "gpt-4o",
        "started_ns": BEGIN,
        "outcome": "ok",
        "egress_id": "e",
        **tokens,
    }
    return {"requests": [request | tokens], "attempts": [row | attempt]}


def report_of(tables: dict[str, Any], prices: str | None = None, window: Window = Window()) -> SavingsReport:  # noqa: B008
    with closing(ledger_of(tables)) as conn:
        return read_savings(conn, table_of(prices or book()), window)


@pytest.mark.parametrize("outcome", ["client_aborted", "truncated", "refused", "error", "lost"])
def test_what_was_not_answered_saved_nothing_and_cost_all_the_same(outcome: str) -> None:
    report = report_of(one(outcome))
    (line,) = report.lines
    assert (line.counterfactual_nano, line.commercial_nano) == (0, 3_500_000)
    assert line.unanswered_nano == 3_500_000
    assert report.totals.saved_nano == -3_500_000


def test_what_has_no_price_is_told_and_not_taken_for_nothing() -> None:
    gaps = report_of(one(model="unheard-of")).gaps
    assert (gaps.unpriced, gaps.unknown_models) == (1, {"unheard-of": 1})
    assert report_of(one(prompt_tokens=0, outcome="upstream_cut")).gaps.usage_untold == 1
    assert report_of(one(prompt_tokens=0, outcome="upstream_connect")).gaps.unpriced == 0
    assert report_of(one(egress_id="", prompt_tokens=0)).gaps.unpriced == 0
    early = report_of(
        one(), book().replace("gpt-4o:\n    - {since: 2026-01-01", "gpt-4o:\n    - {since: 2026-01-02")
    )
    assert (early.gaps.unknown_models, early.gaps.not_compared) == ({"gpt-4o": 1}, 1)
    old = report_of(one(road="local-8b", worker_us=None))
    assert old.gaps.work_unmeasured == 1
    assert report_of(one(road="local-70b", worker_us=5)).gaps.unknown_tiers == {"local-70b": 1}
    capacity = {"road": "local-70b", "worker": "w", "from_ns": BEGIN, "to_ns": BEGIN + SECOND, "slots": 1}
    assert report_of({"capacity": [capacity]}).gaps.capacity_unpriced_ns == SECOND


@pytest.mark.parametrize(
    "unpriced",
    [
        {"model": "unheard-of"},
        {"prompt_tokens": 0, "outcome": "upstream_cut"},
        {"road": "local-8b", "worker_us": None},
        {"road": "local-70b", "worker_us": 5},
    ],
)
def test_an_answer_whose_cost_is_unknown_has_saved_nothing(unpriced: dict[str, Any]) -> None:
    (line,) = report_of(one(**unpriced)).lines
    assert (line.counterfactual_nano, line.counterfactual_unpriced_nano) == (0, 3_500_000)
    # One unknown part is enough, and the known part is paid.
    tables = one()
    tables["attempts"].append(tables["attempts"][0] | {"n": 2, "egress_id": "e2"} | unpriced)
    report = report_of(tables)
    sums = report.totals
    assert (sums.counterfactual_nano, sums.counterfactual_unpriced_nano) == (0, 3_500_000)
    assert (sums.commercial_nano, sums.saved_nano) == (3_500_000, -3_500_000)
    assert "Not in it: answers worth $0.0035 at gpt-4o" in savings_text(report, "table")
    assert told(report)["totals"]["counterfactual_unpriced"] == "0.003500000"
    *_, total = csv.DictReader(savings_text(report, "csv").splitlines())
    assert (total["counterfactual"], total["counterfactual_unpriced"]) == ("0.000000000", "0.003500000")
    assert "Not in it" not in savings_text(report_of(one()), "table")


def test_an_answer_something_of_which_was_sent_without_a_record_has_saved_nothing() -> None:
    sums = report_of(one() | {"egress": [sent(0, "r", 2)]}).totals
    assert (sums.counterfactual_nano, sums.counterfactual_unpriced_nano) == (0, 3_500_000)


def test_the_attempt_whose_answer_was_given_is_not_in_vain() -> None:
    local = {"road": "local-8b", "backend": "w0", "worker_us": 36_000_000, "egress_id": ""}
    tables = one(**local, outcome="escalated_invalid_json")
    (first,) = tables["attempts"]
    again = first | {"n": 2, "worker_us": 3_600_000}
    outward = first | {
        "n": 3,
        "road": "commercial",
        "outcome": "upstream_cut",
        "egress_id": "e",
        "worker_us": 0,
    }
    tables["attempts"] = [outward, again, first]
    # No road above served, so that the last local answer was given after all.
    tables["requests"][0]["road"] = "local-8b"
    with closing(ledger_of(tables)) as conn:
        report = read_savings(conn, table_of(book()), Window())
        assert as_recomputed(report) == recompute(export(conn, Window()), book())
    (line,) = report.lines
    assert (line.local_nano, line.commercial_nano) == (22_000_000, 3_500_000)
    assert line.in_vain_nano == 20_000_000 + 3_500_000
    # The road above served.
    tables["requests"][0]["road"] = "commercial"
    (line,) = report_of(tables).lines
    assert line.in_vain_nano == 22_000_000


def test_work_beyond_the_time_up_is_shown() -> None:
    work = one(road="local-8b", backend="w0", worker_us=7_200_000_000, egress_id="")
    row = {"road": "local-8b", "worker": "w0", "from_ns": BEGIN, "to_ns": BEGIN + 3600 * SECOND, "slots": 1}
    other = row | {"worker": "w1"}
    (tier,) = report_of(work | {"capacity": [row, other]}).tiers
    assert (tier.capacity_nano, tier.used_nano) == (4 * 10**9, 4 * 10**9)
    # One worker's idle hour does not hide the other's impossible one.
    assert (tier.idle_nano, tier.beyond_nano) == (2 * 10**9, 2 * 10**9)
    assert tier.occupancy == "1.0000"


def test_a_price_change_counts_from_its_instant() -> None:
    changed = book().replace(
        "output: 10.00}",
        "output: 10.00}\n    - {since: 2026-01-01T12:00:00Z, currency: USD, input: 5, cached_input: 1, output: 0}",
    )
    noon = BEGIN + DAY // 2
    before, after = (report_of(one(started_ns=ns), changed).totals.commercial_nano for ns in (noon - 1, noon))
    assert (text(before), text(after)) == ("0.003500000", "0.005000000")


def test_dollars_in_a_book_of_won() -> None:
    won = book().replace(
        "currency: USD\ncommercial",
        "currency: KRW\nexchange: [{since: 2026-01-01, krw_per_usd: 1473.5}]\ncommercial",
    )
    report = report_of(one(), won)
    assert report.currency == "KRW"
    assert exact(report.totals.commercial_nano) == "5.157250000"


def test_told_without_nanos() -> None:
    plain = told(report_of(one()))
    assert plain["totals"]["commercial"] == "0.003500000"
    assert "nano" not in json.dumps(plain)


def test_time_outside_the_window_is_not_paid() -> None:
    row = {"road": "local-8b", "worker": "w0", "from_ns": BEGIN, "to_ns": BEGIN + 3600 * SECOND, "slots": 1}
    half = BEGIN + 1800 * SECOND
    for window in (Window(half, None), Window(None, half)):
        (tier,) = report_of({"capacity": [row]}, window=window).tiers
        assert (tier.up_ns, tier.capacity_nano) == (1800 * SECOND, 10**9)
    assert report_of({"capacity": [row]}, window=Window(BEGIN + 3600 * SECOND, None)).tiers == []


def test_a_window_wider_than_the_records_changes_no_day() -> None:
    up = {"road": "local-8b", "worker": "0", "from_ns": BEGIN, "to_ns": BEGIN + 2 * DAY, "slots": 8}
    tables = one() | {"capacity": [up]}
    narrow, wide = (report_of(tables, window=window) for window in (Window(), Window(0, BEGIN + 3650 * DAY)))
    assert narrow.break_even.measured_tokens_per_day > 0
    assert wide.break_even == narrow.break_even


def test_time_is_rounded_once_a_day_and_rate() -> None:
    # A third of a nano each: two workers' together would make another sum.
    third = {"road": "local-8b", "from_ns": BEGIN, "to_ns": BEGIN + 600, "slots": 1}
    (tier,) = report_of({"capacity": [third | {"worker": "w0"}, third | {"worker": "w1"}]}).tiers
    assert tier.capacity_nano == 0
    parts = [third | {"worker": "w0", "from_ns": BEGIN + n, "to_ns": BEGIN + n + 600} for n in (0, 600, 1200)]
    (tier,) = report_of({"capacity": parts}).tiers
    assert tier.capacity_nano == 1


def test_what_was_sent_and_has_no_record_of_its_end() -> None:
    tables = one()
    found = report_of(tables | {"egress": [sent(0, "r", 1), sent(1, "r", 2)]})
    assert (found.gaps.sent_without_record, found.gaps.unpriced) == (1, 1)
    # A request under way may still write the record.
    tables["requests"][0]["outcome"] = None
    assert report_of(tables | {"egress": [sent(0, "r", 2)]}).gaps.sent_without_record == 0


def test_deleted_requests_are_looked_for_on_whole_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savings_read, "usage", lambda conn, first, last, by: [{"requests": 3}])
    three = [one()["requests"][0] | {"request_id": f"r{n}"} for n in range(3)]
    part = [row | {"request_id": f"p{row['request_id']}", "admitted_ns": BEGIN + DAY} for row in three]
    tables = {"requests": [three[0], *part]}
    # The sums of the first of January say three, and one is there; what is there of the second says nothing.
    assert report_of(tables, window=Window(BEGIN, BEGIN + DAY + DAY // 2)).gaps.deleted == 2
    assert report_of(tables, window=Window(BEGIN + 1, BEGIN + DAY + DAY // 2)).gaps.deleted == 0
