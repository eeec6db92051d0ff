"""The usage ledger: exactly one record for every admitted request, in a SQLite spool that survives kill -9."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from weighbridge.config.clock import Clock
from weighbridge.observability.egress_chain import ChainBroken, read_tip
from weighbridge.observability.ledger_inbox import Row, prepare
from weighbridge.observability.ledger_limit import WaitLimit
from weighbridge.observability.ledger_repair import is_damage, repair, set_aside, suspect
from weighbridge.observability.ledger_retention import Retention
from weighbridge.observability.ledger_schema import migrations, recover
from weighbridge.observability.ledger_writer import LedgerUnavailable, LedgerWriter
from weighbridge.observability.pricing import Pricer, Pricing
from weighbridge.observability.records import Attempt, Capacity, Completion, Egress, Intent, Progress, Shipped
from weighbridge.observability.spool_lock import SpoolBusy, SpoolLock
from weighbridge.observability.sqlite_file import DatabaseUnusable, open_database, transaction

if TYPE_CHECKING:
    from weighbridge.observability.metrics import Metrics

__all__ = ["DatabaseUnusable", "Ledger", "LedgerUnavailable", "SpoolBusy"]

log = logging.getLogger("weighbridge.ledger")


class Ledger:
    """The spool, held open by one gateway.

    Rows are written in the order they were handed over, many in one commit, by one thread. A future resolves when
    its row survives the death of this process; it fails with LedgerUnavailable when the disk does not take the
    row, or says nothing for too long. A usage row that failed so is kept and written later; whoever serves locally
    goes on. From then on rows are refused without a wait until a commit works. Futures belong to the running loop;
    one that nobody waits for makes no noise.
    """

    def __init__(
        self,
        lock: SpoolLock,
        writer: LedgerWriter,
        recovered: int,
        hang_s: float,
        aside: Sequence[Path] = (),
    ) -> None:
        self._lock = lock
        self._writer = writer
        self._limit = WaitLimit(hang_s, writer.give_up)
        self._aside = aside
        self.recovered = recovered
        """Requests the last gateway left open; they are `lost` now."""

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        clock: Clock,
        chain_key: bytes,
        pricer: Pricer | None = None,
        max_pending: int = 100_000,
        retry_s: float = 0.5,
        busy_s: float = 0.25,
        hang_s: float = 5.0,
        retention_days: float | None = None,
        keep_unshipped: bool = False,
        metrics: Metrics | None = None,
    ) -> Ledger:
        """Open the spool at `path`, create it if need be, and close what a dead gateway left open as `lost`.

        A damaged one is moved aside, and what can be read of it is in the one that is opened: see `ledger_repair`.

        Args:
            chain_key: signs the chain over the egress rows; see `egress_chain`.
            pricer: gives attempts and answers their prices, in the ledger's thread; None leaves them unpriced.
            max_pending: rows kept in memory at most while the disk refuses them; then the oldest are dropped.
            retry_s: seconds between tries to write again while nothing new comes in.
            busy_s: seconds a commit of a healthy ledger waits for another process that holds the file.
            hang_s: seconds a future may stay open; then the disk is taken to hang.
            retention_days: requests that ended so long ago are deleted, all but what the egress record and the sums
                hold of them; None keeps all.
            keep_unshipped: but not before they have been shipped.
            metrics: counts rows at risk, dropped and unpriced, and the requests recovered as `lost`.

        Raises:
            SpoolBusy: another gateway has it open, or another program holds the file.
            DatabaseUnusable: it cannot be opened, is not a ledger, or is newer than this program.
        """
        lock = SpoolLock.take(path)
        pricing = Pricing(pricer, metrics)
        try:
            repair(path, migrations(chain_key), clock.wall_ns())
            try:
                conn, recovered = _open(path, chain_key, clock, pricing)
            except DatabaseUnusable as exc:
                if exc.__cause__ is None or not is_damage(exc.__cause__):
                    raise
                suspect(path, exc.__cause__)
                repair(path, migrations(chain_key), clock.wall_ns())
                conn, recovered = _open(path, chain_key, clock, pricing)
        except BaseException as exc:
            lock.release()
            if _is_held(exc.__cause__):
                raise SpoolBusy(f"{path}: another program holds the usage ledger") from None
            raise
        total = sum(recovered.values())
        if total:
            log.warning("%d requests were left open by the last gateway and are recorded as lost", total)
        if metrics is not None:
            metrics.requests_lost(recovered)
        retention = None
        if retention_days is not None:
            retention = Retention(retention_days, clock.wall_ns, keep_unshipped=keep_unshipped)
        writer = LedgerWriter(
            conn,
            chain_key=chain_key,
            pricing=pricing,
            max_pending=max_pending,
            retry_s=retry_s,
            busy_s=busy_s,
            metrics=metrics,
            on_fault=partial(suspect, path),
            retention=retention,
        )
        return cls(lock, writer, total, hang_s, set_aside(path))

    def intent(self, row: Intent) -> asyncio.Future[None]:
        """Record that a request was admitted and decided. The first intent of a request counts."""
        return self._hand_over(row)

    def progress(self, row: Progress) -> None:
        """Note how far an answer has come, for the case that this process dies. Nobody waits for it."""
        self._writer.put(row, None)

    def attempt(self, row: Attempt) -> None:
        """Record one backend tried. The first row of a request and number counts. Nobody waits for it: it is written
        before the completion that comes after it."""
        self._writer.put(row, None)

    def capacity(self, row: Capacity) -> None:
        """Note for how long a worker has been up. The last row of a period counts. Nobody waits for it."""
        self._writer.put(row, None)

    def completion(self, row: Completion) -> asyncio.Future[None]:
        """Record how a request ended. The first completion of a request counts."""
        return self._hand_over(row)

    def shipped(self, row: Shipped) -> None:
        """Note how far the collector has everything. From any thread; nobody waits for it, and the last one counts."""
        self._writer.put(row, None)

    async def record_egress(self, row: Egress) -> None:
        """Put an outward request on the disk itself (fsync) before it is made.

        Raises:
            LedgerUnavailable: send nothing. The row is not there and never will be, with one exception: when the
                disk hung in the very commit, the row may appear once it answers, for a request that was not sent.
        """
        await self._hand_over(row)

    @property
    def healthy(self) -> bool:
        """False from a failed commit to the next one that works, while a commit hangs, and once closed."""
        return self._writer.healthy

    @property
    def damaged(self) -> list[str]:
        """Names of the damaged spools beside this one that nobody has moved away yet."""
        return [path.name for path in self._aside if path.exists()]

    @property
    def backlog(self) -> int:
        """Rows in memory that the disk has refused so far."""
        return self._writer.backlog_size()

    async def close(self, timeout_s: float = 30.0) -> None:
        """Write what was handed over, close the file, let others have it. Idempotent.

        Rows handed over later are refused. After `timeout_s` seconds with a disk that hangs it gives up waiting.
        """
        self._writer.stop()
        self._closed(await asyncio.to_thread(self._writer.join, timeout_s))

    def close_sync(self, timeout_s: float = 30.0) -> None:
        """`close` for where no loop runs."""
        self._writer.stop()
        self._closed(self._writer.join(timeout_s))

    def _closed(self, ended: bool) -> None:
        if ended:
            self._lock.release()
        else:
            log.error("the ledger's disk hangs; closing without it")

    def _hand_over(self, row: Row) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writer.put(row, future)
        if not future.done():
            self._limit.watch(row, future)
        return future


def _open(
    path: Path, chain_key: bytes, clock: Clock, pricing: Pricing
) -> tuple[sqlite3.Connection, Counter[str]]:
    conn = open_database(path, migrations(chain_key), synchronous="NORMAL")
    try:
        with transaction(conn):
            recovered = recover(conn, clock.wall_ns(), pricing)
        prepare(conn)
        _tell_head(conn)
    except sqlite3.Error as exc:
        conn.close()
        raise DatabaseUnusable(f"{path}: cannot be written ({exc})") from exc
    return conn, recovered


def _is_held(exc: BaseException | None) -> bool:
    code = getattr(exc, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _tell_head(conn: sqlite3.Connection) -> None:
    """The head goes to the log, which is kept elsewhere: against it a chain that was cut short can be told."""
    try:
        tip = read_tip(conn)
    except ChainBroken:
        log.error(
            "the last egress row is damaged: nothing can leave until the record is repaired or moved away"
        )
        return
    if tip.seq:
        log.info("egress record: %d rows, head %s", tip.seq, tip.link.hex())
