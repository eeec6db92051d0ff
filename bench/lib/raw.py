"""vLLM's own server as a process of the benchmark."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from bench.lib.processes import REPOSITORY
from weighbridge.pool.processes import kill, with_descendants


class RawServer:
    """`vllm serve` with the engine of a gateway's settings file, on a free port; see `bench.lib.raw_server`.

    Args:
        folder: made, for its log.
        timeout_s: seconds it may take to be ready.
        module: what is started in its place by a test.
    """

    def __init__(
        self, folder: Path, config: Path, *, timeout_s: float, module: str = "bench.lib.raw_server"
    ) -> None:
        folder.mkdir()
        self._config = config
        self._timeout_s = timeout_s
        self._module = module
        self._log = folder / "log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.command = ""
        """What it became."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def chat_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1/chat/completions"

    def __enter__(self) -> RawServer:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, str(self._config), str(self._port)],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        try:
            self._await()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop()

    def _await(self) -> None:
        until = time.monotonic() + self._timeout_s
        late = threading.Timer(self._timeout_s, self._process.kill)
        late.start()
        try:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
        finally:
            late.cancel()
        if line:
            self.command = shlex.join(["vllm", "serve", *json.loads(line)["serve"]])
        while line and self._process.poll() is None and time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        late_or_dead = f"was not ready in {self._timeout_s:.0f} s" if time.monotonic() >= until else "ended"
        text = self._log.read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"vllm serve {late_or_dead}:\n{text[-4000:]}")

    def _stop(self) -> None:
        below = with_descendants([self._process.pid])
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        kill(below)
