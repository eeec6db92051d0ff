from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.ledger_rows import broken_disk
from weighbridge.config.errors import ConfigError
from weighbridge.state.store import OverlayEntry, StateStore, StateUnavailable


class TickingClock:
    def __init__(self) -> None:
        self.now = 1_767_225_600_000_000_000

    def monotonic(self) -> float:
        return self.now / 1e9

    def wall_ns(self) -> int:
        self.now += 1
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[StateStore]:
    opened = StateStore.open(path, TickingClock())
    yield opened
    opened.close()


def test_nothing_is_set_at_first(store: StateStore) -> None:
    assert store.overlay() is None
    assert store.history() == []


def test_the_last_overlay_is_in_force_and_all_are_kept(store: StateStore, path: Path) -> None:
    first = store.set_overlay(
        {"bounds": {"local_8b": 0.4}}, "admin-1", "고객 요청", base_policy_version="p@1"
    )
    second = store.set_overlay({"queue_lock_timeout_ms": 500}, "admin-2", "")
    assert first == OverlayEntry(
        1, 1_767_225_600_000_000_001, "admin-1", "고객 요청", {"bounds": {"local_8b": 0.4}}, "p@1"
    )
    assert store.overlay() == {"queue_lock_timeout_ms": 500}
    assert store.history() == [first, second]
    store.close()
    with closing(StateStore.open(path, TickingClock())) as again:
        assert again.history() == [first, second]
        assert again.overlay() == {"queue_lock_timeout_ms": 500}


def test_an_empty_overlay_takes_it_off(store: StateStore) -> None:
    store.set_overlay({"queue_lock_timeout_ms": 500}, "a", "b")
    store.set_overlay({}, "a", "back to the file")
    assert store.overlay() is None
    assert len(store.history()) == 2


def test_the_caller_cannot_change_what_was_set(store: StateStore) -> None:
    values = {"bounds": {"local_8b": 0.4}}
    entry = store.set_overlay(values, "a", "b")
    values["bounds"]["local_8b"] = 0.9
    assert entry.values == {"bounds": {"local_8b": 0.4}} == store.overlay()


def test_a_disk_that_refuses_changes_nothing(store: StateStore) -> None:
    store.set_overlay({"queue_lock_timeout_ms": 500}, "a", "b")
    with broken_disk(), pytest.raises(StateUnavailable):
        store.set_overlay({"queue_lock_timeout_ms": 600}, "a", "secret reason")
    assert store.overlay() == {"queue_lock_timeout_ms": 500}
    assert len(store.history()) == 1
    store.set_overlay({"queue_lock_timeout_ms": 700}, "a", "b")
    assert store.overlay() == {"queue_lock_timeout_ms": 700}


def test_text_that_is_not_unicode_changes_nothing(store: StateStore) -> None:
    with pytest.raises(ValueError):
        store.set_overlay({"queue_lock_timeout_ms": 500}, "a", "\ud800")
    assert store.history() == []


def test_threads_may_share_it(store: StateStore) -> None:
    def work(name: str) -> None:
        for n in range(20):
            store.set_overlay({"n": n}, name, "")

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = store.history()
    assert [entry.id for entry in history] == list(range(1, 81))


def test_a_closed_store_says_so(store: StateStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StateUnavailable):
        store.overlay()
    with pytest.raises(StateUnavailable):
        store.set_overlay({}, "a", "b")


def test_it_is_private_and_fully_synchronous(store: StateStore, path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert store._conn.execute("PRAGMA synchronous").fetchone()[0] == 2


def test_a_newer_file_is_refused(path: Path) -> None:
    StateStore.open(path, TickingClock()).close()
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA user_version=9")
    with pytest.raises(ConfigError, match="newer version"):
        StateStore.open(path, TickingClock())
