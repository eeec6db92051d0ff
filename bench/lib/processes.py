"""The processes of a benchmark: programs that answer JSON lines, and the gateway. All are context managers."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.process import GatewayProcess

REPOSITORY = Path(__file__).parents[2]
API_KEY = "bench-key"


class Program:
    """`python -m MODULE ARGS`: says one JSON line when it is ready, then answers one JSON line with another.

    It ends when its standard input closes, so none outlives the benchmark.

    Args:
        folder: for what it writes to standard error.
    """

    def __init__(self, folder: Path, module: str, *args: str) -> None:
        self._log = folder / f"{module}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *args],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.pid = self._process.pid

    def ready(self, timeout_s: float = 60) -> dict[str, Any]:
        """Wait for the first line."""
        return self._line(timeout_s)

    def ask(self, job: dict[str, Any], timeout_s: float = 120) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return self._line(timeout_s)

    def _line(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        late = threading.Timer(timeout_s, self._process.kill)
        late.start()
        try:
            line = self._process.stdout.readline()
        finally:
            late.cancel()
        if not line:
            raise RuntimeError(f"no answer from {self._process.args}:\n{_tail(self._log)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Gateway:
    """The gateway as a process of its own, with an API key and a fresh state folder.

    Args:
        folder: made, for its settings, state and log.
        settings: sections over the shipped defaults.
        token_s: seconds between the tokens of the fake engine; None serves the real one.
        timeout_s: seconds it may take to be ready.
    """

    def __init__(
        self, folder: Path, settings: dict[str, Any], *, token_s: float | None, timeout_s: float = 60
    ) -> None:
        folder.mkdir()
        self.config = folder / "weighbridge.yaml"
        key_hash = hashlib.sha256(API_KEY.encode()).hexdigest()
        # JSON is YAML.
        self.config.write_text(
            json.dumps(
                {
                    "state_dir": str(folder / "state"),
                    "server": {"port": 0},
                    "auth": {"keys": [{"id": "bench", "sha256": key_hash}]},
                    **settings,
                }
            )
        )
        command = (
            ["-m", "weighbridge.gateway.cli", "serve", "--config", str(self.config)]
            if token_s is None
            else ["-m", "tests.support.fake_gateway", str(self.config), str(token_s)]
        )
        self._timeout_s = timeout_s
        self._log = folder / "log"
        self._process = GatewayProcess(
            command, log=self._log, env={"WEIGHBRIDGE_COMMERCIAL__API_KEY": "upstream-key"}
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def chat_url(self) -> str:
        return f"{self._process.url}/v1/chat/completions"

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {API_KEY}"}

    def __enter__(self) -> Gateway:
        try:
            self._process.start(self._timeout_s)
            self._await_masking()
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.stop()

    def _await_masking(self) -> None:
        until = time.monotonic() + 30
        while True:
            with urllib.request.urlopen(f"{self._process.url}/health/ready", timeout=5) as answer:
                masking = json.load(answer)["parts"]["masking"]
            if masking["ready"] or not masking["needed"]:
                return
            if time.monotonic() > until:
                raise RuntimeError(f"masking is not ready:\n{_tail(self._log)}")
            time.sleep(0.1)


def forget_settings() -> None:
    """Take the caller's own gateway settings out of the environment, or they would reach the gateways measured."""
    for name in list(os.environ):
        if name.startswith("WEIGHBRIDGE_"):
            del os.environ[name]


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-3000:]
