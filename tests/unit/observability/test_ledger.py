from __future__ import annotations

import asyncio
import gc
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support import ledger_rows as rows
from weighbridge.config.clock import SystemClock
from weighbridge.observability import ledger_read
from weighbridge.observability.egress_chain import key_id
from weighbridge.observability.ledger import Ledger, LedgerUnavailable


async def test_a_request_becomes_one_row_with_every_value(ledger: Ledger, spool: Path) -> None:
    await ledger.intent(rows.intent())
    row = rows.requests(spool)["r1"]
    assert row["outcome"] is None
    assert row["road_decided"] == "local-8b"
    ledger.progress(rows.progress(completion=64))
    ledger.attempt(rows.attempt(road="local-70b", backend="1", model="a-model", worker_us=750))
    await ledger.intent(rows.intent("after"))
    row = rows.requests(spool)["r1"]
    assert (row["prompt_tokens"], row["completion_tokens"]) == (10, 64)
    await ledger.completion(rows.completion(road="local-70b", ttft_ms=None, tpot_ms=12.5, error_code="x"))
    row = rows.requests(spool)["r1"]
    assert row == {
        "request_id": "r1",
        "admitted_ns": 1_767_225_600_123_456_789,
        "tenant": "acme",
        "key_id": "key-1",
        "model_requested": "auto",
        "stream": True,
        "road_decided": "local-8b",
        "score": 0.1 + 0.2,
        "task": "summarization",
        "policy_version": "default@0123456789ab",
        "calibration_version": "c1",
        "reasons": ["score", "한국어 이유"],
        "p_8b_fails": 0.25,
        "p_70b_fails": None,
        "ended_ns": 1_767_225_601_000_000_000,
        "outcome": "ok",
        "status": 200,
        "road": "local-70b",
        "attempts": 1,
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "completion_tokens": 20,
        "tokens_exact": True,
        "queue_ms": 1.5,
        "ttft_ms": None,
        "total_ms": 900.125,
        "error_code": "x",
        "seq": 1,
        "tpot_ms": 12.5,
        "currency": None,
        "price_version": None,
        "worker_us": 750,
        "cost_nano": None,
        "counterfactual_nano": None,
    }
    assert rows.attempts(spool, "r1") == [
        {
            "request_id": "r1",
            "n": 1,
            "road": "local-70b",
            "started_ns": 10,
            "ended_ns": 20,
            "outcome": "ok",
            "prompt_tokens": 10,
            "cached_tokens": 0,
            "completion_tokens": 20,
            "queue_ms": 1.5,
            "egress_id": "",
            "backend": "1",
            "model": "a-model",
            "worker_us": 750,
            "cost_nano": None,
        }
    ]
    assert rows.attempts(spool, "r2") == []


