"""Sealed requests, a journal in memory, and a gate towards a recorder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from tests.support.recorder import OK, Mode, Recorder, recording
from weighbridge.commercial.gate import EgressContext, EgressGate
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.config.ids import IdFactory
from weighbridge.config.limits import ExchangeLimits
from weighbridge.config.settings import CommercialSettings
from weighbridge.config.usage import TokenMeter
from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.seal import seal_request
from weighbridge.masking.vault import Vault
from weighbridge.observability.records import Egress

CLOCK = SystemClock()
KEY = "sk-our-own-key"


def masked(stream: bool = False, text: str = "hello [NUM_ABCDEFGH]", **more: Any) -> MaskedRequest:
    body: dict[str, Any] = {"model": "upstream", "messages": [{"role": "user", "content": text}], **more}
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return seal_request(
        request_id="0190-request",
        body=json.dumps(body).encode(),
        stream=stream,
        entities={"NUM": 1},
        detector_version="d1",
        body_hash="abc123",
        vault=Vault({"[NUM_ABCDEFGH]": "1234567"}),
    )


@dataclass
class Journal:
    """Keeps rows; `before` may raise or wait."""

    rows: list[Egress] = field(default_factory=list)
    before: Callable[[], Any] = lambda: None

    async def record_egress(self, row: Egress) -> None:
        waited = self.before()
        if waited is not None:
            await waited
        self.rows.append(row)


@dataclass
class Side:
    """One gate and the recorder it speaks to."""

    gate: EgressGate
    recorder: Recorder
    journal: Journal
    ctx: EgressContext = field(default_factory=lambda: EgressContext(1, "score", "default@1"))
    meter: TokenMeter = field(default_factory=TokenMeter)

    async def complete(self, request: MaskedRequest | None = None, seconds: float = 20) -> dict[str, Any]:
        answer = await self.gate.complete(
            masked() if request is None else request, self.ctx, Deadline.after(CLOCK, seconds), self.meter
        )
        made: dict[str, Any] = json.loads(answer)
        return made

    def stream(self, request: MaskedRequest | None = None, seconds: float = 20) -> AsyncIterator[bytes]:
        return self.gate.stream(
            masked(stream=True) if request is None else request,
            self.ctx,
            Deadline.after(CLOCK, seconds),
            self.meter,
        )

    async def events(self, request: MaskedRequest | None = None, seconds: float = 20) -> list[dict[str, Any]]:
        return [json.loads(event) async for event in self.stream(request, seconds)]


@asynccontextmanager
async def side(mode: Mode = OK, *, port: int | None = None, **settings: Any) -> AsyncIterator[Side]:
    """`settings`: of the `commercial` section, and limits of the exchange."""
    async with recording(mode) as recorder:
        base = recorder.base_url if port is None else f"http://127.0.0.1:{port}/v1"
        named = {field.name for field in fields(ExchangeLimits)}
        limits = {name: settings.pop(name) for name in named & set(settings)}
        made = CommercialSettings(**{"base_url": base, "model": "upstream", "api_key": KEY, **settings})
        journal = Journal()
        gate = EgressGate(made, journal, CLOCK, IdFactory(CLOCK))
        ctx = EgressContext(1, "score", "default@1", limits=ExchangeLimits(**limits))
        try:
            yield Side(gate, recorder, journal, ctx)
        finally:
            await gate.close()


def text_of(events: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for event in events
        for choice in event["choices"]
        if choice["index"] == index
    )


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(20):
        await asyncio.sleep(0)
