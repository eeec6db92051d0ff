"""Long requests beside a stream: none of them holds the event loop for long, whichever road it takes.

What is measured is the CPU time of the loop's own thread between two turns of a timer, which other programs on the
machine do not touch, and how late that timer came. The second counts what holds the interpreter in other threads as
well, and whatever else the machine does, so its best of a few tries is taken.
"""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import Mode, threaded
from tests.support.running import policy_file, running_gateway
from weighbridge.config.roads import LOCAL_ROADS
from weighbridge.observability.metrics import Metrics
from weighbridge.pool import engine_body
from weighbridge.pool.engine import EngineCall, EngineOverloaded
from weighbridge.pool.threads import in_thread

pytestmark = pytest.mark.slow

CPU_S = 0.050
WALL_S = 0.050
TRIES = 5
LOOPS = 3
BUSY = 2
"""A stall may last `LOOPS` times as long as one beside so many plain loops in threads, if that is more than `WALL_S`:
masking and the policy's patterns look at a text at the same time."""
MEGABYTES_5 = 5_000_000
WINDOW = 131_072
TOKENS = 3
"""The long requests ask for so many tokens; the steady stream for more."""


class QuickEngine(FakeEngine):
    """Takes a body over as vLLM's adapter does, and costs next to nothing itself, however long the prompt."""

    full = False

    async def count_tokens(self, body: dict[str, Any]) -> int:
        await self._take(body)
        return 1

    async def stream(self, call: EngineCall) -> AsyncIterator[bytes]:  # type: ignore[override]
        if self.full and call.body["max_tokens"] == TOKENS:
            raise EngineOverloaded
        await self._take(call.body)
        short = {**call.body, "messages": [{"role": "user", "content": "Go."}], "tools": None}
        async for event in super().stream(replace(call, body=short)):
            yield event

    async def _take(self, body: dict[str, Any]) -> None:
        await engine_body.prepare(body, model=self.road, request_id="id", stream=True)


# ---- long requests ----


def text(content: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


def messages(count: int, chars: int) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": f"number {n} ".ljust(chars // count - 40, "x")} for n in range(count)
        ]
    }


