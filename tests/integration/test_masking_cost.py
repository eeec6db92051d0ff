"""A long request is masked without the other streams feeling it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.support.recorder import recording
from tests.support.running import policy_file, running_gateway


async def test_the_second_look_at_a_long_text_does_not_hold_the_loop(tmp_path: Path) -> None:
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        text = "a@b " * 45_000
        asked = asyncio.create_task(
            gateway.chat(model="commercial", messages=[{"role": "user", "content": text}])
        )
        busiest, used = 0.0, time.thread_time()
        while not asked.done():
            await asyncio.sleep(0)
            # CPU of this thread between two turns of the loop: what another stream would have waited for.
            now = time.thread_time()
            busiest, used = max(busiest, now - used), now
        assert asked.result().status_code == 200
        assert busiest < 0.15
