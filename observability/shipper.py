"""The thread that ships usage records to the collector: at least once, in order, and never in anybody's way.

It reads the spool by a connection of its own, a batch at a time, so that its memory does not grow with the backlog. How
far it has come is written by the ledger's own thread, together with whatever that writes next: two writers of one
file would wait for each other's locks, and a request with them. That word may come late or get lost, since all it says
is from where to send again after a restart. Records are only passed over once the collector has said that it has them.
"""

from __future__ import annotations

import contextlib
import logging
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weighbridge.config.clock import Clock
from weighbridge.config.settings import CollectorSettings
from weighbridge.observability import ledger_repair, otlp_metrics, otlp_records, shipping_read
from weighbridge.observability.logs import describe
from weighbridge.observability.metrics import Metrics
from weighbridge.observability.otlp_answer import LOGS, METRICS, Refused, TryLater, judge
from weighbridge.observability.otlp_post import Poster, PostLost
from weighbridge.observability.records import Rejected, Shipped
from weighbridge.observability.shipping_read import EGRESS, REQUESTS, STREAMS, Record, Waiting

if TYPE_CHECKING:
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

log = logging.getLogger("weighbridge.shipper")

BACKOFF_S: Final = 60.0
"""The most seconds between two tries that the collector has not asked for."""
_FIRST_BACKOFF_S: Final = 1.0
_TELL_AGAIN_S: Final = 600.0
_LOOK_S: Final = 5.0
"""Seconds between two counts of the backlog while it is being sent."""
_BREATH: Final = 8
"""Records put into words without letting the event loop have the interpreter, about a millisecond's worth."""
_MOST_UNSAID: Final = 1000
"""Rejections that the disk has not taken yet; with more of them shipping waits for the disk."""

_OTHERS: Final = 8
"""Records that are tried before a collector is taken to refuse them all."""

Held = Sequence[tuple[Record, "LogRecord"]]


@dataclass(frozen=True, slots=True)
class Standing:
    """How shipping stands.

    Args:
        records: records that wait, of both streams.
        oldest_s: age of the oldest of them in seconds; 0 without any.
        late: older than `collector.degraded_after_s`, or nobody ships any more.
        trouble: why the last try failed, a word of `SHIP_FAILURES`; None when it did not.
    """

    records: int
    oldest_s: float
    late: bool
    trouble: str | None


