"""The ledger's tables, and how a dead gateway's open requests are closed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from functools import partial
from typing import Any, Final

from weighbridge.observability import ledger_rollups
from weighbridge.observability.egress_chain import adopt
from weighbridge.observability.pricing import Pricing
from weighbridge.observability.records import Completion
from weighbridge.observability.sqlite_file import Statement

_TABLES: Final = (
    # Columns are nullable but for the keys: a request whose intent was lost still gets its completion.
    """CREATE TABLE requests (
        request_id TEXT PRIMARY KEY NOT NULL,
        admitted_ns INTEGER, tenant TEXT, key_id TEXT, model_requested TEXT, stream INTEGER,
        road_decided TEXT, score REAL, task TEXT, policy_version TEXT, calibration_version TEXT, reasons TEXT,
        ended_ns INTEGER, outcome TEXT, status INTEGER, road TEXT, attempts INTEGER,
        prompt_tokens INTEGER, cached_tokens INTEGER, completion_tokens INTEGER, tokens_exact INTEGER,
        queue_ms REAL, ttft_ms REAL, total_ms REAL, error_code TEXT
    ) WITHOUT ROWID""",
    # Finds what a dead gateway left open without reading the whole history.
    "CREATE INDEX requests_open ON requests (request_id) WHERE outcome IS NULL",
    """CREATE TABLE attempts (
        request_id TEXT NOT NULL, n INTEGER NOT NULL,
        road TEXT, started_ns INTEGER, ended_ns INTEGER, outcome TEXT,
        prompt_tokens INTEGER, cached_tokens INTEGER, completion_tokens INTEGER,
        queue_ms REAL, egress_id TEXT,
        PRIMARY KEY (request_id, n)
    ) WITHOUT ROWID""",
    """CREATE TABLE egress (
        egress_id TEXT PRIMARY KEY NOT NULL, request_id TEXT NOT NULL, attempt INTEGER NOT NULL,
        at_ns INTEGER NOT NULL, endpoint TEXT NOT NULL, reason TEXT NOT NULL,
        body_hash TEXT NOT NULL, body_bytes INTEGER NOT NULL, entities TEXT NOT NULL,
        policy_version TEXT NOT NULL, detector_version TEXT NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX egress_by_request ON egress (request_id, attempt)",
    # Written to find out whether a broken disk takes writes again.
    "CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 1), tried INTEGER NOT NULL)",
)

# `seq` is the table's own order, so that a page of a long record is found at once.
_CHAINED_EGRESS: Final = """CREATE TABLE egress (
    seq INTEGER PRIMARY KEY NOT NULL, form INTEGER NOT NULL, key_id TEXT NOT NULL, adopted INTEGER NOT NULL,
    egress_id TEXT NOT NULL UNIQUE, request_id TEXT NOT NULL, attempt INTEGER NOT NULL,
    at_ns INTEGER NOT NULL, endpoint TEXT NOT NULL, reason TEXT NOT NULL,
    body_hash TEXT NOT NULL, body_bytes INTEGER NOT NULL, entities TEXT NOT NULL,
    policy_version TEXT NOT NULL, detector_version TEXT NOT NULL, chain TEXT NOT NULL
)"""

# What tells the shipper which records it has yet to send: every end of a request takes the next number, and a request
# whose parts come late, after its end, takes one anew.
_SHIPPING: Final = (
    "ALTER TABLE requests ADD COLUMN seq INTEGER",
    """UPDATE requests SET seq = numbered.seq FROM (
        SELECT request_id, row_number() OVER (ORDER BY ended_ns, request_id) AS seq FROM requests
        WHERE outcome IS NOT NULL
    ) AS numbered WHERE numbered.request_id = requests.request_id""",
    "CREATE UNIQUE INDEX requests_by_seq ON requests (seq) WHERE seq IS NOT NULL",
    # One row. `taken` is the last number given out, kept here because rows are deleted in time; up to `shipped`
    # everything has arrived.
    """CREATE TABLE shipping (
        id INTEGER PRIMARY KEY CHECK (id = 1), taken INTEGER NOT NULL, shipped INTEGER NOT NULL
    )""",
    "INSERT INTO shipping SELECT 1, coalesce(max(seq), 0), 0 FROM requests",
)

# `egress_shipped` is to the egress rows what `shipped` is to the requests; their own number counts there. `spool` names
# this file to whoever collects from several. What the collector refused for good is kept here, and so are its rows.
_SHIPPING_EGRESS: Final = (
    "ALTER TABLE shipping ADD COLUMN egress_shipped INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE shipping ADD COLUMN spool TEXT NOT NULL DEFAULT ''",
    "UPDATE shipping SET spool = lower(hex(randomblob(16)))",
    """CREATE TABLE rejected (
        stream TEXT NOT NULL, id TEXT NOT NULL, seq INTEGER NOT NULL, at_ns INTEGER NOT NULL, reason TEXT NOT NULL,
        PRIMARY KEY (stream, id, seq)
    ) WITHOUT ROWID""",
)