async def test_an_egress_row_holds_every_value(ledger: Ledger, spool: Path) -> None:
    await ledger.record_egress(rows.egress())
    (row,) = rows.egresses(spool)
    assert len(row.pop("chain")) == 64
    assert [row] == [
        {
            "seq": 1,
            "form": 1,
            "key_id": key_id(rows.CHAIN_KEY),
            "adopted": False,
            "egress_id": "e1",
            "request_id": "r1",
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
    ]


async def test_the_first_row_of_its_kind_wins(ledger: Ledger, spool: Path) -> None:
    await ledger.intent(rows.intent())
    await ledger.intent(rows.intent(tenant="other"))
    ledger.attempt(rows.attempt(outcome="queue_timeout"))
    ledger.attempt(rows.attempt(outcome="ok"))
    await ledger.completion(rows.completion(completion_tokens=20))
    await asyncio.gather(
        ledger.completion(rows.completion(outcome="error", completion_tokens=21)),
        ledger.completion(rows.completion(outcome="error", completion_tokens=22)),
    )
    ledger.progress(rows.progress(completion=999))
    await ledger.intent(rows.intent("r2"))
    row = rows.requests(spool)["r1"]
    assert (row["tenant"], row["outcome"], row["completion_tokens"]) == ("acme", "ok", 20)
    assert [a["outcome"] for a in rows.attempts(spool)] == ["queue_timeout"]


async def test_rows_handed_over_together_share_a_commit_and_a_wake_up(
    ledger: Ledger, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    wake_ups: list[Any] = []
    original = loop.call_soon_threadsafe

    def count(callback: Any, *args: Any, **kwargs: Any) -> asyncio.Handle:
        wake_ups.append(callback)
        return original(callback, *args, **kwargs)

    with rows.held_by_another(spool):
        first = ledger.intent(rows.intent("r0"))
        while ledger._writer._queue.qsize():  # until the thread sits in SQLite with the first row
            await asyncio.sleep(0)
        monkeypatch.setattr(loop, "call_soon_threadsafe", count)
        futures = [ledger.intent(rows.intent(f"r{n}")) for n in range(1, 201)]
    await first
    await asyncio.gather(*futures)
    monkeypatch.undo()
    assert len(wake_ups) == 2  # one for the row that was under way, one for all the others
    assert len(rows.requests(spool)) == 201


async def test_more_rows_than_a_group_keep_their_order(ledger: Ledger, spool: Path) -> None:
    futures = []
    for n in range(700):
        futures.append(ledger.intent(rows.intent(f"r{n:03d}")))
        ledger.progress(rows.progress(f"r{n:03d}", completion=1))
        ledger.progress(rows.progress(f"r{n:03d}", completion=2))
    await asyncio.gather(*futures)
    await ledger.intent(rows.intent("last"))
    assert {row["completion_tokens"] for key, row in rows.requests(spool).items() if key != "last"} == {2}


async def test_egress_is_committed_with_full_sync_and_the_rest_is_not(ledger: Ledger, spool: Path) -> None:
    levels = []
    conn = ledger._writer._conn

    def level() -> int:
        return int(conn.execute("PRAGMA synchronous").fetchone()[0])

    await ledger.intent(rows.intent())
    levels.append(level())
    await ledger.record_egress(rows.egress())
    levels.append(level())
    await ledger.intent(rows.intent("r2"))
    levels.append(level())
    assert levels == [1, 2, 1]  # NORMAL, FULL, NORMAL


async def test_an_egress_id_is_used_once(ledger: Ledger, spool: Path) -> None:
    await ledger.record_egress(rows.egress(body_bytes=1))
    with pytest.raises(LedgerUnavailable):
        await ledger.record_egress(rows.egress(body_bytes=2))
    assert [row["body_bytes"] for row in rows.egresses(spool)] == [1]
    assert ledger.healthy


async def test_an_egress_whose_sender_is_gone_is_not_recorded(ledger: Ledger, spool: Path) -> None:
    with rows.held_by_another(spool):
        blocker = ledger.intent(rows.intent())
        while ledger._writer._queue.qsize():
            await asyncio.sleep(0)
        sender = asyncio.create_task(ledger.record_egress(rows.egress()))
        while not ledger._writer._queue.qsize():
            await asyncio.sleep(0)
        sender.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sender
    await blocker
    await ledger.intent(rows.intent("r2"))
    assert rows.egresses(spool) == []


async def test_close_writes_what_was_handed_over(spool: Path) -> None:
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY)
    futures = [ledger.intent(rows.intent(f"r{n}")) for n in range(1200)]
    await ledger.close()
    assert all(future.done() and future.exception() is None for future in futures)
    assert len(rows.requests(spool)) == 1200
    await ledger.close()


async def test_a_closed_ledger_refuses(spool: Path) -> None:
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY)
    assert ledger.healthy
    await ledger.close()
    assert not ledger.healthy
    with pytest.raises(LedgerUnavailable):
        await ledger.intent(rows.intent())
    with pytest.raises(LedgerUnavailable):
        await ledger.record_egress(rows.egress())
    ledger.progress(rows.progress())
    assert rows.requests(spool) == {}


def test_close_without_a_loop_still_running(spool: Path) -> None:
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY)

    async def hand_over() -> None:
        ledger.intent(rows.intent())

    asyncio.run(hand_over())
    ledger.close_sync()
    ledger.close_sync()
    assert list(rows.requests(spool)) == ["r1"]
    Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY).close_sync()


async def test_closing_gives_up_on_a_disk_that_hangs(spool: Path) -> None:
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY)
    with rows.held_by_another(spool):
        ledger.intent(rows.intent())
        await ledger.close(timeout_s=0.05)
        with pytest.raises(Exception, match="in use"):
            Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY)
    await ledger.close()
    assert list(rows.requests(spool)) == ["r1"]


async def test_failed_futures_nobody_awaits_make_no_noise(spool: Path) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY)
    with rows.broken_disk():
        failed = ledger.intent(rows.intent())
        with pytest.raises(LedgerUnavailable):
            await ledger.completion(rows.completion())
    await ledger.close()
    ledger.completion(rows.completion())
    del failed
    gc.collect()
    await asyncio.sleep(0)
    assert complaints == []


async def test_readers_see_the_file_while_it_is_written_and_cannot_write(ledger: Ledger, spool: Path) -> None:
    await ledger.intent(rows.intent())
    with closing(ledger_read.open_readonly(spool)) as conn:
        assert len(ledger_read.requests(conn)) == 1
        assert ledger_read.requests(conn, "r1")[0]["tenant"] == "acme"
        assert ledger_read.requests(conn, "nobody") == []
        with pytest.raises(sqlite3.OperationalError):
            conn.execute("DELETE FROM requests")


def test_reading_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        ledger_read.open_readonly(tmp_path / "nothing.sqlite3")
    assert list(tmp_path.iterdir()) == []
