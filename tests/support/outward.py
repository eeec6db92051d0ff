"""A gateway with all layers and a recorder in a thread of their own, for tests that send one case after the other."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import httpx

from tests.support.planting import Case
from tests.support.recorder import Recorder, recording
from tests.support.request_sites import Request
from tests.support.running import Running, policy_file, running_gateway
from weighbridge.config.masking_section import LayerName

LAYERS = tuple(name for name in get_args(LayerName) if name != "local-model")
ALL_OUT_MASKED: Mapping[str, Any] = {"refuse": [], "on_refusal": "reject"}
"""What the shipped policy refuses to mask may leave masked here: the harder case."""


@dataclass(frozen=True)
class Passed:
    """What became of one request.

    sent: every byte the recorder got for it; empty: none left.
    """

    answer: httpx.Response
    sent: bytes


class Outward:
    """Sends requests from outside the loop that serves them, one at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, gateway: Running, recorder: Recorder) -> None:
        self._loop = loop
        self.gateway = gateway
        self.recorder = recorder
        self._read: dict[int, int] = {}

    def send(self, request: Request) -> Passed:
        return asyncio.run_coroutine_threadsafe(self._send(request), self._loop).result(60)

    def leaks(self, case: Case) -> set[str]:
        """The pieces of the case's value that left, or that an error told the caller."""
        passed = self.send(case.request)
        told = passed.answer.content if passed.answer.status_code != 200 else b""
        return case.seen_in(passed.sent) | case.seen_in(told)

    async def _send(self, request: Request) -> Passed:
        answer = await self.gateway.client.post(
            f"/v1/chat/completions{request.query}",
            content=json.dumps({"model": "commercial", **request.body}).encode(),
            headers={"content-type": "application/json", **request.headers},  # type: ignore[dict-item]
        )
        return Passed(answer, self._without_our_own(self._fresh(), answer))

    def _fresh(self) -> bytes:
        fresh: list[bytes] = []
        for number, connection in enumerate(self.recorder.connections):
            fresh.append(bytes(connection.raw[self._read.get(number, 0) :]))
            self._read[number] = len(connection.raw)
        return b"".join(fresh)

    def _without_our_own(self, sent: bytes, answer: httpx.Response) -> bytes:
        """Take out the request's id and the recorder's address. They are known to the byte, and their digits could be
        anybody's."""
        own_id = answer.headers["x-weighbridge-request-id"].encode()
        for line in (b"x-request-id: " + own_id, f"Host: 127.0.0.1:{self.recorder.port}".encode()):
            assert not sent or sent.count(b"\r\n" + line + b"\r\n") == 1, sent[:500]
            sent = sent.replace(b"\r\n" + line + b"\r\n", b"\r\n")
        return sent


@contextmanager
def outward(
    folder: Path, *, names: Sequence[str] = (), rules: Mapping[str, Any] = ALL_OUT_MASKED
) -> Iterator[Outward]:
    """The gateway's loop runs until the end.

    Args:
        names: the tenant's list of known values.
        rules: the policy's `outward` part.
    """
    known = folder / "names.txt"
    known.write_text("\n".join(names), encoding="utf-8")
    masking: dict[str, Any] = {"layers": list(LAYERS)}
    if names:
        masking["known_values"] = {"default": str(known)}
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="gateway")
    thread.start()
    opened = AsyncExitStack()

    async def start() -> Outward:
        recorder = await opened.enter_async_context(recording())
        gateway = await opened.enter_async_context(
            running_gateway(
                folder,
                upstream=recorder.base_url,
                policy=policy_file(folder, outward=dict(rules)),
                masking=masking,
                ready_within_s=60,
            )
        )
        return Outward(loop, gateway, recorder)

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(120)

    try:
        try:
            yield run(start())
        finally:
            run(opened.aclose())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