def tools(count: int) -> dict[str, Any]:
    """Wide and deep schemas of some 50 values a piece and 5 MB in all."""
    made = []
    for n in range(count):
        deep: dict[str, Any] = {"type": "string", "description": "d" * (MEGABYTES_5 // count - 600)}
        for level in range(8):
            deep = {"type": "object", "properties": {f"level_{level}": deep, f"beside_{level}": {}}}
        made.append({"type": "function", "function": {"name": f"tool_{n}", "parameters": deep}})
    return {"messages": [{"role": "user", "content": "Which tool?"}], "tools": made}


LETTERS = str.maketrans("0123456789", "abcdefghij")
KOREAN = "대한민국의 수도는 서울이며, 회의록은 내일까지 정리해 주세요. "
LONG: dict[str, Callable[[], dict[str, Any]]] = {
    "one long text": lambda: text("word " * (MEGABYTES_5 // 5)),
    "one long text with escapes": lambda: text('"\n\\\t' * (MEGABYTES_5 // 8)),
    "50,000 messages": lambda: messages(50_000, MEGABYTES_5),
    "19,000 messages": lambda: messages(19_000, MEGABYTES_5),
    "1,100 nested schemas": lambda: tools(1_100),
    "30,000 tokens of Korean": lambda: text((KOREAN * 1_300)[:40_000]),
    # As much as masking takes.
    "45,000 addresses": lambda: text("a@b " * 45_000),
    "200,000 characters of digits": lambda: text("111111x" * 28_000),
    "3,900 texts in 6,000 messages": lambda: {
        # Without digits: numbers that adjoin over messages are looked at together, as more texts.
        "messages": [{"role": "user", "content": f"t{n % 3_900}".translate(LETTERS)} for n in range(6_000)]
    },
}
REFUSED_AS_JSON = {"50,000 messages"}
MASKED = {
    "30,000 tokens of Korean",
    "45,000 addresses",
    "200,000 characters of digits",
    "3,900 texts in 6,000 messages",
}


def expected(name: str, way: str) -> int:
    if name in REFUSED_AS_JSON:
        return 400
    if way == "local-8b" or name in MASKED:
        return 200
    # More than masking takes: it does not leave.
    return 403 if way == "commercial" else 429


# ---- the gateway, a steady stream, and callers in threads of their own ----


def post(port: int, body: bytes) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


@dataclass
class Steady:
    """A caller who reads one token each 5 ms."""

    port: int
    stop: threading.Event = field(default_factory=threading.Event)
    events: int = 0

    def read(self) -> None:
        ask = {"model": "local-70b", "stream": True, "max_tokens": 100_000, **text("Count.")}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(
            "POST", "/v1/chat/completions", json.dumps(ask), {"content-type": "application/json"}
        )
        answer = connection.getresponse()
        while not self.stop.is_set() and answer.readline():
            self.events += 1
        connection.close()


@dataclass(frozen=True)
class Stall:
    """The longest one, in seconds."""

    cpu: float
    wall: float


@dataclass
class Rig:
    port: int
    engines: dict[str, QuickEngine]
    steady: Steady
    metrics: Metrics

    async def send(self, name: str, way: str, at_once: int = 1) -> Stall:
        """Send a long request and sample the loop each millisecond until it is answered."""
        for engine in self.engines.values():
            engine.full = way == "auto"
        ask = {"model": way, "stream": True, "max_tokens": TOKENS, **LONG[name]()}
        body = json.dumps(ask, ensure_ascii=False).encode()
        del ask
        answered = asyncio.gather(
            *(in_thread(lambda: post(self.port, body), "caller") for _ in range(at_once))
        )
        before = self.steady.events
        stall = await worst_until(answered)
        assert answered.result() == [expected(name, way)] * at_once
        assert self.steady.events > before
        return stall

    async def beside_loops(self) -> Stall:
        """What plain loops in other threads do to this one: how long this machine makes threads wait today."""
        return await worst_until(asyncio.gather(*(in_thread(_spin, "loop") for _ in range(BUSY))))


def _spin() -> None:
    ends = time.monotonic() + 0.5
    while time.monotonic() < ends:
        pass


async def worst_until(done: asyncio.Future[Any]) -> Stall:
    """Sample the loop each millisecond until `done`."""
    cpu = wall = 0.0
    used, at = time.thread_time(), time.monotonic()
    while not done.done():
        await asyncio.sleep(0.001)
        used_now, now = time.thread_time(), time.monotonic()
        cpu, wall = max(cpu, used_now - used), max(wall, now - at - 0.001)
        used, at = used_now, now
    return Stall(cpu, wall)


@asynccontextmanager
async def rigged(folder: Path) -> AsyncIterator[Rig]:
    engines = {
        road: QuickEngine(road, max_model_len=WINDOW, script=Script(token_s=0.005)) for road in LOCAL_ROADS
    }
    with threaded(Mode(reply="Fine.")) as recorder:
        async with running_gateway(
            folder,
            engines=engines,
            upstream=recorder.base_url,
            policy=policy_file(folder),
            tiers={road: {"max_model_len": WINDOW} for road in engines},
            masking={"task_timeout_s": 60.0},
        ) as gateway:
            port = int(gateway.url.rpartition(":")[2])
            steady = Steady(port)
            reading = in_thread(steady.read, "steady")
            try:
                async with asyncio.timeout(30):
                    while not steady.events:
                        await asyncio.sleep(0.01)
                yield Rig(port, engines, steady, gateway.parts.metrics)
            finally:
                steady.stop.set()
                await reading


@pytest.mark.parametrize("way", ["local-8b", "auto", "commercial"])
async def test_a_long_request_holds_no_stream_up(way: str, tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        seen: dict[str, Stall] = {}
        late: dict[str, tuple[Stall, Stall]] = {}
        for name in LONG:
            for _ in range(TRIES):
                stall = await rig.send(name, way)
                seen[name] = min(seen.get(name, stall), stall, key=lambda one: one.wall)
                if stall.cpu < CPU_S and stall.wall < WALL_S:
                    break
            else:
                # On a machine where threads wait long for each other today, the limit is what plain loops do to us.
                plain = await rig.beside_loops()
                if seen[name].cpu >= CPU_S or seen[name].wall >= max(WALL_S, LOOPS * plain.wall):
                    late[name] = seen[name], plain
        for name, stall in seen.items():
            print(f"{way}, {name}: {stall.cpu * 1e3:.1f} ms CPU, {stall.wall * 1e3:.1f} ms in all")
        assert not late


async def test_the_gateway_watches_its_loop_and_leaves_what_was_imported_uncollected(tmp_path: Path) -> None:
    gc.unfreeze()
    async with rigged(tmp_path) as rig:
        assert gc.get_freeze_count() > 1_000
        metrics = rig.metrics
        seen = metrics.event_loop_lag_seconds.count
        async with asyncio.timeout(10):
            while metrics.event_loop_lag_seconds.count < seen + 2:
                await asyncio.sleep(0.05)
        assert metrics.event_loop_lag_worst_seconds.value > 0


async def test_many_long_requests_at_once_take_turns(tmp_path: Path) -> None:
    async with rigged(tmp_path) as rig:
        for name in ("19,000 messages", "1,100 nested schemas"):
            stall = await rig.send(name, "local-8b", at_once=6)
            print(f"{name}: {stall.cpu * 1e3:.1f} ms CPU, {stall.wall * 1e3:.1f} ms in all")
            assert stall.cpu < CPU_S, f"{name}: {stall}"
