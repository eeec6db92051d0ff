"""Mixed load with faults, cancels and hostile bodies: afterwards the gateway is as large and as busy as before."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_hostile_bodies import Attack, MiB, Provider, _sound, healthy
from tests.support.hostile_bodies import MODELS, Case, Maker, dumps
from tests.support.raw_http import exchange
from tests.support.recorder import (
    CUT,
    ERROR_EVENT,
    MALFORMED,
    MISSING_DONE,
    NO_USAGE,
    NOT_JSON,
    RESET,
    STALL_BODY,
    STATUS_500,
    Connection,
    Mode,
    Seen,
    delay,
    status,
)
from tests.support.watched_gateway import rows, watched

FAULTS = (
    STATUS_500,
    status(429, retry_after="1"),
    RESET,
    STALL_BODY,
    CUT,
    MALFORMED,
    MISSING_DONE,
    ERROR_EVENT,
    NO_USAGE,
    NOT_JSON,
    delay(30),
)
SHORT = {
    "connect_s": 1,
    "headers_s": 0.5,
    "first_token_s": 0.5,
    "gap_s": 0.5,
    "document_s": 0.5,
    "total_s": 5,
}


class Unreliable(Provider):
    """Every fourth answer goes wrong, each time in another way."""

    def __init__(self) -> None:
        super().__init__()
        self._rng = random.Random(7)
        self.sound = False

    def choose(self, seen: Seen, connection: Connection) -> Mode:
        # What came is of no interest here, and would be held for ever.
        connection.raw.clear()
        connection.requests.clear()
        self.connections[:] = [one for one in self.connections if not one.closed.is_set()]
        if not self.sound and self._rng.random() < 0.25 and _sound(seen.json):
            return self._rng.choice(FAULTS)
        return super().choose(seen, connection)


class Load(Attack):
    """Callers that ask one thing after the other until it is enough."""

    async def keep_on(self, seconds: float, callers: int, seed: int) -> None:
        end = time.monotonic() + seconds

        async def caller(number: int) -> None:
            rng = random.Random(f"{seed}/{number}")
            while time.monotonic() < end:
                if rng.random() < 0.25:
                    await self._one(seed, rng.randrange(1 << 30))
                else:
                    await self._ask(rng)

        async with asyncio.TaskGroup() as group:
            for number in range(callers):
                group.create_task(caller(number))

    async def _ask(self, rng: random.Random) -> None:
        maker = Maker(rng.randrange(1 << 30), 0, self._port)
        body: dict[str, Any] = {
            "model": rng.choice(MODELS),
            "messages": [{"role": "user", "content": f"{maker.marker} says hello"}],
            "max_tokens": rng.randrange(1, 24),
            "stream": rng.random() < 0.6,
        }
        leaves = rng.random() < 0.15
        case = Case("asks", (maker.request(dumps(body)),), maker.marker, whole=not leaves)
        await self.judged(case, rng.random() * 0.2 if leaves else 30.0)


@pytest.mark.parametrize(
    ("warm_s", "seconds", "callers", "growth"),
    [(2, 5, 40, 10 * MiB), pytest.param(20, 60, 200, 5 * MiB, marks=pytest.mark.soak)],
)
async def test_a_loaded_gateway_comes_back_to_where_it_was(
    tmp_path: Path, warm_s: float, seconds: float, callers: int, growth: int
) -> None:
    async with Unreliable() as provider:
        provider.mode = Mode(piece=64)
        limits = {"commercial": SHORT, "local": {"first_token_s": 10, "gap_s": 10, "total_s": 20}}
        async with watched(
            tmp_path, provider.base_url, token_s=0.002, policy={"limits": limits}, request_timeout_s=3
        ) as gateway:
            load = Load(gateway)
            await load.keep_on(warm_s, callers, 1)
            await load.run(3, range(callers), "large")
            provider.hang_up()
            before = await gateway.settled()
            asked = load.kinds.total()
            await load.keep_on(seconds, callers, 2)
            provider.hang_up()
            after = await gateway.settled()
            provider.sound = True
            await recovered(load, gateway.url)
            await healthy(gateway)
    print(load.kinds, load.statuses, load.codes, before, after, sep="\n")
    assert not load.faults, f"{len(load.faults)} faults:\n" + "\n".join(load.faults[:30])
    log = gateway.log
    assert "Traceback" not in log and "unexpected" not in log, log[-4000:]
    assert "ZQ" not in log
    assert load.kinds.total() - asked > callers
    assert (after.tasks, after.files) == (before.tasks, before.files)
    assert after.rss - before.rss <= growth
    found = rows(tmp_path)
    assert load.admitted <= set(found)
    assert not load.refused & set(found)
    assert all(row["outcome"] for row in found.values())


async def recovered(load: Load, url: str) -> None:
    """Returns once the breaker of the commercial road has let a request through again."""
    port = int(url.rpartition(":")[2])
    body = dumps({"model": "commercial", "messages": [{"role": "user", "content": "hello"}]})
    async with asyncio.timeout(30):
        while (await exchange(port, Maker(0, 0, port).request(body))).answers[0].status != 200:
            await asyncio.sleep(0.5)
