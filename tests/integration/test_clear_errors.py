"""What an operator gets wrong is told in one line, with an exit status and without a traceback."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.ledger_rows import CHAIN_KEY
from tests.support.process import REPOSITORY, GatewayProcess
from weighbridge.config.clock import SystemClock
from weighbridge.observability.ledger import Ledger


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weighbridge.gateway.cli", *args],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )


def written(folder: Path, name: str, document: object) -> str:
    path = folder / name
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(path)


def one_line(result: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    assert result.returncode == status, result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("command", ["serve", "check"])
def test_unknown_key(tmp_path: Path, command: str) -> None:
    config = written(tmp_path, "s.yaml", {"server": {"prot": 9000}})
    one_line(run(command, "--config", config), 2, "s.yaml:2:3", "server.prot")


def test_unknown_policy_key(tmp_path: Path) -> None:
    policy = written(tmp_path, "p.yaml", {"version": 1, "name": "x", "egress": "never", "surprise": 1})
    one_line(run("check", "--policy", policy), 2, "p.yaml:3:1", "surprise", "unknown key")


@pytest.mark.parametrize("command", ["serve", "check"])
def test_missing_model_folder(tmp_path: Path, command: str) -> None:
    config = written(tmp_path, "s.yaml", {"tiers": {"local-8b": {"model_path": str(tmp_path / "none")}}})
    one_line(run(command, "--config", config), 2, "model_path", "no model folder at")
    one_line(
        run("serve", "--8b", str(tmp_path / "none"), "--state-dir", str(tmp_path)), 2, "no model folder at"
    )


@pytest.mark.parametrize("size", [8, 48, 100])
def test_illegal_block_size(tmp_path: Path, size: int) -> None:
    config = written(tmp_path, "s.yaml", {"tiers": {"local-8b": {"block_size": size}}})
    for command in ("check", "serve"):
        one_line(run(command, "--config", config), 2, "s.yaml:3:5: tiers.local-8b.block_size: ", "32")


def test_busy_port(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        one_line(
            run("serve", "--port", str(port), "--state-dir", str(tmp_path)), 1, f"127.0.0.1:{port}", "in use"
        )


def test_second_gateway_on_one_spool(tmp_path: Path) -> None:
    config = written(tmp_path, "s.yaml", {"server": {"port": 0}, "state_dir": str(tmp_path / "state")})
    first = GatewayProcess(["-m", "tests.support.fake_gateway", config], log=tmp_path / "log")
    first.start()
    try:
        one_line(run("serve", "--config", config), 1, "ledger.sqlite3", str(first.pid))
    finally:
        assert first.stop() == 0
    # The first one's end set the spool free.
    Ledger.open(tmp_path / "state" / "ledger.sqlite3", clock=SystemClock(), chain_key=CHAIN_KEY).close_sync()
