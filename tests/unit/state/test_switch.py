"""The kill switch: works at once, is kept, and counts as thrown where nobody can tell."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clocks import SetClock
from tests.support.ledger_rows import broken_disk
from weighbridge.observability.metrics import Metrics
from weighbridge.state.store import StateStore, StateUnavailable
from weighbridge.state.switch import EgressSwitch, SwitchEntry


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    opened = StateStore.open(tmp_path / "state.sqlite3", SetClock())
    yield opened
    opened.close()


def test_it_is_not_thrown_at_first(store: StateStore) -> None:
    switch = EgressSwitch(store, None)
    assert not switch.thrown() and switch.by() is None and switch.history() == []


def test_an_admin_throws_and_lifts_it_and_that_is_kept(store: StateStore) -> None:
    switch = EgressSwitch(store, None)
    first = switch.set("never", "root", "사고 42")
    assert first == SwitchEntry(1, 1_767_225_600_000_000_000, "root", "사고 42", "never")
    assert switch.by() == "admin" and EgressSwitch(store, None).by() == "admin"
    second = switch.set("policy", "other", "over")
    assert not switch.thrown() and not EgressSwitch(store, None).thrown()
    assert EgressSwitch(store, None).history() == [first, second]


def test_throwing_works_whatever_the_disk_does_and_lifting_only_once_kept(store: StateStore) -> None:
    switch = EgressSwitch(store, None)
    with broken_disk(), pytest.raises(StateUnavailable):
        switch.set("never", "root", "now")
    assert switch.thrown() and switch.history() == []
    with broken_disk(), pytest.raises(StateUnavailable):
        switch.set("policy", "root", "over")
    assert switch.thrown()
    switch.set("policy", "root", "over")
    assert not switch.thrown()


def test_it_is_thrown_before_it_is_written(store: StateStore) -> None:
    switch = EgressSwitch(store, None)
    with store.writing():
        throwing = threading.Thread(target=switch.set, args=("never", "root", "now"))
        throwing.start()
        while not switch.thrown():
            assert throwing.is_alive()
    throwing.join()


def test_one_that_is_thrown_while_it_is_lifted_stays_thrown(store: StateStore) -> None:
    switch = EgressSwitch(store, None)
    switch.set("never", "root", "first")
    for _ in range(20):
        both = [
            threading.Thread(target=switch.set, args=(egress, "root", "both"))
            for egress in ("policy", "never")
        ]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert switch.thrown() is (switch.history()[-1].egress == "never")


def test_a_store_that_cannot_be_read_counts_as_thrown(store: StateStore) -> None:
    store.close()
    assert EgressSwitch(store, None).by() == "unreadable"


def test_a_file_throws_it_by_being_there(store: StateStore, tmp_path: Path) -> None:
    file = tmp_path / "no-egress"
    switch = EgressSwitch(store, file)
    assert not switch.thrown()
    file.touch()
    assert switch.by() == "file"
    file.unlink()
    assert not switch.thrown()
    file.symlink_to(tmp_path / "nowhere")
    assert switch.by() == "file"
    switch.set("never", "root", "both")
    file.unlink()
    assert switch.by() == "admin"


def test_a_file_that_cannot_be_looked_for_counts_as_there(store: StateStore, tmp_path: Path) -> None:
    assert EgressSwitch(store, tmp_path / "absent" / "no-egress").by() == "unreadable"
    (tmp_path / "plain").touch()
    assert EgressSwitch(store, tmp_path / "plain" / "no-egress").by() == "unreadable"
    assert EgressSwitch(store, tmp_path / ("x" * 300)).by() == "unreadable"


async def test_log_and_metrics_tell_of_it_without_a_request(
    store: StateStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, metrics = tmp_path / "no-egress", Metrics()
    switch = EgressSwitch(store, file, metrics)
    looked: asyncio.Queue[None] = asyncio.Queue()
    go_on = asyncio.Semaphore(0)

    async def sleep(_: float) -> None:
        looked.put_nowait(None)
        await go_on.acquire()

    with caplog.at_level(logging.WARNING):
        watching = asyncio.create_task(switch.watch(sleep))
        await looked.get()
        assert metrics.egress_switched_off.value == 0 and caplog.messages == []
        file.touch()
        go_on.release()
        await looked.get()
        assert metrics.egress_switched_off.value == 1
        os.unlink(file)
        go_on.release()
        await looked.get()
        assert metrics.egress_switched_off.value == 0
        watching.cancel()
    assert caplog.messages == [
        "egress is switched off (file): nothing leaves",
        "egress is no longer switched off: the policy decides",
    ]
