"""A request that waits for a slot is masked while it waits, so that it can leave at the lock timeout."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import recording
from tests.support.running import policy_file, running_gateway
from weighbridge.masking.detector_pool import DetectorPool
from weighbridge.masking.detector_queue import Speculation

ASKED = {
    "model": "auto",
    "messages": [{"role": "user", "content": "Label this as spam or not: call 010-2345-6789"}],
}
SLOW_S = 0.5


class Watch:
    """Makes every masking slow, and notes how each began and ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, bool]] = []
        find = DetectorPool.find

        async def slow(
            pool: DetectorPool, *args: Any, speculation: Speculation | None = None, **more: Any
        ) -> Any:
            begun_ahead = speculation is not None and not speculation.promoted
            try:
                await asyncio.sleep(SLOW_S)
                found = await find(pool, *args, speculation=speculation, **more)
            except asyncio.CancelledError:
                self.seen.append(("dropped", begun_ahead))
                raise
            self.seen.append(("made", begun_ahead))
            return found

        monkeypatch.setattr(DetectorPool, "find", slow)


async def busy_engine(gateway: Any) -> asyncio.Task[Any]:
    """Takes the only slot."""
    holding = asyncio.create_task(gateway.chat(**ASKED))
    async with asyncio.timeout(10):
        while not gateway.slots_in_use():
            await asyncio.sleep(0.005)
    return holding


@pytest.mark.parametrize("stream", [False, True])
async def test_the_mask_is_ready_at_the_lock_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    watch = Watch(monkeypatch)
    engines = {"local-8b": FakeEngine("local-8b", script=Script(first_token_s=3))}
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines=engines,
            tiers={"local-8b": {"slots": 1}},
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=1000),
        ) as gateway,
    ):
        holding = await busy_engine(gateway)
        left = await gateway.chat(**ASKED, stream=stream)
        assert left.status_code == 200
        assert b"2345" not in recorder.said
        (row,) = [row for row in gateway.egress()]
        (attempts,) = [
            gateway.attempts(request["request_id"])
            for request in gateway.rows()
            if request["road"] == "commercial"
        ]
        holding.cancel()
    assert watch.seen == [("made", True)]
    waited, sent = attempts
    assert waited["outcome"] == "queue_timeout"
    # The slow masking took place before the timeout: what follows it is only the sending.
    assert row["at_ns"] - waited["ended_ns"] < SLOW_S / 2 * 1e9
    assert sent["outcome"] == "ok"


async def test_a_slot_in_time_drops_the_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    engines = {"local-8b": FakeEngine("local-8b", script=Script(first_token_s=0.3))}
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines=engines,
            tiers={"local-8b": {"slots": 1}},
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=5000),
        ) as gateway,
    ):
        holding = await busy_engine(gateway)
        served = await gateway.chat(**ASKED)
        assert served.headers["x-weighbridge-road"] == "local-8b"
        await holding
        assert not recorder.requests
    assert watch.seen == [("dropped", True)]
