"""Waiting for what no event tells, and reading answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any


async def until(true: Callable[[], bool], within_s: float = 5.0) -> None:
    """Raises: TimeoutError when it does not come true."""
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.002)


def events(text: str) -> list[Any]:
    """The events of a stream; `[DONE]` stays text, comments are left out."""
    found = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [event if event == "[DONE]" else json.loads(event) for event in found]


def comments(text: str) -> list[str]:
    """The comments of a stream, without their colon."""
    return [line[1:].strip() for line in text.splitlines() if line.startswith(":")]


def content(text: str, index: int = 0) -> str:
    """What a stream says, all pieces together."""
    pieces = [
        choice["delta"].get("content") or ""
        for event in events(text)
        if event != "[DONE]" and "choices" in event
        for choice in event["choices"]
        if choice["index"] == index
    ]
    return "".join(pieces)
