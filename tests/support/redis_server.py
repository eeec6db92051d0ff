"""A Redis of the test's own: started on a free port, with its data in a folder of the test, and ended."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.ports import free_port


class RedisServer:
    """`redis-server`, which `scripts/setup.sh` has seen to.

    Args:
        folder: its own.
        options: further options of its command line.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def client(self) -> redis.Redis:
        return redis.Redis(
            host="127.0.0.1", port=self.port, decode_responses=True, retry=Retry(NoBackoff(), 0)
        )

    def start(self) -> None:
        """Start, on the same port as ever and with nothing in it, and wait until it answers."""
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is missing: apt-get install redis-server"
        self._process = subprocess.Popen(
            [
                program,
                *("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"),
                *("--dir", str(self._folder), "--logfile", str(self._folder / "redis.log")),
                *self._options,
            ]
        )
        with self.client() as client:
            for _ in range(400):
                try:
                    client.ping()
                except redis.AuthenticationError:
                    return
                except redis.RedisError:
                    assert self._process.poll() is None, (self._folder / "redis.log").read_text()
                    time.sleep(0.025)
                else:
                    return
        raise RuntimeError("redis-server did not answer")

    def stop(self) -> None:
        """End it at once, as a crash does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def keys(self) -> dict[str, int]:
        """Every key and how many milliseconds it lives; -1: for ever."""
        with self.client() as client:
            return {key: int(client.pttl(key)) for key in client.scan_iter()}

    def leases(self, prefix: str = "weighbridge") -> int:
        """Leases over all places of all tiers."""
        with self.client() as client:
            return sum(int(client.zcard(key)) for key in client.scan_iter(f"{{{prefix}:slots:*}}:leases:*"))


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    server = RedisServer(folder, *options)
    try:
        server.start()
        yield server
    finally:
        server.stop()
