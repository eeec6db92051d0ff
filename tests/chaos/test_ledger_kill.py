"""kill -9 at any moment loses no record that was promised, invents none, and leaves the egress chain whole."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import ledger_driver as driver
from weighbridge.config.clock import SystemClock
from weighbridge.observability import ledger_read
from weighbridge.observability.egress_verify import Verdict, verify_file
from weighbridge.observability.ledger import Ledger

ROUNDS = 200
LOOK_EVERY = 10
"""Rounds between two looks at the chain as the kill left it."""
HANG_S = 60.0


@dataclass
class Promised:
    """What the driver said was durable."""

    intents: set[str] = field(default_factory=set)
    progress: dict[str, int] = field(default_factory=dict)
    egress: set[str] = field(default_factory=set)
    completions: set[str] = field(default_factory=set)
    opened: int = 0

    def hear(self, line: bytes) -> None:
        if not line.endswith(b"\n"):
            return  # cut off by the kill: a promise nobody heard
        match line.decode().split():
            case ["I", request_id]:
                self.intents.add(request_id)
            case ["P", request_id, step]:
                self.progress[request_id] = int(step)
            case ["E", request_id]:
                self.egress.add(request_id)
            case ["C", request_id]:
                self.completions.add(request_id)
            case ["ready", _]:
                self.opened += 1


def start(spool: Path, number: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, driver.__file__, str(spool), f"{number:04d}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


@contextmanager
def watched(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A driver that says nothing is a failure, not a test that never ends."""
    timer = threading.Timer(HANG_S, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def one_round(process: subprocess.Popen[bytes], rng: random.Random, promised: Promised) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"imported\n"
    process.stdin.write(b"go\n")
    process.stdin.flush()
    if rng.random() < 0.15:
        time.sleep(rng.uniform(0, 0.02))  # while it migrates, recovers or writes its first rows
    else:
        line = process.stdout.readline()
        assert line.startswith(b"ready"), line
        promised.hear(line)
        for _ in range(rng.randrange(120)):
            line = process.stdout.readline()
            assert line, "the driver died by itself"
            promised.hear(line)
        if rng.random() < 0.5:
            time.sleep(rng.uniform(0, 0.003))
    process.kill()
    for line in process.stdout:
        promised.hear(line)
    process.wait()


def check_chain(spool: Path, promised: Promised, earlier: Verdict | None) -> Verdict:
    """The chain is whole, runs through where it ended before, and holds what was promised."""
    found = verify_file(spool, [driver.CHAIN_KEY], None if earlier is None else earlier.head)
    assert found.bad_seq is None, found.fault
    assert found.rows >= len(promised.egress)
    return found


def run_rounds(spool: Path, rng: random.Random) -> Promised:
    promised, seen = Promised(), None
    waiting = start(spool, 0)
    try:
        for number in range(ROUNDS):
            current, waiting = waiting, start(spool, number + 1)  # the next one imports meanwhile
            try:
                with watched(current):
                    one_round(current, rng, promised)
            finally:
                end(current)
            if number % LOOK_EVERY == LOOK_EVERY - 1:  # as the kill left it, before anybody repairs anything
                seen = check_chain(spool, promised, seen)
    finally:
        end(waiting)
    return promised


def check_request(row: dict[str, Any], attempts: int, promised: Promised) -> None:
    request_id = row["request_id"]
    prompt, steps = driver.prompt_of(request_id), driver.steps_of(request_id)
    tokens = (row["prompt_tokens"], row["completion_tokens"])
    if row["outcome"] == "ok":
        assert tokens == (prompt, driver.completion_of(request_id))
        assert row["tokens_exact"] is True
        assert attempts == steps
        return
    assert row["outcome"] == "lost"
    assert request_id not in promised.completions
    assert row["tokens_exact"] is False
    # Progress is written before the attempt of the same number, in that commit or an earlier one.
    step, rest = divmod(row["completion_tokens"], driver.STEP)
    assert rest == 0
    assert step in (attempts, attempts + 1)
    assert promised.progress.get(request_id, 0) <= step <= steps
    assert row["prompt_tokens"] == (prompt if step else 0)


def test_kill_9_two_hundred_times(tmp_path: Path) -> None:
    spool = tmp_path / "ledger.sqlite3"
    promised = run_rounds(spool, random.Random(20261129))
    assert promised.opened > ROUNDS / 2
    assert len(promised.completions) > ROUNDS
    assert len(promised.intents) > len(promised.completions)

    Ledger.open(spool, clock=SystemClock(), chain_key=driver.CHAIN_KEY).close_sync()

    with closing(ledger_read.open_readonly(spool)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        rows = ledger_read.requests(conn)
        tried: dict[str, set[int]] = {}
        for attempt in ledger_read.attempts(conn):
            tried.setdefault(attempt["request_id"], set()).add(attempt["n"])
        sent = [row["egress_id"] for row in ledger_read.egress(conn)]
    ids = [row["request_id"] for row in rows]
    assert len(ids) == len(set(ids))
    assert promised.intents <= set(ids)
    assert {driver.egress_id_of(request_id) for request_id in promised.egress} <= set(sent)
    assert check_chain(spool, promised, None).rows == len(sent) > ROUNDS / 4
    for request_id, step in promised.progress.items():
        assert set(range(1, step + 1)) <= tried[request_id]
    for row in rows:
        check_request(row, max(tried.get(row["request_id"], {0})), promised)
    outcomes = {row["request_id"]: row["outcome"] for row in rows}
    assert {outcomes[request_id] for request_id in promised.completions} == {"ok"}
    assert sum(outcome == "lost" for outcome in outcomes.values()) > ROUNDS / 2
    assert None not in outcomes.values()
