"""Made-up price books and records, for tests that reckon twice."""

from __future__ import annotations

import sqlite3
from typing import Any

from hypothesis import strategies as st

from weighbridge.config.exact import instant_text
from weighbridge.observability.ledger_schema import migrations
from weighbridge.observability.money import exact
from weighbridge.observability.savings_report import SavingsReport

SECOND = 10**9
DAY = 86_400 * SECOND
BEGIN = 20_454 * DAY  # 2026-01-01
DAYS = 6
MODELS = ("gpt-4o", "tiny-1", "unheard-of")
TIERS = ("local-8b", "local-70b")
OUTCOMES = ("ok", "ok", "ok", "client_aborted", "truncated", "refused", "error", "lost", None)
ENDS = (
    "ok",
    "ok",
    "ok",
    "queue_timeout",
    "client_aborted",
    "worker_lost",
    "escalated_invalid_json",
    "upstream_connect",
    "upstream_cut",
    "refused",
)

_amounts = st.one_of(
    st.sampled_from(["0", "0.075", "0.15", "2.50", "10", "15", "0.000000001"]),
    st.integers(0, 10**12).map(lambda n: f"{n // 10**9}.{n % 10**9:09d}"),
)
_above_0 = _amounts.filter(lambda text: float(text) > 0)
_rates = st.integers(1, 2 * 10**12).map(lambda n: f"{n // 10**9}.{n % 10**9:09d}")
_instants = st.integers(0, DAYS * 96).map(lambda n: instant_text(BEGIN + n * (DAY // 96)))
_FIRST = "2026-01-01"


@st.composite
def _dates(draw: st.DrawFn, *, whole: bool) -> list[str]:
    """One to three dates in order. whole: from the beginning on."""
    later = draw(st.lists(_instants.filter(lambda text: text != _FIRST), max_size=2, unique=True))
    first = [_FIRST] if whole or not later or draw(st.booleans()) else []
    return sorted({*first, *later}, key=lambda text: text if "T" in text else f"{text}T00:00:00Z")


@st.composite
def books(draw: st.DrawFn) -> str:
    """A price file. Some begin after the first records, and none knows `unheard-of`."""
    currency = st.sampled_from(["USD", "KRW"])
    lines = ["name: made-up", f"currency: {draw(currency)}", "exchange:"]
    lines += [f"  - {{since: {date}, krw_per_usd: {draw(_rates)}}}" for date in draw(_dates(whole=True))]
    lines.append("commercial:")
    for model in MODELS[:2]:
        lines.append(f"  {model}:")
        lines += [
            f"    - {{since: {date}, currency: {draw(currency)}, input: {draw(_amounts)}, "
            f"cached_input: {draw(_amounts)}, output: {draw(_amounts)}}}"
            for date in draw(_dates(whole=False))
        ]
    lines.append("gpus:")
    for gpu in ("rented", "bought"):
        lines.append(f"  {gpu}:")
        for date in draw(_dates(whole=True)):
            cost = f"per_hour: {draw(_amounts)}"
            if gpu == "bought":
                cost = (
                    f"purchase: {draw(_amounts)}, amortisation_years: {draw(_above_0)}, watts: {draw(_amounts)}, "
                    f"pue: {draw(st.sampled_from(['1', '1.5', '1.333333333']))}, electricity_per_kwh: {draw(_amounts)}"
                )
            lines.append(f"    - {{since: {date}, currency: {draw(currency)}, {cost}}}")
    lines.append("tiers:")
    for tier in draw(st.sampled_from([TIERS, TIERS[:1]])):
        lines.append(f"  {tier}:")
        lines += [
            f"    - {{since: {date}, gpu: {draw(st.sampled_from(['rented', 'bought']))}, "
            f"gpus_per_worker: {draw(st.sampled_from(['1', '2', '0.5', '0.333333333']))}}}"
            for date in draw(_dates(whole=False))
        ]
    factor = draw(st.sampled_from(["1", "0.75", "0.333333333"]))
    lines += [
        "savings:",
        f"  compared_with: {draw(st.sampled_from(MODELS[:2]))}",
        f"  token_factor: {factor}",
    ]
    return "\n".join(lines) + "\n"


_moments = st.one_of(
    st.integers(BEGIN, BEGIN + DAYS * DAY),
    st.integers(0, DAYS * 96).map(lambda n: BEGIN + n * (DAY // 96)),
    st.integers(0, DAYS * 96).map(lambda n: BEGIN + n * (DAY // 96) - 1),
)
_tokens = st.one_of(st.integers(0, 5000), st.sampled_from([0, 1, 2**31]))
_work = st.one_of(st.none(), st.integers(0, 10**8), st.sampled_from([0, 1, 3, 36]))


@st.composite
def _attempts(draw: st.DrawFn, request_id: str, n: int) -> dict[str, Any]:
    road = draw(st.sampled_from((*TIERS, "commercial")))
    outward = road == "commercial"
    return {
        "request_id": request_id,
        "n": n,
        "road": road,
        "started_ns": draw(_moments),
        "outcome": draw(st.sampled_from(ENDS)),
        "prompt_tokens": draw(_tokens),
        "cached_tokens": draw(_tokens),
        "completion_tokens": draw(_tokens),
        "egress_id": draw(st.sampled_from(["", f"e-{request_id}-{n}"])) if outward else "",
        "backend": "main" if outward else draw(st.sampled_from(["", f"{road}/0", f"{road}/1"])),
        "model": draw(st.sampled_from(MODELS)) if outward else "m",
        "worker_us": 0 if outward else draw(_work),
    }


@st.composite
def histories(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    """Rows of the ledger's tables: requests of every end, some whose admission or attempts were lost, attempts without
    a request, capacity that is too short, and outward requests without the record of their attempt."""
    tables: dict[str, list[dict[str, Any]]] = {"requests": [], "attempts": [], "capacity": [], "egress": []}
    for n in range(draw(st.integers(0, 6))):
        admitted = draw(_moments)
        ms = admitted // 1_000_000
        # As the gateway makes them: a request's id begins with its time.
        request_id = f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7000-8000-{n:012x}"
        tables["attempts"] += [draw(_attempts(request_id, k)) for k in range(1, 1 + draw(st.integers(0, 3)))]
        if draw(st.integers(0, 5)) == 0:
            continue  # an orphan
        outcome = draw(st.sampled_from(OUTCOMES))
        known = outcome is None or draw(st.integers(0, 3)) > 0
        tables["requests"].append(
            {
                "request_id": request_id,
                "admitted_ns": admitted if known else None,
                "tenant": draw(st.sampled_from(["acme", "bank"])) if known else None,
                "road_decided": "local-8b" if known else None,
                "ended_ns": None if outcome is None else admitted + draw(st.integers(0, DAY)),
                "outcome": outcome,
                "road": None if outcome is None else draw(st.sampled_from((*TIERS, "commercial", ""))),
                "prompt_tokens": draw(_tokens),
                "cached_tokens": draw(_tokens),
                "completion_tokens": draw(_tokens),
            }
        )
    for road in draw(st.lists(st.sampled_from(TIERS), max_size=3)):
        worker = f"{road}/{draw(st.integers(0, 1))}"
        start = draw(_moments)
        row = {
            "road": road,
            "worker": worker,
            "from_ns": start,
            "to_ns": start + draw(st.integers(0, 2 * DAY)),
        }
        if all(
            (row["road"], worker, start) != (r["road"], r["worker"], r["from_ns"]) for r in tables["capacity"]
        ):
            tables["capacity"].append(row | {"slots": 8})
    for n, attempt in enumerate(tables["attempts"]):
        if attempt["road"] == "commercial" and draw(st.booleans()):
            tables["egress"].append(
                sent(n, attempt["request_id"], attempt["n"] + draw(st.sampled_from([0, 7])))
            )
    return tables


def sent(n: int, request_id: str, attempt: int) -> dict[str, Any]:
    """The n-th egress row."""
    texts = (
        "key_id",
        "endpoint",
        "reason",
        "body_hash",
        "entities",
        "policy_version",
        "detector_version",
        "chain",
    )
    return {
        "seq": n + 1,
        "form": 1,
        "adopted": 0,
        "egress_id": f"sent-{n}",
        "request_id": request_id,
        "attempt": attempt,
        "at_ns": BEGIN + n,
        "body_bytes": 1,
        **dict.fromkeys(texts, "{}"),
    }


def ledger_of(tables: dict[str, list[dict[str, Any]]]) -> sqlite3.Connection:
    """A ledger in memory that holds these rows."""
    conn = sqlite3.connect(":memory:", isolation_level=None)
    for step in migrations(b"0" * 32):
        for statement in step:
            if callable(statement):
                statement(conn)
            else:
                conn.execute(statement)
    for table, rows in tables.items():
        for row in rows:
            names = ", ".join(row)
            conn.execute(
                f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", tuple(row.values())
            )
    return conn


def as_recomputed(report: SavingsReport) -> dict[str, Any]:
    """The report's amounts in the form that `recompute` gives them."""
    return {
        "groups": {
            (line.tenant, line.road): {
                name: exact(getattr(line, f"{name}_nano"))
                for name in (
                    "counterfactual",
                    "counterfactual_unpriced",
                    "commercial",
                    "local",
                    "in_vain",
                    "unanswered",
                    "saved",
                )
            }
            for line in report.lines
        },
        "tiers": {
            tier.road: {name: exact(getattr(tier, f"{name}_nano")) for name in ("capacity", "idle", "beyond")}
            for tier in report.tiers
        },
        "saved": exact(report.totals.saved_nano),
        "unpriced": report.gaps.unpriced,
        "break_even": report.break_even.tokens_per_day,
    }
