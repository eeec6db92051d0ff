"""Small stand-ins for the rooms below, for the gateway's unit tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from weighbridge.config.roads import MODEL_NAMES
from weighbridge.config.settings import AuthSettings
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.chat import ChatRoute, Form
from weighbridge.gateway.concurrency import Concurrency
from weighbridge.gateway.underway import Underway
from weighbridge.router.admitted import Admitted, Sink

Script = Callable[[Admitted, Sink], Awaitable[None]]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ns(self) -> int:
        return 1_700_000_000_000_000_000


class Count:
    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        self.value += amount


class FakeDispatch:
    """Runs a script in place of a request's lifecycle and remembers how it ended."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[Admitted] = []
        self.ends: list[str] = []
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    async def run(self, request: Admitted, sink: Sink) -> None:
        self.requests.append(request)
        self.began.set()
        try:
            await self._script(request, sink)
        except BaseException as exc:
            self.ends.append(type(exc).__name__)
            raise
        else:
            self.ends.append("ok")
        finally:
            self.ended.set()


async def hello(request: Admitted, sink: Sink) -> None:
    """Answers at once."""
    kind = b"text/event-stream" if request.stream else b"application/json"
    await sink.start(
        200, [(b"content-type", kind), (b"x-weighbridge-request-id", request.request_id.encode())]
    )
    await sink.write(b'data: {"a":1}\n\n' if request.stream else b'{"a":1}')
    if request.stream:
        await sink.write(b"data: [DONE]\n\n")
    await sink.end()


def chat_route(
    script: Script = hello,
    *,
    auth: AuthSettings | None = None,
    underway: Underway | None = None,
    max_body_bytes: int = 4096,
    slow_reader_timeout_s: float = 5.0,
    aliases: Callable[[], Mapping[str, str]] = dict,
    form: Form | None = None,
    concurrency: Concurrency | None = None,
) -> tuple[ChatRoute, FakeDispatch, Count]:
    dispatch, count = FakeDispatch(script), Count()
    numbers = iter(range(1, 10_000))
    route = ChatRoute(
        auth=Authenticator(auth or AuthSettings()),
        dispatch=dispatch,
        clock=Clock(),
        new_id=lambda: f"id-{next(numbers)}",
        underway=underway or Underway(),
        models=MODEL_NAMES,
        concurrency=concurrency or Concurrency(most=1000, most_per_key=1000, most_body_bytes=1 << 30),
        max_body_bytes=max_body_bytes,
        slow_reader_timeout_s=slow_reader_timeout_s,
        slow_readers=count,
        aliases=aliases,
        form=form,
    )
    return route, dispatch, count


def chat_body(**changes: Any) -> bytes:
    body: dict[str, Any] = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
    body |= changes
    return msgspec.json.encode({name: value for name, value in body.items() if value is not ...})
