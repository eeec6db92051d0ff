"""A spool of made-up records, as large as asked for, and how long it takes to be asked things."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from weighbridge.config.clock import SystemClock
from weighbridge.observability import ledger_read, ledger_retention, ledger_rollups
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.sqlite_file import transaction
from weighbridge.observability.usage_read import attempt_usage, usage

DAYS = 120
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
_CHUNK = 100_000
_DAY_NS = 86_400_000_000_000
_FIRST_NS = int(FIRST.timestamp()) * 1_000_000_000

# Twenty tenants, eight tasks, three roads: every day has nearly every combination, which is the worst for sums.
_REQUESTS = """
INSERT INTO requests (
    request_id, admitted_ns, tenant, key_id, model_requested, stream, road_decided, score, task, policy_version,
    calibration_version, reasons, ended_ns, outcome, status, road, attempts, prompt_tokens, cached_tokens,
    completion_tokens, tokens_exact, queue_ms, ttft_ms, total_ms, error_code, seq, tpot_ms, currency, price_version,
    worker_us, cost_nano, counterfactual_nano
)
WITH RECURSIVE n(i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i < :last),
made(i, at, x) AS (SELECT i, :first_ns + i * :step_ns, (i * 2654435761) % 4294967296 FROM n)
SELECT printf('%012x-7000-8000-%012x', at / 1000000, i), at, 'tenant-' || (x % 20), 'key-' || (x % 60), 'auto',
    x % 2, 'local-8b', (x % 1000) / 1000.0, 'task-' || (x / 64 % 8), 'default@0123456789ab', 'c1', '["score"]',
    at + 900000000, CASE WHEN x / 512 % 50 = 0 THEN 'client_aborted' WHEN x / 512 % 50 = 1 THEN 'refused' ELSE 'ok' END,
    200, CASE WHEN x / 4096 % 10 < 7 THEN 'local-8b' WHEN x / 4096 % 10 < 9 THEN 'local-70b' ELSE 'commercial' END,
    1, 200 + x % 1000, x % 200, 20 + x % 300, 1, (x % 80) / 8.0, 40 + (x % 800) / 8.0, 900.0, '', i, 12.5, 'USD',
    'prices@0123456789ab', x % 100000, x % 1000000, x % 3000000
FROM made
"""
_ATTEMPTS = """
INSERT INTO attempts (
    request_id, n, road, started_ns, ended_ns, outcome, prompt_tokens, cached_tokens, completion_tokens, queue_ms,
    egress_id, backend, model, worker_us, cost_nano
)
SELECT request_id, 1, road, admitted_ns, ended_ns, outcome, prompt_tokens, cached_tokens, completion_tokens, queue_ms,
    '', '0', road, worker_us, cost_nano
FROM requests WHERE seq BETWEEN :first AND :last
"""


@dataclass(frozen=True)
class Answered:
    """How long a question took, in milliseconds; the middle and the longest of several, after a first one."""

    what: str
    p50_ms: float
    most_ms: float
    rows: int


def fill(path: Path, rows: int) -> tuple[float, float]:
    """Make a spool of `rows` finished requests with an attempt each, over 120 days.

    Returns:
        Seconds that making them took, and seconds that adding them all up took.
    """
    Ledger.open(path, clock=SystemClock(), chain_key=bytes(32)).close_sync()
    made_s = rolled_s = 0.0
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("PRAGMA synchronous=OFF")
        for first in range(1, rows + 1, _CHUNK):
            values = {"first": first, "last": min(first + _CHUNK - 1, rows)}
            began = time.perf_counter()
            with transaction(conn):
                step_ns = DAYS * _DAY_NS // (rows + 1)
                conn.execute(_REQUESTS, {**values, "first_ns": _FIRST_NS, "step_ns": step_ns})
                conn.execute(_ATTEMPTS, values)
                conn.execute("UPDATE shipping SET taken = ?", (values["last"],))
            made = time.perf_counter()
            with transaction(conn):
                ledger_rollups.roll(conn)
            made_s += made - began
            rolled_s += time.perf_counter() - made
    return made_s, rolled_s


def ask(path: Path, rows: int, *, rounds: int = 5) -> list[Answered]:
    """Put the questions of an admin, and those that read the rows themselves for comparison."""
    ever = (_day(0), _day(DAYS))
    month = (_day(DAYS - 30), _day(DAYS))
    with closing(ledger_read.open_readonly(path)) as conn:
        one = conn.execute("SELECT request_id FROM requests WHERE seq = ?", (rows // 2,)).fetchone()[0]

        def sql(text: str, *values: object) -> Callable[[], int]:
            return lambda: len(conn.execute(text, values).fetchall())

        questions: dict[str, Callable[[], int]] = {
            f"usage by {', '.join(by) or 'nothing'}, {days}": lambda by=by, span=span: len(
                usage(conn, *span, by)
            )  # type: ignore[misc]
            for days, span in (("120 days", ever), ("30 days", month))
            for by in (
                (),
                ("tenant",),
                ("road",),
                ("task",),
                ("day",),
                ("tenant", "road"),
                ("day", "tenant", "road"),
            )
        }
        questions |= {
            "attempts by road and backend, 120 days": lambda: len(
                attempt_usage(conn, *ever, ("road", "backend"))
            ),
            "attempts by day, road and backend, 30 days": lambda: len(
                attempt_usage(conn, *month, ("day", "road", "backend"))
            ),
            "one request with its attempts": lambda: (
                len(ledger_read.requests(conn, one)) + len(ledger_read.attempts(conn, one))
            ),
            "500 records to ship": sql(
                "SELECT * FROM requests WHERE seq > ? ORDER BY seq LIMIT 500", rows // 2
            ),
        }
        return [_answered(what, question, rounds) for what, question in questions.items()]


def by_the_rows(path: Path) -> Answered:
    """The same as usage by tenant, from the rows: once, as it takes its time."""
    with closing(ledger_read.open_readonly(path)) as conn:
        text = (
            "SELECT tenant, count(*), sum(prompt_tokens), sum(completion_tokens), sum(cost_nano) FROM requests "
            "WHERE outcome IS NOT NULL GROUP BY tenant"
        )
        return _answered(
            "usage by tenant, from the rows", lambda: len(conn.execute(text).fetchall()), 1, warm=False
        )


def let_go(path: Path, steps: int = 20) -> Answered:
    """Steps of retention, each in a commit of its own."""
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        before_ns = _FIRST_NS + DAYS * _DAY_NS // 2
        return _answered(
            f"deleting {ledger_retention.STEP} old requests",
            lambda: ledger_retention.prune(conn, before_ns, keep_unshipped=False),
            steps,
        )


def _answered(what: str, question: Callable[[], int], rounds: int, *, warm: bool = True) -> Answered:
    if warm:
        question()
    took: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        rows = question()
        took.append((time.perf_counter() - began) * 1000)
    return Answered(what, statistics.median(took), max(took), rows)


def _day(n: int) -> str:
    return (FIRST + timedelta(days=n)).date().isoformat()
