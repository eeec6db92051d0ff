"""The thread that owns the ledger's connection and commits rows in groups."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weighbridge.observability import ledger_inbox
from weighbridge.observability.egress_chain import Tip, read_tip, seal
from weighbridge.observability.ledger_backlog import NOTES, Backlog, Key, UsageRow, key_of
from weighbridge.observability.ledger_inbox import Price, Row, Stored
from weighbridge.observability.ledger_retention import Retention
from weighbridge.observability.ledger_schema import PROBE
from weighbridge.observability.ledger_stall import Stall
from weighbridge.observability.pricing import Pricing, admitted_ns
from weighbridge.observability.records import Attempt, Completion, Egress, Intent
from weighbridge.observability.sqlite_file import transaction

if TYPE_CHECKING:
    from weighbridge.observability.metrics import Metrics

log = logging.getLogger("weighbridge.ledger")

Op = tuple[Row, "asyncio.Future[None] | None"]

GROUP = 500
"""Rows one commit takes from the queue at most, and as many again from the backlog."""

CROWD = 4
"""Rows of one commit from which on the next one lets others come first, for `LINGER_S`."""

LINGER_S = 0.002
"""Seconds between two commits while rows come by the crowd. Without them a loop that serves hundreds of requests a
second wakes this thread for every row, and the two fight over the interpreter: that cost more than the writing."""

ROLL_AFTER = 256
"""Requests that have ended, from which on they are added to the sums; when nothing comes in for `IDLE_S` seconds, any
number is. In a commit of its own: no fault in a sum may keep a row off the disk."""

IDLE_S = 1.0

LAST_BUSY_S = 2.0
"""Seconds the last commit before the end waits for another process that holds the file."""


class LedgerUnavailable(Exception):
    """The row is not on disk. A usage row waits in memory for the disk; an egress row is given up."""


class LedgerWriter:
    """Takes rows from any thread, writes them from its own.

    Args:
        conn: an open connection; the writer closes it.
        chain_key: signs the chain over the egress rows.
        pricing: what attempts and answers cost.
        max_pending: rows held at most in the queue, and again in the backlog.
        retry_s: seconds between tries while the disk refuses and nothing new comes in.
        busy_s: seconds a commit waits for another process that holds the file; none while the disk refuses.
        on_fault: told what each commit failed of.
        retention: deletes old records from time to time; None keeps them all.
    """

    def __init__(
        self,
        conn: sqlite3.Connection,
        *,
        chain_key: bytes,
        pricing: Pricing,
        max_pending: int,
        retry_s: float,
        busy_s: float,
        metrics: Metrics | None,
        on_fault: Callable[[Exception], None] | None = None,
        retention: Retention | None = None,
    ) -> None:
        self._conn = conn
        self._chain_key = chain_key
        self._pricing = pricing
        self._tip: Tip | None = None
        self._max_pending = max_pending
        self._retry_s = retry_s
        self._busy_s = busy_s
        self._metrics = metrics
        self._on_fault = on_fault
        self._retention = retention
        self._unrolled = 0
        """Requests that have ended and are not in the sums, about."""
        self._queue: queue.SimpleQueue[Op | None] = queue.SimpleQueue()
        self._backlog = Backlog(max_pending)
        self._closing = False
        self._told_to_stop = False
        self._full_sync = False
        self._busy_set: float | None = None
        self._stall = Stall(metrics)
        self._takes_rows = True
        if metrics is not None:
            metrics.ledger_healthy.set(1)
        self._thread = threading.Thread(target=self._run, name="weighbridge-ledger", daemon=True)
        self._thread.start()

    # ---- called from the event loop ----

    def put(self, row: Row, future: asyncio.Future[None] | None) -> None:
        """Hand a row over. Never blocks. `future` belongs to the calling loop and tells when it is durable."""
        if self._closing:
            self._count_dropped(_is_record(row))
            _settle((), (future,) if future else (), "the ledger is closed")
            return
        if self._queue.qsize() >= self._max_pending:
            self._drop_oldest()
        if future is not None and self._stall.hangs:
            self._refuse(row, future)
        self._queue.put((row, future))

    def give_up(self, row: Row, future: asyncio.Future[None]) -> None:
        """Tell whoever waits for `row` that it has taken too long.

        A usage row stays and is written when the disk answers. An egress row is withdrawn, unless the commit
        under way holds it: then it may yet get to the disk, and records what was never sent.
        """
        self._stall.given_up()
        self._refuse(row, future)

    @property
    def healthy(self) -> bool:
        return self._takes_rows and not self._stall.hangs

    def backlog_size(self) -> int:
        return len(self._backlog)

    def stop(self) -> None:
        """Write what was handed over, then end. Idempotent; `join` waits for it."""
        if not self._closing:
            self._closing = True
            self._queue.put(None)

    def join(self, timeout_s: float) -> bool:
        """True when the thread has ended within `timeout_s`."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _refuse(self, row: Row, future: asyncio.Future[None]) -> None:
        _settle((), (future,), "the ledger's disk hangs")
        if self._metrics is not None and type(row) is not Egress:
            self._metrics.records_at_risk_total.inc()

    def _drop_oldest(self) -> None:
        # Only a disk that hangs, rather than fails, gets here: the thread sits in a call and takes nothing.
        with contextlib.suppress(queue.Empty):
            oldest = self._queue.get_nowait()
            if oldest is not None:
                row, future = oldest
                self._count_dropped(_is_record(row))
                _wake((), (future,) if future else (), "the ledger's queue is full")

    # ---- the thread ----

    def _run(self) -> None:
        while not (
            self._told_to_stop and self._queue.empty() and not (self._takes_rows and len(self._backlog))
        ):
            ops: list[Op] = []
            try:
                self._take(ops)
                self._write(ops)
                self._look_after(idle=not ops)
                if len(ops) >= CROWD and not self._told_to_stop:
                    time.sleep(LINGER_S)
            except Exception as exc:
                # Nothing may end this thread: callers would wait for ever.
                with contextlib.suppress(Exception):
                    self._rescue(ops, exc)
        self._finish()

    def _take(self, ops: list[Op]) -> None:
        """Wait for rows, then take all that are there, up to a group."""
        wait: float | None = None
        if self._told_to_stop or (self._takes_rows and len(self._backlog)):
            wait = 0.0
        elif not self._takes_rows:
            wait = self._retry_s
        else:
            wait = self._until_chores()
        with contextlib.suppress(queue.Empty):
            op = self._queue.get(timeout=wait)
            while True:
                if op is None:
                    self._told_to_stop = True
                else:
                    ops.append(op)
                if len(ops) >= GROUP:
                    return
                op = self._queue.get_nowait()

    def _until_chores(self) -> float | None:
        """Seconds until there is something to do besides writing; None where nothing is."""
        waits = [IDLE_S] if self._unrolled else []
        if self._retention is not None:
            waits.append(self._retention.due_in_s(time.monotonic()))
        return min(waits, default=None)

    def _look_after(self, *, idle: bool) -> None:
        """What is done beside writing, in steps of some milliseconds."""
        if not self._takes_rows or self._told_to_stop:
            return
        now = time.monotonic()
        try:
            if self._retention is not None and self._retention.due_in_s(now) <= 0:
                with self._stall.commit():
                    self._retention.step(self._conn, now)
            elif self._unrolled >= ROLL_AFTER or (idle and self._unrolled):
                self._unrolled = 0
                with self._stall.commit():
                    ledger_inbox.roll(self._conn)
        except Exception as exc:
            # None of the rows' business. What is not added up now is with the next ones, and until then by the views.
            log.warning("the ledger could not look after its records (%s)", type(exc).__name__)

    def _write(self, ops: Sequence[Op]) -> None:
        # While the disk refuses, new rows are tried by themselves: cheap to fail, and they find out when it is back.
        backlog = self._backlog.first(GROUP) if self._takes_rows or not ops else {}
        rows, egress = self._merge(ops, backlog)
        if not rows and not egress and self._takes_rows:
            return
        try:
            with self._stall.commit():
                refused = self._store([*rows.values(), *egress], full_sync=bool(egress))
            self._unrolled += sum(type(row) is Completion for row in rows.values())
        except Exception as exc:
            if self._on_fault is not None:
                self._on_fault(exc)
            self._keep(rows, exc, counted=_given_up(ops))
            _wake((), [future for _, future in ops if future], "the ledger's disk does not take rows")
            return
        self._backlog.discard(rows)
        self._mark_healthy()
        self._count_dropped(sum(map(_is_record, refused)))
        bad = set(map(id, refused))
        good = [f for row, f in ops if f and id(row) not in bad] if bad else [f for _, f in ops if f]
        _wake(good, [f for row, f in ops if f and id(row) in bad], "the ledger cannot hold this row")

    def _merge(
        self, ops: Sequence[Op], backlog: dict[Key, UsageRow]
    ) -> tuple[dict[Key, UsageRow], list[Egress]]:
        rows, egress = backlog, []
        waiting = len(self._backlog) > 0
        for row, future in ops:
            if isinstance(row, Egress):
                if future is None or future.done():
                    continue  # whoever wanted to send is gone or was told not to, and nothing left
                egress.append(row)
                key: Key = (Intent, row.request_id, 0)
                intent = self._backlog.get(key)
                if intent is not None:  # no egress row on disk without its request
                    rows[key] = intent
                continue
            key = key_of(row)
            if type(row) in NOTES:
                rows[key] = row
            elif key not in rows:
                rows[key] = (self._backlog.get(key) or row) if waiting else row
        return rows, egress

    def _store(self, rows: Sequence[Row], *, full_sync: bool) -> list[Row]:
        """Commit `rows` in one transaction.

        Returns the rows that no table can hold; they must not keep the others off the disk.

        Raises:
            sqlite3.Error: the disk refused; nothing was written.
        """
        self._synchronise(full=full_sync)
        self._set_busy_timeout()
        if not self._takes_rows:
            self._conn.execute(PROBE)
        # Unknown until the commit has worked: after any doubt the file itself says where the chain ends.
        tip, self._tip = self._tip, None
        try:
            self._tip = self._put(rows, tip)
            return []
        except Exception as exc:
            if _disk(exc):
                raise
        refused: list[Row] = []
        tip = None
        with transaction(self._conn):
            for row in rows:
                try:
                    tip = self._put((row,), tip)
                except Exception as exc:
                    if _disk(exc):
                        raise
                    log.error("the ledger cannot hold a %s row: %s", type(row).__name__, type(exc).__name__)
                    refused.append(row)
        self._tip = tip
        return refused

    def _put(self, rows: Sequence[Row], tip: Tip | None) -> Tip | None:
        """Write `rows`, the egress rows tied to the chain that ends in `tip`; returns where it ends then."""
        stored: list[tuple[Stored, Price]] = []
        for row in rows:
            if isinstance(row, Egress):
                chained, tip = seal(row, tip or read_tip(self._conn), self._chain_key)
                stored.append((chained, None))
            elif type(row) is Attempt:
                stored.append((row, self._pricing.attempt(row)))
            elif type(row) is Completion:
                stored.append((row, self._pricing.completion(row, admitted_ns(row))))
            else:
                stored.append((row, None))
        ledger_inbox.put(self._conn, stored)
        return tip

    def _synchronise(self, *, full: bool) -> None:
        """What leaves must be on the disk itself; the rest need only survive this process."""
        if full != self._full_sync:
            self._conn.execute(f"PRAGMA synchronous={'FULL' if full else 'NORMAL'}")
            self._full_sync = full

    def _set_busy_timeout(self) -> None:
        """How long to wait for a lock: once it has cost time, no row waits for it again until it is gone."""
        seconds = LAST_BUSY_S if self._told_to_stop else self._busy_s if self._takes_rows else 0.0
        if seconds != self._busy_set:
            self._conn.execute(f"PRAGMA busy_timeout={round(seconds * 1000)}")
            self._busy_set = seconds

    def _keep(self, rows: dict[Key, UsageRow], exc: Exception, *, counted: int = 0) -> None:
        """Rows the disk refused go to the backlog; `counted` of them are known to be at risk already."""
        if self._takes_rows:
            log.error("the ledger cannot write (%s); rows wait in memory", type(exc).__name__)
        self._takes_rows = False
        at_risk, dropped = self._backlog.add(rows)
        self._count_dropped(dropped)
        if self._metrics is not None:
            self._metrics.ledger_healthy.set(0)
            self._metrics.records_at_risk_total.inc(max(0, at_risk - counted))

    def _rescue(self, ops: Sequence[Op], exc: Exception) -> None:
        """A fault in this file rather than in the disk: keep the rows, tell the callers, go on."""
        log.error("the ledger writer met an unexpected %s and goes on", type(exc).__name__)
        _wake((), [future for _, future in ops if future], "the ledger met a fault")
        self._keep({key_of(row): row for row, _ in ops if not isinstance(row, Egress)}, exc)

    def _mark_healthy(self) -> None:
        if not self._takes_rows:
            self._takes_rows = True
            log.warning("the ledger writes again; %d rows wait in memory", len(self._backlog))
        if self._metrics is not None:
            self._metrics.ledger_healthy.set(1)

    def _count_dropped(self, count: int) -> None:
        if count and self._metrics is not None:
            self._metrics.records_dropped_total.inc(count)

    def _finish(self) -> None:
        left = self._backlog.records
        if left:
            log.error("the ledger closes with %d rows that never reached the disk", left)
            self._count_dropped(left)
        self._takes_rows = False
        with contextlib.suppress(sqlite3.Error):
            self._conn.close()


