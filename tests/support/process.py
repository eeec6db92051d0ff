"""A gateway as an operator runs it: a process of its own, watched through its output and /proc."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_URL = re.compile(r"https?://[\d.]+:\d+")


def children(pid: int) -> set[int]:
    """Every process below `pid`, however deep."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            below.setdefault(int(fields[1]), []).append(int(entry.name))
    found: set[int] = set()
    todo = [pid]
    while todo:
        for child in below.get(todo.pop(), []):
            found.add(child)
            todo.append(child)
    return found


def alive(pids: set[int]) -> set[int]:
    """Those of `pids` that still run; a zombie does not."""
    left = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            left.add(pid)
    return left


def all_gone(pids: set[int], within_s: float) -> set[int]:
    """Wait until none of `pids` runs; returns those that still do after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while (left := alive(pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


class GatewayProcess:
    """`command` is what follows the interpreter, such as `["-m", "tests.support.fake_gateway", ...]`."""

    def __init__(self, command: Sequence[str], *, log: Path, env: dict[str, str] | None = None) -> None:
        self._command = [sys.executable, *command]
        self._env = {**os.environ, **(env or {})}
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.output = ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def start(self, timeout_s: float = 60) -> None:
        """Start and wait for the command to copy, which comes when the first tier is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=REPOSITORY, env=self._env, stdout=subprocess.PIPE, stderr=log, text=True
            )
        late = threading.Timer(timeout_s, self._process.kill)
        late.start()
        try:
            assert self._process.stdout is not None
            while not (found := _URL.search(self.output)):
                line = self._process.stdout.readline()
                if not line:
                    raise RuntimeError(f"the gateway was not ready in {timeout_s} s:\n{self.log[-4000:]}")
                self.output += line
        finally:
            late.cancel()
        self.url = found.group()

    def kill9(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self, timeout_s: float = 60) -> int:
        """SIGTERM, and the exit status."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill9()
            raise RuntimeError(f"did not stop in {timeout_s} s:\n{self.log[-4000:]}") from None
