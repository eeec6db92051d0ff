"""A usage ledger as the first schema left it: egress rows without a chain."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from weighbridge.observability.records import Egress

_SCHEMA = """
CREATE TABLE requests (
    request_id TEXT PRIMARY KEY NOT NULL,
    admitted_ns INTEGER, tenant TEXT, key_id TEXT, model_requested TEXT, stream INTEGER,
    road_decided TEXT, score REAL, task TEXT, policy_version TEXT, calibration_version TEXT, reasons TEXT,
    ended_ns INTEGER, outcome TEXT, status INTEGER, road TEXT, attempts INTEGER,
    prompt_tokens INTEGER, cached_tokens INTEGER, completion_tokens INTEGER, tokens_exact INTEGER,
    queue_ms REAL, ttft_ms REAL, total_ms REAL, error_code TEXT
) WITHOUT ROWID;
CREATE INDEX requests_open ON requests (request_id) WHERE outcome IS NULL;
CREATE TABLE attempts (
    request_id TEXT NOT NULL, n INTEGER NOT NULL,
    road TEXT, started_ns INTEGER, ended_ns INTEGER, outcome TEXT,
    prompt_tokens INTEGER, cached_tokens INTEGER, completion_tokens INTEGER,
    queue_ms REAL, egress_id TEXT,
    PRIMARY KEY (request_id, n)
) WITHOUT ROWID;
CREATE TABLE egress (
    egress_id TEXT PRIMARY KEY NOT NULL, request_id TEXT NOT NULL, attempt INTEGER NOT NULL,
    at_ns INTEGER NOT NULL, endpoint TEXT NOT NULL, reason TEXT NOT NULL,
    body_hash TEXT NOT NULL, body_bytes INTEGER NOT NULL, entities TEXT NOT NULL,
    policy_version TEXT NOT NULL, detector_version TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX egress_by_request ON egress (request_id, attempt);
CREATE TABLE probe (id INTEGER PRIMARY KEY CHECK (id = 1), tried INTEGER NOT NULL);
PRAGMA user_version=1;
"""


def old_ledger(path: Path, sent: Sequence[Egress]) -> None:
    """Make one that holds `sent`; the request of each is still open."""
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("PRAGMA journal_mode=WAL")
        conn.executescript(_SCHEMA)
        for row in sent:
            values = msgspec.structs.asdict(row)
            values["entities"] = msgspec.json.encode(row.entities).decode()
            names = ", ".join(values)
            marks = ", ".join(f":{name}" for name in values)
            conn.execute(f"INSERT INTO egress ({names}) VALUES ({marks})", values)
            conn.execute("INSERT OR IGNORE INTO requests (request_id) VALUES (?)", (row.request_id,))
