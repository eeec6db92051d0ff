"""A list of known values that changes holds for what leaves after it, though nobody asked in between, and though the
mask was made before."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from tests.support.waiting import until
from weighbridge.masking.known_values import KnownLists

NEW = "Zanzibarov"


def asked(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": f"Label this: {NEW} is late"}]}


def lists_of(gateway: Running) -> KnownLists:
    lists = gateway.parts.masker._known
    assert isinstance(lists, KnownLists)
    return lists


def write(path: Path, content: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(content, "utf-8")
    fresh.replace(path)


async def test_the_first_request_after_a_change_knows_of_it(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    write(path, "somebody else\n")
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            upstream=recorder.base_url,
            policy=policy_file(tmp_path),
            masking={"known_values": {"default": str(path)}},
        ) as gateway,
    ):
        lists = lists_of(gateway)
        before = lists.edition("default")
        write(path, f"somebody else\n{NEW}\n")
        await until(lambda: lists.edition("default") != before, 20)
        assert (await gateway.chat(**asked("commercial"))).status_code == 200
        assert len(recorder.requests) == 1 and NEW.encode() not in recorder.everything
        path.unlink()
        await until(lambda: bool(lists.problems()), 20)
        answer = await gateway.chat(**asked("commercial"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "masking_unavailable")
        assert len(recorder.requests) == 1


async def test_a_mask_made_before_the_change_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    write(path, "somebody else\n")
    engines = {"local-8b": FakeEngine("local-8b", script=Script(first_token_s=12))}
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines=engines,
            tiers={"local-8b": {"slots": 1}},
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=4000),
            masking={"known_values": {"default": str(path)}},
        ) as gateway,
    ):
        holding = asyncio.create_task(gateway.chat(**asked("local-8b")))
        await until(lambda: gateway.slots_in_use() == 1)
        waiting = asyncio.create_task(gateway.chat(**asked("auto")))
        lists = lists_of(gateway)
        before = lists.edition("default")
        # Long enough for the mask to be there.
        await asyncio.sleep(0.5)
        write(path, f"somebody else\n{NEW}\n")
        await until(lambda: lists.edition("default") != before, 20)
        assert not waiting.done()
        answer = await waiting
        assert answer.status_code == 200
        assert len(recorder.requests) == 1 and NEW.encode() not in recorder.everything
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
