"""An engine and the event loop it lives in, for tests that run on the fake engine and on vLLM alike."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import pytest

from weighbridge.config.usage import TokenMeter
from weighbridge.pool.engine import Engine, EngineCall, Trail

T = TypeVar("T")
WINDOW = 512
"""Tokens of context of the contract's engines."""
ADAPTER = "tiny"
"""Their LoRA adapter."""

both = pytest.mark.parametrize("kind", ["fake", pytest.param("vllm", marks=pytest.mark.engine)])
vllm_only = pytest.mark.parametrize("kind", [pytest.param("vllm", marks=pytest.mark.engine)])

_serial = count(1)


@dataclass
class Answer:
    """What a call gave."""

    call: EngineCall
    documents: list[dict[str, Any]] = field(default_factory=list)
    """The completion, or the chunks of a stream."""

    @property
    def meter(self) -> TokenMeter:
        return self.call.meter

    def text(self, index: int = 0) -> str:
        pieces: list[str] = []
        for document in self.documents:
            for choice in document["choices"]:
                if choice["index"] == index:
                    pieces.append((choice.get("message") or choice.get("delta") or {}).get("content") or "")
        return "".join(pieces)

    def reasons(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for document in self.documents:
            for choice in document["choices"]:
                if choice["finish_reason"] is not None:
                    assert choice["index"] not in found, "a choice finished twice"
                    found[choice["index"]] = choice["finish_reason"]
        return found

    def usage(self) -> dict[str, Any] | None:
        found = [document["usage"] for document in self.documents if document.get("usage")]
        assert len(found) <= 1
        return found[0] if found else None


def new_call(
    body: dict[str, Any], *, name: str | None = None, adapter: str | None = None, trail: Trail | None = None
) -> EngineCall:
    if name is None:
        name = f"test-{os.getpid()}-{next(_serial)}"
    return EngineCall(name, body, TokenMeter(), adapter=adapter, trail=trail)


def chat(text: str = "Tell me about rivers.", **fields: Any) -> dict[str, Any]:
    """A body whose answer is the same every time and as long as it is asked for."""
    return {
        "model": "auto",
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": 12,
        "ignore_eos": True,
        **fields,
    }


@dataclass
class Lab:
    """An engine that is up. Every `run` is in the same loop."""

    engine: Engine
    runner: asyncio.Runner
    road: str

    def run(self, work: Callable[[Engine], Awaitable[T]], timeout_s: float = 60.0) -> T:
        async def main() -> T:
            async with asyncio.timeout(timeout_s):
                return await work(self.engine)

        return self.runner.run(main())


async def complete(engine: Engine, body: dict[str, Any], adapter: str | None = None) -> Answer:
    call = new_call(body, adapter=adapter)
    return Answer(call, [json.loads(await engine.complete(call))])


async def stream(engine: Engine, body: dict[str, Any], adapter: str | None = None) -> Answer:
    return await play(engine, new_call(body, adapter=adapter))


async def play(engine: Engine, call: EngineCall, *, events: int | None = None) -> Answer:
    """Stream a call, or its first `events` events alone: the stream is closed then, unless its end was among them."""
    answer = Answer(call)
    async with aclosing(engine.stream(call)) as stream:  # type: ignore[type-var]
        async for event in stream:
            answer.documents += parse_all(event)
            if events is not None and len(answer.documents) >= events and not answer.reasons():
                break
    return answer


def parse_all(piece: bytes) -> list[dict[str, Any]]:
    """The whole Server-Sent Events of one piece."""
    assert piece.endswith(b"\n\n"), piece
    return [parse(event + b"\n\n") for event in piece[:-2].split(b"\n\n")]


def parse(event: bytes) -> dict[str, Any]:
    """One whole Server-Sent Event."""
    assert event.startswith(b"data: {") and event.endswith(b"}\n\n") and event.count(b"\n") == 2, event
    document: dict[str, Any] = json.loads(event[6:])
    assert "error" not in document
    return document


async def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Wait for what no event tells: an engine's own counter."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)
