"""The savings report once more, from exported lines and a price file, by docs/costs.md alone.

Shares no code with the product: its own reading of the price book, its own arithmetic in fractions.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from fractions import Fraction
from typing import Any

import yaml

Book = dict[str, Any]
BILLION = 10**9
DAY_NS = 86_400 * BILLION
NO_ANSWER_BEGUN = (
    "upstream_connect",
    "upstream_status",
    "upstream_resting",
    "refused",
    "window",
    "masking_refused",
)


def recompute(
    lines: Iterable[str | bytes], prices: str, since: int | None = None, until: int | None = None
) -> Any:
    """Every amount of the report as text with nine digits, and the counts of what has no price."""
    book: Book = yaml.load(prices, Loader=yaml.BaseLoader)
    records = [json.loads(line) for line in lines]
    requests = [record for record in records if record["record"] == "request"]
    requests += [
        {
            "request_id": attempt["request_id"],
            "admitted_ns": attempt["started_ns"],
            "tenant": "",
            "road": attempt["road"],
            "outcome": "",
            "attempts": [attempt],
        }
        for attempt in records
        if attempt["record"] == "attempt"
    ]
    groups: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    used: dict[tuple[str, str], int] = defaultdict(int)
    unpriced = tokens = 0
    for request in requests:
        admitted = request.get("admitted_ns")
        at = admitted if admitted is not None else (request.get("ended_ns") or 0)
        road = request.get("road")
        if road is None:
            road = request.get("road_decided") or ""
        group = groups[request.get("tenant") or "", road]
        whole = request["outcome"] == "ok"
        if whole:
            tokens += (request["prompt_tokens"] or 0) + (request["completion_tokens"] or 0)
            factor = Fraction(1) if road == "commercial" else Fraction(book["savings"]["token_factor"])
            each = token_prices(book, book["savings"]["compared_with"], at)
            if each is not None:
                known = all(cost_of(book, attempt) is not None for attempt in request["attempts"])
                known = known and not any(
                    record["record"] == "egress"
                    and record["request_id"] == request["request_id"]
                    and sent_and_forgotten(record, records)
                    for record in records
                )
                where = "counterfactual" if known else "counterfactual_unpriced"
                group[where] += nearest(token_cost(request, each) * factor)
        served = max(
            (attempt["n"] for attempt in request["attempts"] if attempt["road"] == road), default=None
        )
        for attempt in request["attempts"]:
            found = cost_of(book, attempt)
            unpriced += found is None
            cost = found or 0
            group["commercial" if attempt["road"] == "commercial" else "local"] += cost
            if attempt["road"] != "commercial":
                used[attempt["road"], attempt.get("backend") or ""] += cost
            if not whole:
                group["unanswered"] += cost
            elif attempt["n"] != served:
                group["in_vain"] += cost
    unpriced += sum(sent_and_forgotten(record, records) for record in records if record["record"] == "egress")
    capacity = capacity_of(book, records, since, until)
    idle: dict[str, int] = defaultdict(int)
    beyond: dict[str, int] = defaultdict(int)
    of_tier: dict[str, int] = defaultdict(int)
    for road, worker in {*used, *capacity}:
        left = capacity.get((road, worker), 0) - used.get((road, worker), 0)
        idle[road] += max(0, left)
        beyond[road] += max(0, -left)
        of_tier[road] += capacity.get((road, worker), 0)
    saved = {
        key: group["counterfactual"] - group["commercial"] - group["local"] for key, group in groups.items()
    }
    margin = sum(group["counterfactual"] - group["commercial"] for group in groups.values())
    return {
        "groups": {
            key: {
                name: text(group[name])
                for name in (
                    "counterfactual",
                    "counterfactual_unpriced",
                    "commercial",
                    "local",
                    "in_vain",
                    "unanswered",
                )
            }
            | {"saved": text(saved[key])}
            for key, group in groups.items()
        },
        "tiers": {
            road: {"capacity": text(of_tier[road]), "idle": text(idle[road]), "beyond": text(beyond[road])}
            for road in of_tier
        },
        "saved": text(sum(saved.values()) - sum(idle.values())),
        "unpriced": unpriced,
        "break_even": break_even(requests, records, sum(of_tier.values()), tokens, margin, since, until),
    }


def cost_of(book: Book, attempt: dict[str, Any]) -> int | None:
    at = attempt["started_ns"] or 0
    if attempt["road"] == "commercial":
        if not attempt["egress_id"]:
            return 0
        if not attempt["prompt_tokens"]:
            return 0 if attempt["outcome"] in NO_ANSWER_BEGUN else None
        each = token_prices(book, attempt.get("model") or "", at)
        return None if each is None else nearest(token_cost(attempt, each))
    if attempt.get("worker_us") is None:
        return None
    if attempt["worker_us"] == 0:
        return 0
    hour = worker_hour(book, attempt["road"], at)
    return None if hour is None else nearest(Fraction(attempt["worker_us"], 3_600_000_000) * hour * BILLION)


def token_cost(tokens: dict[str, Any], each: tuple[Fraction, Fraction, Fraction]) -> Fraction:
    prompt, completion = tokens["prompt_tokens"] or 0, tokens["completion_tokens"] or 0
    cached = min(tokens["cached_tokens"] or 0, prompt)
    price, cached_price, output = each
    return ((prompt - cached) * price + cached * cached_price + completion * output) / 1_000_000 * BILLION


def token_prices(book: Book, model: str, at: int) -> tuple[Fraction, Fraction, Fraction] | None:
    entry = in_force(book["commercial"].get(model, ()), at)
    if entry is None:
        return None
    rate = exchange(book, entry["currency"], at)
    price, cached, output = (Fraction(entry[name]) * rate for name in ("input", "cached_input", "output"))
    return price, cached, output


def worker_hour(book: Book, road: str, at: int) -> Fraction | None:
    tier = in_force(book["tiers"].get(road, ()), at)
    if tier is None:
        return None
    gpu = in_force(book["gpus"][tier["gpu"]], at)
    assert gpu is not None
    if "per_hour" in gpu:
        hour = Fraction(gpu["per_hour"])
    else:
        hour = Fraction(gpu["purchase"]) / (Fraction(gpu["amortisation_years"]) * 8760)
        hour += Fraction(gpu["watts"]) / 1000 * Fraction(gpu["pue"]) * Fraction(gpu["electricity_per_kwh"])
    return hour * Fraction(tier["gpus_per_worker"]) * exchange(book, gpu["currency"], at)


def exchange(book: Book, currency: str, at: int) -> Fraction:
    if currency == book["currency"]:
        return Fraction(1)
    entry = in_force(book["exchange"], at)
    assert entry is not None
    won = Fraction(entry["krw_per_usd"])
    return won if currency == "USD" else 1 / won


def in_force(entries: Iterable[dict[str, str]], at: int) -> dict[str, str] | None:
    before = [entry for entry in entries if moment(entry["since"]) <= at]
    return max(before, key=lambda entry: moment(entry["since"]), default=None)


def moment(text: str) -> int:
    if "T" not in text:
        text += "T00:00:00+00:00"
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()) * BILLION


def capacity_of(
    book: Book, records: list[dict[str, Any]], since: int | None, until: int | None
) -> dict[tuple[str, str], int]:
    """By tier and worker."""
    changes = sorted(
        {moment(entry["since"]) for entry in book.get("exchange", ())}
        | {
            moment(entry["since"])
            for section in ("gpus", "tiers")
            for entries in book[section].values()
            for entry in entries
        }
    )
    spans: dict[tuple[str, str, int, Fraction], int] = defaultdict(int)
    for record in records:
        if record["record"] != "capacity":
            continue
        start = record["from_ns"] if since is None else max(record["from_ns"], since)
        stop = record["to_ns"] if until is None else min(record["to_ns"], until)
        midnights = range(start - start % DAY_NS + DAY_NS, stop, DAY_NS) if start < stop else ()
        cuts = sorted({start, stop, *midnights, *(change for change in changes if start < change < stop)})
        for begin, end in itertools.pairwise(cuts):
            if begin < end and start <= begin and end <= stop:
                hour = worker_hour(book, record["road"], begin)
                if hour is not None:
                    spans[record["road"], record["worker"], begin // DAY_NS, hour] += end - begin
    found: dict[tuple[str, str], int] = defaultdict(int)
    for (road, worker, _, hour), ns in spans.items():
        found[road, worker] += nearest(Fraction(ns, 3_600 * BILLION) * hour * BILLION)
    return found


def sent_and_forgotten(egress: dict[str, Any], records: list[dict[str, Any]]) -> bool:
    (request,) = (
        record
        for record in records
        if record["record"] == "request" and record["request_id"] == egress["request_id"]
    )
    return request["outcome"] is not None and all(
        attempt["n"] != egress["attempt"] for attempt in request["attempts"]
    )


def break_even(
    requests: list[dict[str, Any]],
    records: list[dict[str, Any]],
    capacity: int,
    tokens: int,
    margin: int,
    since: int | None,
    until: int | None,
) -> int | None:
    seen = [
        request["admitted_ns"] if request.get("admitted_ns") is not None else request.get("ended_ns") or 0
        for request in requests
        if request.get("outcome") != "" or request.get("tenant") != ""
    ]
    for record in records:
        if record["record"] == "capacity":
            start = record["from_ns"] if since is None else max(record["from_ns"], since)
            stop = record["to_ns"] if until is None else min(record["to_ns"], until)
            seen += [start, stop] if start < stop else []
    if not seen:
        return None
    span = max(seen) - min(seen)
    if span <= 0 or not tokens or margin <= 0 or not capacity:
        return None
    return math.ceil(Fraction(capacity * DAY_NS, span) * tokens / margin)


def nearest(value: Fraction) -> int:
    return round(value)  # Python's own, halves to even


def text(nano: int) -> str:
    sign, digits = "-" if nano < 0 else "", f"{abs(nano):010d}"
    return f"{sign}{digits[:-9]}.{digits[-9:]}"
