"""`weighbridge audit verify`: exit statuses and what it says; and what the command line itself leaves in the log."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from weighbridge.config.clock import SystemClock
from weighbridge.config.settings import MaskingSettings
from weighbridge.gateway import cli
from weighbridge.gateway.parts import STATE_FILE
from weighbridge.masking.secret import SECRET_FILE, obtain_secrets
from weighbridge.state.audit import AuditLog
from weighbridge.state.store import StateStore
from weighbridge.state.switch import EgressSwitch


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("WEIGHBRIDGE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with three changes in its log."""
    folder = tmp_path / "state"
    key = obtain_secrets(MaskingSettings(), folder).audit_keys()[0]
    with closing(StateStore.open(folder / STATE_FILE, SystemClock(), audit_key=key)) as store:
        for n in range(3):
            EgressSwitch(store, None).set("never", "root", f"r{n}")
    return folder


def run(*argv: str) -> int:
    try:
        return cli.main(list(argv))
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        return ended.code


def verify(state: Path, *argv: str) -> int:
    return run("audit", "verify", "--state-dir", str(state), *argv)


def by_hand(state: Path, statement: str) -> None:
    with closing(sqlite3.connect(state / STATE_FILE, isolation_level=None)) as conn:
        conn.execute(statement)


def told(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, str], str]:
    out, err = capsys.readouterr()
    return dict(line.split(": ", 1) for line in out.splitlines() if ": " in line), err


def test_a_whole_log_and_its_head(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(state) == 0
    out, _ = told(capsys)
    assert out["rows"] == "3" and "--head" in out["whole, as far as it goes"]
    assert verify(state, "--head", out["head"]) == 0
    by_hand(state, "DELETE FROM audit WHERE seq = 3")
    assert verify(state) == 0
    assert verify(state, "--head", out["head"]) == 1
    assert "row 3 is missing" in told(capsys)[1]


def test_the_first_broken_row_is_named(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_hand(state, "UPDATE audit SET who = 'eve' WHERE seq = 2")
    assert verify(state) == 1
    assert told(capsys)[1].startswith("broken: row 2 was changed")


def test_a_key_that_was_put_in_by_hand_is_named(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    by_hand(
        state,
        "INSERT INTO keys VALUES (1, 'ak-0', 'admin', 'n', '', 'admin', NULL, NULL, 1, 'root', NULL, NULL)",
    )
    assert verify(state) == 1
    assert told(capsys)[1].startswith("broken: the key ak-0 is not as the audit log says")


def test_what_it_cannot_tell(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(tmp_path / "none") == 2
    (state / SECRET_FILE).rename(state / "elsewhere")
    assert verify(state) == 2
    assert "no secret" in told(capsys)[1]
    assert verify(state, "--head", "x") == 2


def test_dropping_the_overlay_is_in_the_log(state: Path) -> None:
    key = obtain_secrets(MaskingSettings(), state).audit_keys()[0]
    with closing(StateStore.open(state / STATE_FILE, SystemClock(), audit_key=key)) as store:
        store.set_overlay({"queue_lock_timeout_ms": 500}, "ann", "tuned")
    assert run("overlay", "drop", "--state-dir", str(state), "--reason", "does not start") == 0
    with closing(StateStore.open(state / STATE_FILE, SystemClock())) as store:
        row = AuditLog(store).page(0, 9)[-1]
    assert (row.who, row.action, row.why) == ("command line", "overlay.drop", "does not start")
    assert (row.before, row.after) == ('{"queue_lock_timeout_ms":500}', "{}")
    assert verify(state) == 0
