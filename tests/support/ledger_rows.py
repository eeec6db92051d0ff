"""Ledger rows with plausible values, and a disk that can be broken."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from weighbridge.observability import ledger_read
from weighbridge.observability.records import Attempt, Completion, Egress, Intent, Progress

CHAIN_KEY = bytes(range(32))


def intent(request_id: str = "r1", **changes: Any) -> Intent:
    values: dict[str, Any] = {
        "request_id": request_id,
        "admitted_ns": 1_767_225_600_123_456_789,
        "tenant": "acme",
        "key_id": "key-1",
        "model_requested": "auto",
        "stream": True,
        "road": "local-8b",
        "score": 0.1 + 0.2,
        "task": "summarization",
        "policy_version": "default@0123456789ab",
        "calibration_version": "c1",
        "reasons": ("score", "한국어 이유"),
        "p_8b_fails": 0.25,
    }
    return Intent(**{**values, **changes})


def progress(request_id: str = "r1", prompt: int = 10, completion: int = 64) -> Progress:
    return Progress(request_id, prompt, completion)


def attempt(request_id: str = "r1", n: int = 1, **changes: Any) -> Attempt:
    values: dict[str, Any] = {
        "request_id": request_id,
        "n": n,
        "road": "local-8b",
        "started_ns": 10,
        "ended_ns": 20,
        "outcome": "ok",
        "prompt_tokens": 10,
        "completion_tokens": 20,
        "queue_ms": 1.5,
    }
    return Attempt(**{**values, **changes})


def completion(request_id: str = "r1", **changes: Any) -> Completion:
    values: dict[str, Any] = {
        "request_id": request_id,
        "ended_ns": 1_767_225_601_000_000_000,
        "outcome": "ok",
        "status": 200,
        "road": "local-8b",
        "attempts": 1,
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "completion_tokens": 20,
        "tokens_exact": True,
        "queue_ms": 1.5,
        "ttft_ms": 40.25,
        "total_ms": 900.125,
    }
    return Completion(**{**values, **changes})


def egress(egress_id: str = "e1", request_id: str = "r1", **changes: Any) -> Egress:
    values: dict[str, Any] = {
        "egress_id": egress_id,
        "request_id": request_id,
        "attempt": 1,
        "at_ns": 5,
        "endpoint": "http://provider.test/v1",
        "reason": "score",
        "body_hash": "ab" * 32,
        "body_bytes": 512,
        "entities": {"PERSON": 2},
        "policy_version": "default@0123456789ab",
        "detector_version": "d1",
    }
    return Egress(**{**values, **changes})


@contextmanager
def broken_disk() -> Iterator[None]:
    """No file of this process takes a byte meanwhile; SQLite sees an I/O error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def held_by_another(spool: Path) -> Iterator[None]:
    """Somebody else's write transaction: the ledger's thread waits in SQLite until it ends."""
    with closing(sqlite3.connect(spool, isolation_level=None)) as conn:
        conn.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            conn.execute("ROLLBACK")


def requests(spool: Path) -> dict[str, dict[str, Any]]:
    with closing(ledger_read.open_readonly(spool)) as conn:
        return {row["request_id"]: row for row in ledger_read.requests(conn)}


def attempts(spool: Path, request_id: str | None = None) -> list[dict[str, Any]]:
    with closing(ledger_read.open_readonly(spool)) as conn:
        return ledger_read.attempts(conn, request_id)


def egresses(spool: Path) -> list[dict[str, Any]]:
    with closing(ledger_read.open_readonly(spool)) as conn:
        return ledger_read.egress(conn)
