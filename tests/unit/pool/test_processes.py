"""Processes told by number and start time; killing what a crash left and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from weighbridge.pool.processes import EngineRegister, ProcessId, alive, identify, kill, with_descendants

SLEEP = "import time; time.sleep(600)"
NEST = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); print('up', flush=True); {SLEEP}"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", SLEEP])
    yield child
    child.kill()
    child.wait()


def known(pid: int) -> ProcessId:
    found = identify(pid)
    assert found is not None
    return found


def test_a_process_is_alive_until_it_ends(sleeper: subprocess.Popen[bytes]) -> None:
    process = known(sleeper.pid)
    assert alive(process)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not alive(process), "ended but not waited for"
    sleeper.wait()
    assert not alive(process)
    assert identify(sleeper.pid) is None


def test_a_number_used_again_is_another_process(sleeper: subprocess.Popen[bytes]) -> None:
    process = known(sleeper.pid)
    former = ProcessId(process.pid, process.started - 1)
    assert not alive(former)
    assert kill([former]) == []
    assert alive(process)


def test_descendants_are_found_and_killed_together() -> None:
    parent = subprocess.Popen([sys.executable, "-c", NEST], stdout=subprocess.PIPE)
    assert parent.stdout is not None and parent.stdout.readline() == b"up\n"
    family = with_descendants([parent.pid])
    assert family[0].pid == parent.pid and len(family) == 2
    assert kill(family) == family
    assert not any(alive(process) for process in family)
    parent.wait()
    assert with_descendants([parent.pid]) == []


def test_a_process_name_with_blanks_and_parentheses_is_read_right(tmp_path: Path) -> None:
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to("/bin/sleep")
    child = subprocess.Popen([str(odd), "600"])
    try:
        assert os.getpid() in [process.pid for process in with_descendants([os.getpid()])]
        assert known(child.pid).started >= known(os.getpid()).started
    finally:
        child.kill()
        child.wait()


def test_what_a_gateway_that_is_gone_left_is_killed(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    path = tmp_path / "new" / "engines.json"
    engine = known(sleeper.pid)
    register = EngineRegister(path)
    register.write([engine])
    rows = json.loads(path.read_text())
    rows[0][1] -= 1  # the gateway of that number was another process
    path.write_text(json.dumps(rows))
    assert register.prune() == [engine]
    assert not alive(engine)
    assert not path.exists()


def test_the_engines_of_a_gateway_that_lives_are_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    register = EngineRegister(tmp_path / "engines.json")
    register.write([known(sleeper.pid)])
    assert register.prune() == []
    assert sleeper.poll() is None
    register.clear()
    register.clear()
    assert register.prune() == []


@pytest.mark.parametrize("text", ["", "{", "[[1]]", "[1, 2]", '[["x", "y"]]', "[]", "null"])
def test_a_register_that_makes_no_sense_kills_nobody(tmp_path: Path, text: str) -> None:
    path = tmp_path / "engines.json"
    path.write_text(text)
    assert EngineRegister(path).prune() == []
