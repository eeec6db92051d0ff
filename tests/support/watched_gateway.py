"""A gateway as a process of its own that says, when asked, how many tasks and open files it has.

`python -m tests.support.watched_gateway CONFIG [TOKEN_S]` is the real gateway with fake engines that judge a body's
types as a real one does. `Watched` starts it and reads what it says.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from tests.support.fake_engine import FakeEngine, Script
from tests.support.process import GatewayProcess
from tests.support.running import policy_file
from weighbridge.config.errors import InvalidRequest
from weighbridge.config.settings import load_settings
from weighbridge.gateway.serve import serve
from weighbridge.observability import ledger_read

MOST_TOKENS = 32


class StrictEngine(FakeEngine):
    """Refuses wrong types, and keeps nothing of the calls it had."""

    def _checked(self, body: dict[str, Any]) -> tuple[int, int, list[str]]:
        self.calls.clear()
        self._seen.clear()
        for name in ("n", "max_tokens", "max_completion_tokens"):
            value = body.get(name)
            if value is not None and (type(value) is not int or not 1 <= value <= 1 << 20):
                raise InvalidRequest(f"{name} must be a whole number above 0.", param=name)
        temperature = body.get("temperature")
        if temperature is not None and type(temperature) not in (int, float):
            raise InvalidRequest("temperature must be a number.", param="temperature")
        stop = body.get("stop")
        if stop is not None and not (
            isinstance(stop, str)
            or (isinstance(stop, list) and all(isinstance(one, str) and one for one in stop))
        ):
            raise InvalidRequest("stop must be text or a list of texts.", param="stop")
        n, limit, stops = super()._checked(body)
        return n, min(limit, MOST_TOKENS), stops


@dataclass(frozen=True)
class Counts:
    """rss: resident bytes. tasks, files: how many."""

    rss: int
    tasks: int
    files: int


class Watched(GatewayProcess):
    def __init__(self, config: Path, *, log: Path, token_s: float = 0.0) -> None:
        super().__init__(["-m", "tests.support.watched_gateway", str(config), str(token_s)], log=log)

    def counts(self) -> Counts:
        """What the gateway says of itself now, after a collection of garbage."""
        assert self._process is not None and self._process.stdout is not None
        os.kill(self.pid, signal.SIGUSR1)
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                return Counts(**json.loads(line))
        raise RuntimeError(f"the gateway is gone:\n{self.log[-4000:]}")

    async def settled(self, within_s: float = 15.0) -> Counts:
        """The counts once tasks and files have stayed the same for a second; the last ones if that never comes."""
        now, same = await asyncio.to_thread(self.counts), 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while same < 10:
                    await asyncio.sleep(0.1)
                    last, now = now, await asyncio.to_thread(self.counts)
                    same = same + 1 if (last.tasks, last.files) == (now.tasks, now.files) else 0
        return now


@asynccontextmanager
async def watched(
    folder: Path,
    upstream: str,
    *,
    token_s: float = 0.0,
    policy: Mapping[str, Any] | None = None,
    **server: Any,
) -> AsyncIterator[Watched]:
    """A gateway with both tiers and the commercial road to `upstream`; `server` are settings of that section."""
    config = folder / "settings.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "server": {"port": 0, **server},
                "masking": {"layers": [], "without_names": "mask"},
                "policies": {"file": str(policy_file(folder, **(policy or {})))},
                "state_dir": str(folder / "state"),
                "tiers": {"local-8b": {}, "local-70b": {}},
                "commercial": {"base_url": upstream, "model": "upstream-model", "breaker_rest_s": 0.5},
            }
        )
    )
    gateway = Watched(config, log=folder / "gateway.log", token_s=token_s)
    await asyncio.to_thread(gateway.start)
    try:
        yield gateway
    finally:
        await asyncio.to_thread(gateway.stop)


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    """The request rows on disk by request id."""
    with contextlib.closing(ledger_read.open_readonly(folder / "state" / "ledger.sqlite3")) as conn:
        found = ledger_read.requests(conn)
    by_id = {row["request_id"]: row for row in found}
    assert len(by_id) == len(found)
    return by_id


def _say_counts(number: int, frame: FrameType | None) -> None:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    counts = {
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
        "tasks": len(asyncio.all_tasks()),
        # One is the folder that is being listed.
        "files": len(os.listdir("/proc/self/fd")) - 1,
    }
    # Not `print`: the signal may have come in the middle of one.
    os.write(1, json.dumps(counts).encode() + b"\n")


def main() -> None:
    signal.signal(signal.SIGUSR1, _say_counts)
    token_s = float(sys.argv[2])
    serve(
        load_settings(Path(sys.argv[1])),
        announce=lambda text: print(text, flush=True),
        engine_factory=lambda road, *_: StrictEngine(road, script=Script(token_s=token_s)),
    )


if __name__ == "__main__":
    main()
