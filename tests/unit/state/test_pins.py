"""Pins in the state file: what a disk that fails does to them, and what they leave there."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.clocks import SetClock
from tests.support.ledger_rows import broken_disk
from weighbridge.config.errors import ConfigError
from weighbridge.state import pins as stored
from weighbridge.state.pins import UNSEEN_NS, StoredPins
from weighbridge.state.store import StateStore

DAY_NS = 86_400 * 1_000_000_000


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store(tmp_path: Path, clock: SetClock) -> Iterator[StateStore]:
    opened = StateStore.open(tmp_path / "state.sqlite3", clock)
    yield opened
    opened.close()


@pytest.fixture
def pins(store: StateStore) -> StoredPins:
    return StoredPins(store)


def kept(store: StateStore) -> list[tuple[int, int]]:
    return [tuple(row) for row in store.rows("SELECT local, seen_ns FROM pins ORDER BY seen_ns, local")]


async def test_a_conversation_that_cannot_be_recorded_is_not_open(pins: StoredPins) -> None:
    with broken_disk():
        assert await pins.enter("t", "c", begun=False) == "unreadable"
        assert not await pins.is_open("t", "c")
    assert await pins.enter("t", "c", begun=False) == "open"


async def test_a_pin_that_cannot_be_written_closes_all_until_it_is(
    pins: StoredPins, store: StateStore
) -> None:
    await pins.enter("t", "c", begun=False)
    await pins.enter("t", "other", begun=False)
    with broken_disk():
        await pins.keep_local("t", "c")
        assert await pins.enter("t", "c", begun=True) == "local"
        assert await pins.enter("t", "other", begun=True) == "unreadable"
        assert not await pins.is_open("t", "other")
    assert await pins.is_open("t", "other")
    # Which was only open again because the pin is on the disk by now.
    assert not await StoredPins(store).is_open("t", "c")
    assert await StoredPins(store).enter("t", "c", begun=True) == "local"


async def test_pins_that_are_forgotten_close_everything(
    pins: StoredPins, store: StateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "MAX_UNWRITTEN", 3)
    await pins.enter("t", "other", begun=False)
    with broken_disk():
        for n in range(4):
            await pins.keep_local("t", f"c{n}")
    assert await pins.enter("t", "other", begun=True) == "unreadable"
    assert not await pins.is_open("t", "other")


async def test_a_closed_store_means_local(pins: StoredPins, store: StateStore) -> None:
    await pins.enter("t", "c", begun=False)
    store.close()
    assert await pins.enter("t", "new", begun=False) == "unreadable"
    await pins.keep_local("t", "c")
    assert not await pins.is_open("t", "c")
    with pytest.raises(ConfigError, match="pins"):
        StoredPins(store)


async def test_what_is_known_costs_no_look_at_the_file(pins: StoredPins, store: StateStore) -> None:
    await pins.enter("t", "open", begun=False)
    await pins.keep_local("t", "local")
    store.close()
    assert await pins.enter("t", "open", begun=True) == "open" and await pins.is_open("t", "open")
    assert await pins.enter("t", "local", begun=True) == "local"


async def test_open_ones_are_swept_from_the_disk(
    pins: StoredPins, store: StateStore, clock: SetClock
) -> None:
    for n in range(3):
        await pins.enter("t", f"open-{n}", begun=False)
    await pins.keep_local("t", "local")
    clock.now_ns += UNSEEN_NS + DAY_NS
    await pins.enter("t", "new", begun=False)
    assert [local for local, _ in kept(store)] == [1, 0]


async def test_that_it_was_seen_is_written_once_a_day(
    pins: StoredPins, store: StateStore, clock: SetClock
) -> None:
    await pins.enter("t", "c", begun=False)
    first = kept(store)
    clock.now_ns += DAY_NS - 1
    await pins.enter("t", "c", begun=True)
    assert kept(store) == first
    clock.now_ns += 1
    await pins.enter("t", "c", begun=True)
    assert kept(store) == [(0, clock.now_ns)]


def test_a_file_of_the_version_before_gets_the_new_tables(tmp_path: Path, clock: SetClock) -> None:
    path = tmp_path / "old.sqlite3"
    StateStore.open(path, clock).close()
    with closing(sqlite3.connect(path)) as conn:
        for table in (
            "pins",
            "pins_secret",
            "egress_switch",
            "policy_proposals",
            "policy_versions",
            "key_hashes",
            "keys",
            "audit",
        ):
            conn.execute(f"DROP TABLE {table}")
        conn.execute("PRAGMA user_version=1")
        conn.commit()
    with closing(StateStore.open(path, clock)) as store:
        StoredPins(store)
        assert kept(store) == []
