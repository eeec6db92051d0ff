"""Two vLLM tiers in one process: one engine dies, then the process itself. Nothing may be left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weighbridge.pool.processes import ProcessId, alive, identify

ROOT = Path(__file__).resolve().parents[2]
GONE_S = 5.0


class Driver:
    """`tests.support.engine_driver` in a process of its own."""

    def __init__(self, register: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.engine_driver", str(register)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")

    def hear(self, event: str) -> dict[str, Any]:
        """The next event, which must be of this kind; the pipe's end fails the test."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the driver has ended"
        heard: dict[str, Any] = json.loads(line)
        assert heard["event"] == event, heard
        return heard

    def ask(self, road: str) -> dict[str, Any]:
        self.tell(f"ask {road}")
        return self.hear("answer")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    made = Driver(tmp_path / "state" / "engines.json")
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.engine
def test_a_dead_engine_and_a_killed_gateway(driver: Driver, tmp_path: Path) -> None:
    driver.hear("loading")
    ready = driver.hear("ready")
    processes: dict[str, list[ProcessId]] = {
        road: [identify(pid) or pytest.fail(f"{road}: {pid} is gone") for pid in pids]
        for road, pids in ready["processes"].items()
    }
    assert all(len(found) == 2 for found in processes.values()), "a core and a worker each"
    recorded = json.loads((tmp_path / "state" / "engines.json").read_text())
    engines = [pid for pids in ready["processes"].values() for pid in pids]
    assert [pid for pid, _ in recorded] == [driver.process.pid, *engines]

    assert driver.ask("local-8b")["text"] == driver.ask("local-70b")["text"] != ""

    # One engine dies: its calls end, its tier is dead, the other tier does not notice.
    driver.tell("hold local-8b")
    driver.hear("holding")
    os.kill(processes["local-8b"][1].pid, signal.SIGKILL)
    ended = driver.hear("ended")
    assert (ended["error"], ended["road"]) == ("EngineUnavailable", "local-8b")
    assert ended["tokens"] > 0
    driver.tell("status")
    states = driver.hear("status")["tiers"]
    assert states["local-8b"] in ("dead", "failed") and states["local-70b"] == "ready"
    assert driver.ask("local-70b")["tokens"] == 12

    # The gateway itself is killed with work under way.
    driver.tell("hold local-70b")
    driver.hear("holding")
    driver.process.kill()
    everything = [process for found in processes.values() for process in found]
    assert wait_until(lambda: not any(alive(process) for process in everything), GONE_S), [
        process for process in everything if alive(process)
    ]