# What a record costs, and the risks its score was made of. Rows of an older program stay without: neither is known now.
_MONEY: Final = (
    *(
        f"ALTER TABLE requests ADD COLUMN {column}"
        for column in (
            "p_8b_fails REAL",
            "p_70b_fails REAL",
            "tpot_ms REAL",
            "currency TEXT",
            "price_version TEXT",
            "worker_us INTEGER",
            "cost_nano INTEGER",
            "counterfactual_nano INTEGER",
        )
    ),
    *(
        f"ALTER TABLE attempts ADD COLUMN {column}"
        for column in ("backend TEXT", "model TEXT", "worker_us INTEGER", "cost_nano INTEGER")
    ),
    """CREATE TABLE capacity (
        road TEXT NOT NULL, worker TEXT NOT NULL, from_ns INTEGER NOT NULL, to_ns INTEGER NOT NULL,
        slots INTEGER NOT NULL, PRIMARY KEY (road, worker, from_ns)
    ) WITHOUT ROWID""",
    *ledger_rollups.CREATE,
)

VERSION: Final = 3
"""`PRAGMA user_version` of a file that is up to date."""

CHAINED: Final = 2
"""From this version on the egress rows have their chain, of the form that they have today."""


def migrations(chain_key: bytes) -> tuple[tuple[Statement, ...], ...]:
    """The steps to today's schema, for `open_database`. Egress rows that have no chain yet get one with the key."""
    return (
        _TABLES,
        (
            "ALTER TABLE egress RENAME TO egress_before",
            _CHAINED_EGRESS,
            partial(adopt, key=chain_key),
            "DROP TABLE egress_before",
            "CREATE INDEX egress_by_request ON egress (request_id, attempt)",
        ),
        (*_SHIPPING, *_MONEY, *_SHIPPING_EGRESS),
    )


PROBE: Final = "INSERT INTO probe VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET tried = tried + 1"

# The road of a lost request: outwards if bytes may have left in an attempt that has no row yet, else the last
# road that has one, else the road decided on.
_RECOVER = """
UPDATE requests SET
    outcome = 'lost', ended_ns = ?, status = 0, error_code = 'gateway_died', tokens_exact = 0,
    prompt_tokens = coalesce(prompt_tokens, 0), completion_tokens = coalesce(completion_tokens, 0),
    cached_tokens = 0,
    attempts = max(
        (SELECT coalesce(max(n), 0) FROM attempts AS a WHERE a.request_id = requests.request_id),
        (SELECT coalesce(max(attempt), 0) FROM egress AS e WHERE e.request_id = requests.request_id)
    ),
    road = CASE WHEN
        (SELECT coalesce(max(attempt), 0) FROM egress AS e WHERE e.request_id = requests.request_id)
        > (SELECT coalesce(max(n), 0) FROM attempts AS a WHERE a.request_id = requests.request_id)
        THEN 'commercial'
        ELSE coalesce(
            (SELECT road FROM attempts AS a WHERE a.request_id = requests.request_id ORDER BY n DESC LIMIT 1),
            road_decided, ''
        ) END
WHERE outcome IS NULL
RETURNING request_id, admitted_ns, road, attempts, prompt_tokens, completion_tokens
"""


def recover(conn: sqlite3.Connection, now_ns: int, pricing: Pricing) -> Counter[str]:
    """Close every request a dead gateway left open as `lost`, with the tokens of its last progress row, and add up what
    it had not.

    Times that nobody knows (queue, first byte, total) stay NULL; `ended_ns` is `now_ns`, the recovery. The attempts
    that have rows keep their cost, and nothing was saved by an answer that nobody knows to have arrived.
    Returns how many there were by road; "" is one that nobody knows.
    """
    lost = sorted(conn.execute(_RECOVER, (now_ns,)).fetchall())
    if lost:
        (taken,) = conn.execute("SELECT taken FROM shipping").fetchone()
        for n, row in enumerate(lost, 1):
            conn.execute(_CLOSE[0], (taken + n, *_price(row, now_ns, pricing), row[0]))
            conn.execute(_CLOSE[1], (row[0],))
        conn.execute("UPDATE shipping SET taken = ?", (taken + len(lost),))
    ledger_rollups.roll(conn)
    return Counter(row[2] for row in lost)


_CLOSE: Final = (
    "UPDATE requests SET seq = ?, currency = ?, price_version = ?, counterfactual_nano = ? WHERE request_id = ?",
    f"UPDATE requests SET {ledger_rollups.OF_ATTEMPTS} WHERE request_id = ?",  # noqa: S608
)


def _price(row: tuple[Any, ...], now_ns: int, pricing: Pricing) -> tuple[str | None, str | None, int | None]:
    request_id, admitted_ns, road, attempts, prompt, completion = row
    ended = Completion(
        request_id=request_id,
        ended_ns=now_ns,
        outcome="lost",
        status=0,
        road=road,
        attempts=attempts,
        prompt_tokens=prompt,
        cached_tokens=0,
        completion_tokens=completion,
        tokens_exact=False,
        queue_ms=0.0,
        ttft_ms=None,
        total_ms=0.0,
    )
    priced = pricing.completion(ended, now_ns if admitted_ns is None else admitted_ns)
    return priced.currency, priced.price_version, None if priced.currency is None else 0
