"""Shipping records to a collector that does what collectors do when they are not well."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support import ledger_rows as rows
from tests.support.otlp_receiver import OK, Mode, Receiver, id_of, receiving
from tests.support.ports import free_port
from tests.support.shipping import make_shipper, shipping
from weighbridge.config.clock import SystemClock
from weighbridge.observability import shipper as shipper_module
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.ledger_retention import prune
from weighbridge.observability.metrics import SHIP_FAILURES, Metrics
from weighbridge.observability.records import Shipped


@pytest.fixture
def collector() -> Any:
    with receiving() as receiver:
        yield receiver


async def arrives(receiver: Receiver, true: Callable[[], bool], within_s: float = 20) -> None:
    await asyncio.to_thread(receiver.wait, true, within_s)


def has(receiver: Receiver, ids: list[str]) -> Callable[[], bool]:
    return lambda: set(receiver.latest()) >= set(ids)


def failures(metrics: Metrics) -> dict[str, float]:
    counted = {reason: metrics.ship_failures_total.labels(reason).value for reason in SHIP_FAILURES}
    return {reason: count for reason, count in counted.items() if count}


async def test_each_record_arrives_once_and_the_spool_knows(spool: Path, collector: Receiver) -> None:
    async with shipping(spool, collector.url) as here:
        ids = await here.fill(120)
        await here.ledger.record_egress(rows.egress("e1", ids[0]))
        await arrives(
            collector, lambda: has(collector, ids)() and "e1" in collector.latest("weighbridge.egress")
        )
    assert set(collector.uids().values()) == {1}
    assert len(collector.uids()) == 120
    assert here.on_disk() == {"requests": 120, "egress": 1}
    assert here.metrics.shipped_total.labels("requests").value == 120
    assert here.metrics.shipped_total.labels("egress").value == 1
    assert failures(here.metrics) == {}
    # Whoever starts again sends nothing again.
    async with shipping(spool, collector.url) as again:
        more = await again.fill(1, "next")
        await arrives(collector, has(collector, more))
    assert set(collector.uids().values()) == {1}


async def test_a_request_under_way_is_not_shipped(spool: Path, collector: Receiver) -> None:
    async with shipping(spool, collector.url) as here:
        await here.ledger.intent(rows.intent("open"))
        done = await here.fill(3)
        await arrives(collector, has(collector, done))
        assert set(collector.latest()) == set(done)
        await here.ledger.completion(rows.completion("open"))
        await arrives(collector, has(collector, ["open"]))


async def test_a_part_that_comes_late_is_a_new_revision(spool: Path, collector: Receiver) -> None:
    async with shipping(spool, collector.url) as here:
        await here.ledger.completion(rows.completion("r1"))
        await arrives(collector, has(collector, ["r1"]))
        first = collector.latest()["r1"]
        here.ledger.attempt(rows.attempt("r1"))
        await arrives(collector, lambda: "weighbridge.attempts" in collector.latest()["r1"])
    second = collector.latest()["r1"]
    assert second["weighbridge.record.revision"] > first["weighbridge.record.revision"]
    assert set(collector.uids().values()) == {1}


async def test_a_collector_that_is_down_costs_nothing_but_time(spool: Path) -> None:
    port = free_port()
    async with shipping(spool, f"http://127.0.0.1:{port}") as here:
        ids = await here.fill(130)
        await asyncio.to_thread(_until, lambda: failures(here.metrics).get("connect", 0) >= 2)
        standing = here.shipper.standing()
        assert (standing.records, standing.trouble) == (130, "connect")
        assert here.metrics.ship_backlog_records.labels("requests").value == 130
        with receiving(port) as collector:
            await arrives(collector, has(collector, ids))
            await asyncio.to_thread(_until, lambda: here.shipper.standing().trouble is None)
        assert here.shipper.standing().records == 0
        assert here.metrics.ship_backlog_records.labels("requests").value == 0
    assert set(collector.uids().values()) == {1}
    assert here.metrics.records_dropped_total.value == 0


def _until(true: Callable[[], bool], within_s: float = 20) -> None:
    due = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < due
        time.sleep(0.01)


HTML = b"<html>please log in</html>"
TROUBLES = {
    "503": (Mode(status=503), "throttled"),
    "503 that kept them": (Mode(status=503, keeps=True), "throttled"),
    "429": (Mode(status=429, headers={"retry-after": "0"}), "throttled"),
    "502": (Mode(status=502), "unavailable"),
    "500": (Mode(status=500, body=HTML), "unavailable"),
    "401": (Mode(status=401), "unauthorized"),
    "404": (Mode(status=404), "status"),
    "302": (Mode(status=302, headers={"location": "/elsewhere"}), "redirect"),
    "reset": (Mode(cut=True), "cut"),
    "reset that kept them": (Mode(cut=True, keeps=True), "cut"),
    "late": (Mode(first_s=0.6, keeps=True), "timeout"),
    "hangs": (Mode(hang=True), "timeout"),
    "drips": (Mode(drip_s=0.1, keeps=True), "timeout"),
    "no HTTP": (Mode(raw=b"\x00\x01\x02 what"), "malformed"),
    "a page": (Mode(body=HTML, content_type="text/html"), "malformed"),
    "a page that calls itself protobuf": (Mode(body=HTML), "malformed"),
    "a page without a name": (Mode(body=HTML, content_type=None), "malformed"),
    "an empty page": (Mode(body=b"", content_type="text/html"), "malformed"),
    "bytes without a name": (Mode(body=b"\x0a\x00", content_type=None), "malformed"),
    "broken JSON": (Mode(body=b'{"partialSuccess": {', content_type="application/json"), "malformed"),
    "JSON that is no answer": (Mode(body=b"[]", content_type="application/json"), "malformed"),
    "more rejected than sent": (Mode(body=b"\x0a\x03\x08\xff\x7f"), "malformed"),
    "400 to everything": (Mode(status=400), "refused"),
    "413 to everything": (Mode(status=413), "refused"),
}


@pytest.mark.parametrize("name", TROUBLES)
async def test_what_is_not_taken_is_sent_again(spool: Path, collector: Receiver, name: str) -> None:
    mode, reason = TROUBLES[name]
    collector.mode = mode
    async with shipping(spool, collector.url, timeout_s=0.3) as here:
        ids = await here.fill(60)
        await asyncio.to_thread(_until, lambda: failures(here.metrics).get(reason, 0) >= 2)
        assert failures(here.metrics).keys() == {reason}
        assert here.on_disk() == {"requests": 0, "egress": 0}
        assert here.metrics.shipped_total.labels("requests").value == 0
        collector.mode = OK
        await arrives(collector, has(collector, ids))
        await asyncio.to_thread(_until, lambda: here.shipper.standing().records == 0)
    # Once by id and revision, however often a record came.
    assert len(collector.uids()) == 60
    assert here.on_disk() == {"requests": 60, "egress": 0}
    assert here.rejected() == []
    assert here.metrics.ship_rejected_total.labels("requests").value == 0
    assert not [path for path, _, _ in collector.requests if path != "/v1/logs"], "no redirect is followed"


async def test_retry_after_is_honoured(spool: Path, collector: Receiver) -> None:
    collector.mode = Mode(status=429, headers={"retry-after": "1"})
    async with shipping(spool, collector.url) as here:
        ids = await here.fill(5)
        await arrives(collector, lambda: len(collector.requests) >= 1)
        began = time.monotonic()
        collector.mode = OK
        await arrives(collector, has(collector, ids))
        assert time.monotonic() - began >= 0.9
    assert len(collector.requests) == 2


async def test_what_a_partial_success_rejects_is_found_kept_and_told(
    spool: Path, collector: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    bad = {"r00003", "r00017", "r00018"}
    collector.mode = Mode(rejects=lambda record: id_of(record) in bad)
    async with shipping(spool, collector.url) as here:
        ids = await here.fill(40)
        await arrives(collector, has(collector, [key for key in ids if key not in bad]))
        await asyncio.to_thread(_until, lambda: len(here.rejected()) == 3)
        more = await here.fill(10, "more")
        await arrives(collector, has(collector, more))
    assert {id_ for _, id_, _ in here.rejected()} == bad
    assert {why for _, _, why in here.rejected()} == {"rejected"}
    assert here.metrics.ship_rejected_total.labels("requests").value == 3
    assert here.metrics.records_dropped_total.value == 0
    assert set(rows.requests(spool)) >= bad, "they stay in the spool"
    assert "r00003" in caplog.text
    assert here.on_disk()["requests"] == 50
    assert failures(here.metrics) == {}


async def test_what_was_rejected_is_not_deleted_by_its_age(spool: Path, collector: Receiver) -> None:
    collector.mode = Mode(rejects=lambda record: id_of(record) == "r00003")
    async with shipping(spool, collector.url) as here:
        await here.fill(10)
        await asyncio.to_thread(_until, lambda: here.on_disk()["requests"] == 10)
    Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY).close_sync()  # adds up what was not
    with closing(sqlite3.connect(spool, isolation_level=None)) as conn:
        assert prune(conn, 2**62, keep_unshipped=True) == 9
    assert list(rows.requests(spool)) == ["r00003"]
    assert len(rows.attempts(spool, "r00003")) == 1


async def test_a_record_that_makes_the_collector_refuse_the_lot_is_found(
    spool: Path, collector: Receiver
) -> None:
    collector.mode = Mode(refuses=lambda record: id_of(record) in {"r00000", "r00039"})
    async with shipping(spool, collector.url) as here:
        ids = await here.fill(40)
        await arrives(collector, has(collector, ids[1:-1]))
        await asyncio.to_thread(_until, lambda: len(here.rejected()) == 2)
    assert here.rejected() == [("requests", "r00000", "refused"), ("requests", "r00039", "refused")]


async def test_one_record_alone_that_is_refused_waits_for_another(spool: Path, collector: Receiver) -> None:
    """Whether it is the record or the collector shows beside a second one only."""
    collector.mode = Mode(refuses=lambda record: id_of(record) == "alone")
    async with shipping(spool, collector.url) as here:
        await here.ledger.completion(rows.completion("alone"))
        await asyncio.to_thread(_until, lambda: failures(here.metrics).get("refused", 0) >= 2)
        assert here.rejected() == []
        await here.ledger.completion(rows.completion("second"))
        await asyncio.to_thread(_until, lambda: len(here.rejected()) == 1)
        await arrives(collector, has(collector, ["second"]))
    assert here.rejected() == [("requests", "alone", "refused")]


async def test_a_collector_that_begins_to_refuse_everything_is_not_believed(
    spool: Path, collector: Receiver
) -> None:
    """In the middle of a request of which it had taken the first half."""
    collector.mode = Mode(refuses=lambda record: id_of(record) == "r00005" or len(collector.records) >= 5)
    async with shipping(spool, collector.url, batch_size=10, start=False) as here:
        ids = await here.fill(60)
        here.shipper.start()
        await asyncio.to_thread(_until, lambda: failures(here.metrics).get("refused", 0) >= 1)
        assert here.metrics.ship_rejected_total.labels("requests").value == 0
        collector.mode = OK
        await arrives(collector, has(collector, ids))
    assert here.rejected() == []


async def test_a_request_that_is_too_large_is_halved(spool: Path, collector: Receiver) -> None:
    collector.mode = Mode(most=3)
    async with shipping(spool, collector.url) as here:
        ids = await here.fill(41)
        await arrives(collector, has(collector, ids))
    assert set(collector.uids().values()) == {1}
    assert here.rejected() == []


async def test_a_row_that_cannot_be_put_into_words_is_passed_over_and_told(
    spool: Path, collector: Receiver
) -> None:
    async with shipping(spool, collector.url, start=False) as here:
        await here.fill(5)
        with closing(sqlite3.connect(spool)) as conn:
            conn.execute("UPDATE requests SET prompt_tokens = 'secret words' WHERE request_id = 'r00002'")
            conn.commit()
        here.shipper.start()
        await arrives(collector, has(collector, ["r00000", "r00001", "r00003", "r00004"]))
        await asyncio.to_thread(_until, lambda: len(here.rejected()) == 1)
    assert here.rejected() == [("requests", "r00002", "unspeakable")]


async def test_records_without_words_do_not_hide_the_neighbours_of_a_refused_one(
    spool: Path, collector: Receiver
) -> None:
    collector.mode = Mode(refuses=lambda record: id_of(record) == "r00000")
    async with shipping(spool, collector.url, start=False) as here:
        await here.fill(4)
        with closing(sqlite3.connect(spool)) as conn:
            conn.execute("UPDATE requests SET prompt_tokens = 'x' WHERE request_id IN ('r00001', 'r00003')")
            conn.commit()
        here.shipper.start()
        await arrives(collector, has(collector, ["r00002"]))
        await asyncio.to_thread(_until, lambda: len(here.rejected()) == 3)


async def test_any_number_of_rejections_is_kept(
    spool: Path, collector: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipper_module, "_MOST_UNSAID", 20)
    collector.mode = Mode(rejects=lambda record: True)
    async with shipping(spool, collector.url, batch_size=10) as here:
        await here.fill(300)
        await asyncio.to_thread(_until, lambda: len(here.rejected()) == 300)
        assert here.on_disk()["requests"] == 300


async def test_a_slow_collector_gets_less_at_a_time(spool: Path, collector: Receiver) -> None:
    """One that needs longer for a request the more is in it would never take a full one."""

    class Slow(Mode):
        pass

    collector.mode = OK
    serve = collector._answer

    def slowly(handler: Any, mode: Mode, status: int, body: bytes) -> None:
        time.sleep(0.02 * collector.requests[-1][2])
        serve(handler, mode, status, body)

    collector._answer = slowly  # type: ignore[method-assign]
    async with shipping(spool, collector.url, timeout_s=0.3) as here:
        ids = await here.fill(50)
        await asyncio.to_thread(
            _until, lambda: here.shipper.standing().records == 0 and has(collector, ids)()
        )
        assert failures(here.metrics).keys() == {"timeout"}
        assert here.on_disk()["requests"] == 50
    assert len(collector.uids()) == 50


async def test_stopping_sends_what_is_left(spool: Path, collector: Receiver) -> None:
    async with shipping(spool, collector.url, interval_s=3600) as here:
        await asyncio.to_thread(_until, lambda: here.shipper._conn is not None)
        ids = await here.fill(120)
    assert set(collector.latest()) == set(ids)
    assert here.on_disk()["requests"] == 120


async def test_stopping_does_not_wait_for_a_collector_that_hangs(spool: Path, collector: Receiver) -> None:
    collector.mode = Mode(hang=True)
    async with shipping(spool, collector.url, timeout_s=300) as here:
        await here.fill(3)
        await arrives(collector, lambda: len(collector.requests) == 1)
        began = time.monotonic()
        await asyncio.to_thread(here.shipper.stop, 0.3)
        assert time.monotonic() - began < 2
        assert not here.shipper._thread.is_alive()
    assert here.on_disk() == {"requests": 0, "egress": 0}


async def test_shipping_outlives_a_disk_that_does_not_take_its_cursor(
    spool: Path, collector: Receiver
) -> None:
    async with shipping(spool, collector.url, start=False) as here:
        ids = await here.fill(120)
        with rows.broken_disk():
            here.shipper.start()
            await arrives(collector, has(collector, ids))
            assert here.on_disk()["requests"] == 0
        await asyncio.to_thread(_until, lambda: here.on_disk()["requests"] == 120)
        assert here.metrics.records_dropped_total.value == 0
        assert here.metrics.records_at_risk_total.value == 0, "a cursor is no record"
    assert set(collector.uids().values()) == {1}


async def test_rejections_are_on_the_disk_before_they_are_forgotten(spool: Path, collector: Receiver) -> None:
    collector.mode = Mode(rejects=lambda record: True)
    async with shipping(spool, collector.url, start=False) as here:
        await here.fill(10)
        with rows.broken_disk():
            here.shipper.start()
            await asyncio.to_thread(
                _until, lambda: here.metrics.ship_rejected_total.labels("requests").value == 10
            )
            assert here.rejected() == []
        await asyncio.to_thread(_until, lambda: len(here.rejected()) == 10)
        await asyncio.to_thread(_until, lambda: not here.shipper._unsaid)


async def test_a_rejection_that_got_lost_on_its_way_to_the_disk_is_said_again(
    spool: Path, collector: Receiver
) -> None:
    """A ledger whose disk hangs for long drops what it cannot hold."""
    collector.mode = Mode(rejects=lambda record: True)
    async with shipping(spool, collector.url, start=False) as here:
        await here.fill(3)
        real, lost = here.ledger.shipped, []

        def drop_first(row: Shipped) -> None:
            if lost:
                real(row)
            else:
                lost.append(row)

        here.shipper._hand_over = drop_first
        here.shipper.start()
        await asyncio.to_thread(_until, lambda: len(here.rejected()) == 3)
    assert len(lost[0].rejected) == 3


async def test_a_fault_does_not_end_the_thread(
    spool: Path, collector: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with shipping(spool, collector.url, start=False) as here:
        ids = await here.fill(3)

        def faulty(*_: Any) -> None:
            raise RuntimeError("secret words")

        with monkeypatch.context() as inside:
            inside.setattr(here.shipper, "_deliver", faulty)
            here.shipper.start()
            await asyncio.to_thread(_until, lambda: failures(here.metrics).get("other", 0) >= 2)
        await arrives(collector, has(collector, ids))
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text


async def test_the_trouble_is_told_once_and_so_is_its_end(
    spool: Path, collector: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    collector.mode = Mode(status=503)
    async with shipping(spool, collector.url) as here:
        ids = await here.fill(3)
        await asyncio.to_thread(_until, lambda: failures(here.metrics).get("throttled", 0) >= 3)
        collector.mode = OK
        await arrives(collector, has(collector, ids))
        await asyncio.to_thread(_until, lambda: here.shipper.standing().trouble is None)
    assert caplog.text.count("cannot be shipped") == 1
    assert caplog.text.count("shipped again") == 1


class At(SystemClock):
    def __init__(self, wall_ns: int) -> None:
        self.now_ns = wall_ns

    def wall_ns(self) -> int:  # type: ignore[override]
        return self.now_ns


async def test_the_age_of_the_oldest_grows_until_it_is_late(spool: Path) -> None:
    ended = rows.completion().ended_ns
    clock = At(ended)
    metrics = Metrics()
    ledger = Ledger.open(spool, clock=clock, chain_key=rows.CHAIN_KEY, metrics=metrics)
    shipper = make_shipper(
        spool, f"http://127.0.0.1:{free_port()}", ledger, metrics, clock=clock, degraded_after_s=60
    )
    await ledger.completion(rows.completion())
    shipper.start()
    await asyncio.to_thread(_until, lambda: shipper.standing().records == 1)
    clock.now_ns = ended + 60_000_000_000
    assert not shipper.standing().late
    clock.now_ns += 1_000_000_000
    assert shipper.standing().late
    assert metrics.ship_oldest_seconds.labels("requests").value == 61
    await asyncio.to_thread(shipper.stop, 0.2)
    await ledger.close()


async def test_a_thread_that_is_gone_is_late(spool: Path, collector: Receiver) -> None:
    async with shipping(spool, collector.url, start=False) as here:
        assert not here.shipper.standing().late
        here.shipper._run = lambda: None  # type: ignore[method-assign]
        here.shipper._thread._target = here.shipper._run  # type: ignore[attr-defined]
        here.shipper.start()
        here.shipper._thread.join()
        assert here.shipper.standing().late


async def test_metrics_are_exported_at_their_interval(spool: Path, collector: Receiver) -> None:
    async with shipping(spool, collector.url, metrics_interval_s=1) as here:
        here.metrics.requests_total.labels("local-8b", "ok").inc(7)
        await arrives(collector, lambda: len(collector.metrics) >= 2)
    names = {
        m.name for r in collector.metrics[0].resource_metrics for s in r.scope_metrics for m in s.metrics
    }
    assert "weighbridge_requests_total" in names


async def test_a_collector_without_metrics_still_gets_records(spool: Path, collector: Receiver) -> None:
    collector.metrics_mode = Mode(status=404)
    async with shipping(spool, collector.url, metrics_interval_s=1) as here:
        await arrives(collector, lambda: len(collector.metrics) >= 1)
        ids = await here.fill(3)
        await arrives(collector, has(collector, ids))
        assert failures(here.metrics).keys() == {"status"}
        assert here.shipper.standing().trouble is None


async def test_gauges_that_cannot_be_read_are_no_trouble_for_records(
    spool: Path, collector: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """They look at what the event loop changes meanwhile."""
    broken = True

    def changed() -> float:
        if broken:
            raise RuntimeError("secret words")
        return 7.0

    async with shipping(spool, collector.url, metrics_interval_s=1, start=False) as here:
        here.metrics.ship_backlog_records.labels("egress").follow(changed)
        ids = await here.fill(3)
        here.shipper.start()
        await arrives(collector, has(collector, ids))
        await asyncio.to_thread(_until, lambda: failures(here.metrics).get("metrics", 0) >= 1)
        assert failures(here.metrics).keys() == {"metrics"}
        assert here.shipper.standing().trouble is None
        assert here.shipper._conn is not None, "the spool is not opened anew"
        broken = False
        await arrives(collector, lambda: len(collector.metrics) >= 1)
    assert "RuntimeError" in caplog.text and "secret" not in caplog.text


async def test_who_ships_shows_in_the_headers(spool: Path, collector: Receiver) -> None:
    async with shipping(
        spool, collector.url + "/otlp", headers="Authorization: Bearer s3cret\nx-tenant: acme"
    ) as here:
        await here.fill(1)
        await arrives(collector, lambda: len(collector.records) == 1)
    ((path, headers, _),) = collector.requests
    assert path == "/otlp/v1/logs"
    assert headers["authorization"] == "Bearer s3cret"
    assert headers["x-tenant"] == "acme"
    assert (headers["content-encoding"], headers["content-type"]) == ("gzip", "application/x-protobuf")