class Shipper:
    """Ships the spool at `spool` until it is stopped.

    Args:
        poster: reaches the collector.
        hand_over: takes the word of how far everything has arrived; `Ledger.shipped`.
        started_ns: since when the metrics count, UTC nanoseconds.
        jitter: gives numbers from 0 to 1.
    """

    def __init__(
        self,
        spool: Path,
        settings: CollectorSettings,
        *,
        poster: Poster,
        hand_over: Callable[[Shipped], None],
        metrics: Metrics,
        clock: Clock,
        version: str,
        started_ns: int,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._spool = spool
        self._settings = settings
        self._poster = poster
        self._hand_over = hand_over
        self._metrics = metrics
        self._clock = clock
        self._version = version
        self._started_ns = started_ns
        self._jitter = jitter
        self._stop = threading.Event()
        self._last_round = threading.Event()
        self._due: float | None = None
        self._conn: sqlite3.Connection | None = None
        self._source: otlp_records.Source | None = None
        self._at: dict[str, int] = {}
        self._unsaid: dict[tuple[str, str, int], Rejected] = {}
        self._size = settings.batch_size
        self._beside: Held = ()
        self._good: LogRecord | None = None
        self._failures = 0
        self._trouble: str | None = None
        self._told_at = 0.0
        self._metrics_due = 0.0
        self._waiting = dict.fromkeys(STREAMS, Waiting(0, None))
        self._looked_at = 0.0
        for stream in STREAMS:
            metrics.ship_oldest_seconds.labels(stream).follow(partial(self._age, stream))
        self._thread = threading.Thread(target=self._run, name="weighbridge-shipper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, limit_s: float = 5.0) -> None:
        """Try once more, for at most `limit_s` seconds, and end. What is left waits for the next start. Idempotent."""
        if self._due is None:
            self._due = time.monotonic() + limit_s
        self._stop.set()
        if not self._thread.is_alive():
            return
        if not self._last_round.wait(limit_s / 2):
            self._poster.cut()  # a request that hangs must not cost the last try
        self._thread.join(max(0.0, self._due - time.monotonic()))
        if self._thread.is_alive():
            self._poster.cut()
            self._thread.join(1.0)

    def standing(self) -> Standing:
        """How shipping stands now. From any thread; asks nobody."""
        oldest_s = max(self._age(stream) for stream in STREAMS)
        dead = self._thread.ident is not None and not self._thread.is_alive() and not self._stop.is_set()
        return Standing(
            sum(waiting.records for waiting in self._waiting.values()),
            oldest_s,
            dead or oldest_s > self._settings.degraded_after_s,
            self._trouble,
        )

    def _age(self, stream: str) -> float:
        oldest_ns = self._waiting[stream].oldest_ns
        return 0.0 if oldest_ns is None else max(0.0, (self._clock.wall_ns() - oldest_ns) / 1e9)

    # ---- the thread ----

    def _run(self) -> None:
        last = False
        while not last:
            last = self._stop.is_set()
            if last:
                self._last_round.set()
            wait_s = self._settings.interval_s
            try:
                self._round()
            except TryLater as exc:
                wait_s = self._failed(exc.reason, exc.after_s)
            except sqlite3.Error as exc:
                # Whoever can repair the spool looks at it at the next start.
                ledger_repair.suspect(self._spool, exc)
                self._forget_spool()
                wait_s = self._failed("spool")
            except Exception as exc:
                # Nothing may end this thread: nothing would be shipped any more.
                log.error("the shipper met a fault and goes on: %s", describe(exc))
                self._forget_spool()
                wait_s = self._failed("other")
            if not last:
                self._stop.wait(wait_s)
        self._forget_spool()

    def _round(self) -> None:
        """Ship all there is, then the metrics when it is their time.

        Raises:
            TryLater, sqlite3.Error: the rest has to wait.
        """
        conn = self._open()
        self._say_again(conn)
        for stream in STREAMS:
            self._look(conn, stream)
        for stream in STREAMS:
            while records := shipping_read.batch(conn, stream, self._at[stream], self._size):
                self._deliver(stream, records)
                if time.monotonic() - self._looked_at >= _LOOK_S:
                    self._look(conn, stream)
            self._look(conn, stream)
        self._well()
        self._export_metrics()

    def _open(self) -> sqlite3.Connection:
        if self._conn is None:
            self._conn = shipping_read.open_spool(self._spool)
        if self._source is None:
            self._source = otlp_records.Source(shipping_read.spool_name(self._conn), self._version)
            self._at = shipping_read.cursors(self._conn)
        return self._conn

    def _forget_spool(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(sqlite3.Error):
                conn.close()

    def _look(self, conn: sqlite3.Connection, stream: str) -> None:
        waiting = shipping_read.waiting(conn, stream, self._at[stream])
        self._waiting[stream] = waiting
        self._metrics.ship_backlog_records.labels(stream).set(waiting.records)
        self._looked_at = time.monotonic()

    def _deliver(self, stream: str, records: Sequence[Record]) -> None:
        parts: list[list[tuple[Record, LogRecord]]] = [[]]
        unspeakable: list[Record] = []
        for number, record in enumerate(records):
            try:
                parts[-1].append((record, otlp_records.log_record(stream, record)))
            except otlp_records.Unspeakable:
                unspeakable.append(record)
                parts.append([])
            if number % _BREATH == 0:
                time.sleep(0)
        self._beside, self._good = [one for part in parts for one in part], None
        # In order: what stands before a record that is passed over has to arrive first.
        for part, then in zip_longest(parts, unspeakable):
            self._send(stream, part)
            if then is not None:
                self._pass(stream, then.seq, [self._rejection(stream, then, "unspeakable")])
        self._beside, self._good = (), None

    def _send(self, stream: str, held: Held) -> None:
        """Ship records of one stream, in order; those that the collector will not take are found and passed over."""
        if not held:
            return
        reason = "rejected"
        try:
            rejected = self._post(LOGS, self._words(record for _, record in held), len(held))
        except Refused as exc:
            if len(held) == 1:
                self._require_that_it_takes_others(held[0][0])
            rejected, reason = len(held), "too_large" if exc.status == 413 else "refused"
            all_of_them = len(held) == 1
        else:
            all_of_them = rejected == len(held)
        if not rejected:
            self._good = held[-1][1]
            self._metrics.shipped_total.labels(stream).inc(len(held))
            self._pass(stream, held[-1][0].seq, [])
        elif all_of_them:
            self._pass(
                stream, held[-1][0].seq, [self._rejection(stream, record, reason) for record, _ in held]
            )
        else:
            # It does not say which, and it may have some of them already: they are told by their id.
            middle = len(held) // 2
            self._send(stream, held[:middle])
            self._send(stream, held[middle:])

    def _require_that_it_takes_others(self, refused: Record) -> None:
        """Have the collector take another record now, so that it is known to have something against this one.

        One that refuses whatever it is sent is not set up right, and everything waits for it.

        Raises:
            TryLater: it takes none of those at hand, or there are none.
        """
        behind = [record for one, record in self._beside if one.seq > refused.seq]
        for record in [self._good] if self._good is not None else behind[:_OTHERS]:
            with contextlib.suppress(Refused):
                if self._post(LOGS, self._words((record,)), 1) == 0:
                    return
        raise TryLater("refused")

    def _pass(self, stream: str, seq: int, rejections: Sequence[Rejected]) -> None:
        self._at[stream] = seq
        for rejection in rejections:
            self._unsaid[(rejection.stream, rejection.id, rejection.seq)] = rejection
        if rejections:
            self._metrics.ship_rejected_total.labels(stream).inc(len(rejections))
            log.error(
                "%d %s records will never arrive (%s), the first is %s; `weighbridge usage verify` lists them",
                len(rejections),
                stream,
                rejections[0].reason,
                rejections[0].id,
            )
        self._say()
        if len(self._unsaid) > _MOST_UNSAID and self._conn is not None:
            self._say_again(self._conn)

    def _say(self) -> None:
        self._hand_over(Shipped(self._at[REQUESTS], self._at[EGRESS], tuple(self._unsaid.values())))

    def _say_again(self, conn: sqlite3.Connection) -> None:
        """Rejections are said until the disk has them.

        Raises:
            TryLater: it has not, and there are too many of them.
        """
        self._unsaid = {
            key: held for key, held in self._unsaid.items() if shipping_read.why_rejected(conn, *key) is None
        }
        if self._unsaid:
            self._say()
        if len(self._unsaid) > _MOST_UNSAID:
            raise TryLater("spool")

    def _rejection(self, stream: str, record: Record, reason: str) -> Rejected:
        return Rejected(stream, record.id, record.seq, self._clock.wall_ns(), reason)

    def _words(self, records: Iterable[LogRecord]) -> bytes:
        assert self._source is not None
        return otlp_records.encode(self._source, records)

    def _export_metrics(self) -> None:
        interval_s = self._settings.metrics_interval_s
        if interval_s is None or (time.monotonic() < self._metrics_due and not self._stop.is_set()):
            return
        self._metrics_due = time.monotonic() + interval_s
        assert self._source is not None
        try:
            body = otlp_metrics.encode(self._source, self._metrics, self._started_ns, self._clock.wall_ns())
        except Exception as exc:
            # Some gauges look at what the event loop changes meanwhile. Records have arrived all the same.
            log.warning("the metrics could not be read for an export: %s", describe(exc))
            self._count("metrics")
            return
        try:
            # What is not taken now is in the next export: the counters go on counting.
            self._post(METRICS, body, 2**63)
        except TryLater as exc:
            self._count(exc.reason)
        except Refused:
            self._count("refused")

    def _post(self, path: str, body: bytes, sent: int) -> int:
        """Raises: TryLater, Refused."""
        limit_s = self._settings.timeout_s
        if self._due is not None:
            limit_s = min(limit_s, self._due - time.monotonic())
            if limit_s <= 0:
                raise TryLater("timeout")
        try:
            answer = self._poster.post(path, body, limit_s)
        except PostLost as exc:
            if exc.fault == "timeout" and path == LOGS:
                # Less may be done in time.
                self._size = max(1, self._size // 2)
            raise TryLater(exc.fault) from None
        rejected = judge(path, answer, sent, self._clock.wall_ns() / 1e9)
        if path == LOGS:
            self._size = min(self._settings.batch_size, self._size * 2)
            self._well()
        return rejected

    def _well(self) -> None:
        if self._failures:
            log.warning("records are shipped again")
        self._failures, self._trouble = 0, None

    def _count(self, reason: str) -> None:
        self._metrics.ship_failures_total.labels(reason).inc()

    def _failed(self, reason: str, after_s: float = 0.0) -> float:
        """Note a failure; seconds to wait before the next try."""
        self._count(reason)
        now = time.monotonic()
        if self._trouble != reason or now - self._told_at >= _TELL_AGAIN_S:
            self._told_at = now
            log.warning("records cannot be shipped (%s); they wait in the spool", reason)
        self._trouble = reason
        self._failures += 1
        first = min(_FIRST_BACKOFF_S, self._settings.interval_s)
        most = min(BACKOFF_S, first * 2.0 ** min(self._failures - 1, 20))
        return max(after_s, most * (0.5 + self._jitter() / 2))
