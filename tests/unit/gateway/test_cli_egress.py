"""`weighbridge egress verify`: exit statuses and what it says."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support import ledger_rows as rows
from tests.support.old_ledger import old_ledger
from weighbridge.config.clock import SystemClock
from weighbridge.config.settings import MaskingSettings
from weighbridge.gateway import cli
from weighbridge.masking.secret import SECRET_FILE, Secrets, obtain_secrets
from weighbridge.observability.ledger import Ledger

AT_NS = 1_767_225_600_123_456_789


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("WEIGHBRIDGE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


def send(state: Path, count: int, secrets: Secrets | None = None) -> None:
    """What a gateway leaves in its state folder after `count` outward requests."""
    secrets = secrets or obtain_secrets(MaskingSettings(), state)

    async def run() -> None:
        ledger = Ledger.open(state / "ledger.sqlite3", clock=SystemClock(), chain_key=secrets.chain_keys()[0])
        for n in range(count):
            egress_id = f"{secrets.chain_keys()[0].hex()[:8]}-{n}"
            await ledger.record_egress(rows.egress(egress_id, at_ns=AT_NS + n * 1_000_000_000))
        await ledger.close()

    asyncio.run(run())


def verify(state: Path, *argv: str) -> int:
    try:
        return cli.main(["egress", "verify", "--state-dir", str(state), *argv])
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        return ended.code


def by_hand(state: Path, *statements: str) -> None:
    with closing(sqlite3.connect(state / "ledger.sqlite3", isolation_level=None)) as conn:
        for statement in statements:
            conn.execute(statement)


def said(capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, str], str]:
    out, err = capsys.readouterr()
    return dict(line.split(": ", 1) for line in out.splitlines() if ": " in line), err


def test_a_whole_record(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    send(state, 3)
    assert verify(state) == 0
    out, err = said(capsys)
    assert out["rows"] == "3"
    assert (out["first"], out["last"]) == ("2026-01-01T00:00:00.123Z", "2026-01-01T00:00:02.123Z")
    assert out["keys"].endswith(" (3 rows)")
    head = rows.egresses(state / "ledger.sqlite3")[-1]["chain"]
    assert out["head"] == head
    assert "--head" in out["whole, as far as it goes"]
    assert err == ""
    send(state, 0)
    assert verify(state, "--head", head.upper()) == 0
    out, _ = said(capsys)
    assert out["pinned head"] == "row 3, 0 rows since"


def test_an_empty_record_is_whole(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    send(state, 0)
    assert verify(state) == 0
    out, _ = said(capsys)
    assert (out["rows"], out["head"]) == ("0", "0" * 64)


def test_a_changed_row(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    send(state, 5)
    by_hand(state, "UPDATE egress SET body_bytes = 1 WHERE seq = 3")
    assert verify(state) == 1
    out, err = said(capsys)
    assert out["rows"] == "2 before the first that is wrong"
    assert err.startswith("broken: row 3 ")


def test_a_missing_row_and_a_missing_tail(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    send(state, 5)
    verify(state)
    head = said(capsys)[0]["head"]
    by_hand(state, "DELETE FROM egress WHERE seq = 5")
    assert verify(state) == 0
    assert verify(state, "--head", head) == 1
    assert "row 5 is missing" in said(capsys)[1]
    by_hand(state, "DELETE FROM egress WHERE seq = 2")
    assert verify(state) == 1
    assert said(capsys)[1] == "broken: row 2 is missing\n"


def test_rotation(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = "old-secret-0123456789", "new-secret-0123456789"
    send(state, 2, Secrets(old.encode()))
    send(state, 3, Secrets(new.encode(), (old.encode(),)))
    held = tmp_path / "secrets"
    config = tmp_path / "weighbridge.yaml"
    config.write_text(f"state_dir: {state}\nmasking:\n  secret_file: {held}\n")
    held.write_text(f"{new}\n{old}\n")
    assert cli.main(["egress", "verify", "--config", str(config)]) == 0
    out, _ = said(capsys)
    assert out["keys"].endswith("(2 rows), " + out["keys"].split(", ")[1])
    held.write_text(f"{new}\n")
    assert cli.main(["egress", "verify", "--config", str(config)]) == 1
    assert said(capsys)[1].startswith("broken: row 1 was signed with the key ")
    monkeypatch.setenv("WEIGHBRIDGE_MASKING__SECRET", f"{new}\n{old}")
    assert verify(state) == 0


def test_adopted_rows_are_told_apart(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state.mkdir()
    old_ledger(state / "ledger.sqlite3", [rows.egress("before")])
    obtain_secrets(MaskingSettings(), state)
    assert verify(state) == 2
    assert "before there was a chain" in said(capsys)[1]
    send(state, 1)
    assert verify(state) == 0
    assert said(capsys)[0]["rows"] == "2, 1 of them older than the chain"


def test_what_cannot_be_told(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verify(state) == 2
    assert "no secret" in said(capsys)[1]
    assert not state.exists()
    send(state, 1)
    (state / SECRET_FILE).rename(tmp_path / "elsewhere")
    assert verify(state) == 2
    (state / SECRET_FILE).write_text("short\n")
    assert verify(state) == 2
    assert "must hold" in said(capsys)[1]
    (tmp_path / "elsewhere").rename(state / SECRET_FILE)
    (state / "ledger.sqlite3").rename(tmp_path / "ledger")
    assert verify(state) == 2
    assert "cannot be read" in said(capsys)[1]
    monkeypatch.setenv("WEIGHBRIDGE_MASKING__SECRET", "short")
    assert verify(state) == 2


@pytest.mark.parametrize("head", ["", "12", "g" * 64, "0" * 65])
def test_a_head_that_is_none(state: Path, head: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(state, "--head", head) == 2
    assert "64 hex digits" in capsys.readouterr().err


def test_it_imports_nothing_heavy_and_changes_nothing(state: Path) -> None:
    send(state, 2)
    before = {file.name: file.read_bytes() for file in state.iterdir() if file.name != "ledger.sqlite3-shm"}
    program = (
        "import sys\n"
        "from weighbridge.gateway.cli import main\n"
        f"status = main(['egress', 'verify', '--state-dir', {str(state)!r}])\n"
        "heavy = {'torch', 'vllm', 'transformers', 'presidio_analyzer', 'spacy', 'fastapi', 'uvicorn', 'aiohttp'}\n"
        "print(status, sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
    after = {file.name: file.read_bytes() for file in state.iterdir()}
    assert {name: after[name] for name in before} == before
