"""`weighbridge overlay drop`: administrators' changes taken off while no gateway runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weighbridge.config.clock import SystemClock
from weighbridge.gateway import cli
from weighbridge.gateway.parts import STATE_FILE
from weighbridge.observability.ledger_read import LEDGER_FILE
from weighbridge.observability.spool_lock import SpoolLock
from weighbridge.state.store import StateStore


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("WEIGHBRIDGE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    store = StateStore.open(tmp_path / STATE_FILE, SystemClock())
    store.set_overlay({"aliases": {"gpt": "gone"}}, "ann", "tuned")
    store.close()
    return tmp_path


def drop(state: Path) -> int:
    return cli.main(["overlay", "drop", "--state-dir", str(state), "--reason", "the adapter is gone"])


def entries(state: Path) -> list[tuple[str, str, object]]:
    store = StateStore.open(state / STATE_FILE, SystemClock())
    found = [(entry.who, entry.why, dict(entry.values)) for entry in store.history()]
    store.close()
    return found


def test_the_changes_are_taken_off_and_stay_in_the_history(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert drop(state) == 0
    assert capsys.readouterr().out == "the policy file counts as it stands\n"
    assert entries(state) == [
        ("ann", "tuned", {"aliases": {"gpt": "gone"}}),
        ("command line", "the adapter is gone", {}),
    ]
    assert drop(state) == 0
    assert capsys.readouterr().out == "no change lies over the policy file\n"
    assert len(entries(state)) == 2


def test_a_reason_says_something(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for nothing in (" ", "two\nlines"):
        assert cli.main(["overlay", "drop", "--state-dir", str(state), "--reason", nothing]) == 2
        assert "--reason" in capsys.readouterr().err
    assert len(entries(state)) == 1


def test_not_beside_a_running_gateway(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = SpoolLock.take(state / LEDGER_FILE)
    try:
        assert drop(state) == 2
    finally:
        lock.release()
    assert "in use" in capsys.readouterr().err
    assert len(entries(state)) == 1


def test_a_folder_without_a_state_is_not_made_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert drop(tmp_path) == 2
    assert "there is no state to change" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