def _is_record(row: Row) -> bool:
    """Whether a usage record is lost with `row`."""
    return type(row) is not Egress and type(row) not in NOTES


def _disk(exc: Exception) -> bool:
    """Whether SQLite could not write at all, as against one row being no good."""
    return isinstance(exc, sqlite3.OperationalError) or type(exc) is sqlite3.DatabaseError


def _given_up(ops: Sequence[Op]) -> int:
    """How many usage rows of a group nobody waits for any more because it took too long."""
    return sum(
        f is not None and f.done() and not f.cancelled() for row, f in ops if not isinstance(row, Egress)
    )


Futures = Sequence["asyncio.Future[None]"]


def _wake(good: Futures, bad: Futures, why: str) -> None:
    """Settle futures from the thread, with one wake-up a loop."""
    loops: dict[Any, tuple[list[asyncio.Future[None]], list[asyncio.Future[None]]]] = {}
    for index, futures in enumerate((good, bad)):
        for future in futures:
            loop = future.get_loop()
            if loop not in loops:
                loops[loop] = ([], [])
            loops[loop][index].append(future)
    for loop, (done, failed) in loops.items():
        with contextlib.suppress(RuntimeError):  # that loop is closed, nobody waits there any more
            loop.call_soon_threadsafe(_settle, done, failed, why)


def _settle(good: Futures, bad: Futures, why: str) -> None:
    for future in good:
        if not future.done():
            future.set_result(None)
    for future in bad:
        if not future.done():
            future.set_exception(LedgerUnavailable(why))
            future.exception()  # marks it as seen: not every caller waits for every row
