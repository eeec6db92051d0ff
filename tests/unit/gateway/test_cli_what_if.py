"""`weighbridge what-if`, over a ledger with a few requests in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import ledger_rows as rows
from weighbridge.config.clock import SystemClock
from weighbridge.gateway import cli
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.ledger_read import LEDGER_FILE


@pytest.fixture
async def state(tmp_path: Path) -> Path:
    ledger = Ledger.open(tmp_path / LEDGER_FILE, clock=SystemClock(), chain_key=rows.CHAIN_KEY)
    for n, score in enumerate((0.1, 0.47, 0.9)):
        name = f"r{n}"
        await ledger.intent(rows.intent(name, score=score, task="knowledge", p_70b_fails=0.125))
        await ledger.completion(rows.completion(name))
    await ledger.close()
    return tmp_path


def test_it_tells_who_would_move(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["what-if", "--state-dir", str(state), "--local-8b", "0.5"]
    assert cli.main(command) == 0
    out = capsys.readouterr().out
    assert "3 requests, of them 3 that the gateway chose a road for" in out
    assert [line.split() for line in out.splitlines() if line.startswith("local-70b ")][1:] == [
        ["local-70b", "local-8b", "1", "30", "0.1", "0.2", "0"]
    ]
    assert cli.main([*command, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["shifts"][0]["requests"] == 1 and found["cost_change_nano_per_day"] is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --local-8b or --local-70b"),
        (["--local-8b", "2"], "bounds.local_8b"),
        (["--local-8b", "nan"], "bounds.local_8b"),
        (["--local-8b", "0.9"], "no policy"),
        (["--local-8b", "0.5", "--last", "0"], "--last of 1 or more"),
    ],
)
def test_what_it_cannot_tell(
    state: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["what-if", "--state-dir", str(state), *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err and not said.out and said.err.count("\n") == 1


def test_without_a_ledger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["what-if", "--state-dir", str(tmp_path), "--local-8b", "0.5"]) == 2
    assert LEDGER_FILE in capsys.readouterr().err
