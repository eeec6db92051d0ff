"""A server like `vllm serve` on loopback, with a fake engine behind it, that misbehaves on demand.

Runs in the test's own event loop. Its error messages quote the request, as vLLM's do.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.fake_engine import FakeEngine, Script
from weighbridge.config.errors import ApiError, ContextLengthExceeded, InvalidRequest
from weighbridge.config.usage import TokenMeter
from weighbridge.pool.engine import EngineCall, EngineOverloaded

Write = Callable[[bytes], Awaitable[None]]

MODEL = "org/served-model"
PROMPT_MARK = "SECRET"
"""Stands in every error message of this server beside the request."""


@dataclass(frozen=True)
class Fault:
    """What to do wrong with a chat completion.

    name: `status` (answers `status`, `body`, `headers`); `garbage` (bytes that are no HTTP); `reset` (RST before any
    answer); `stall_head` (no answer at all); `not_json` (half a document); `error_document`; `page` (HTML under 200).
    Of a stream, after `after` events: `cut` (closes the connection), `short` (ends the body in order), `stall`,
    `malformed` (broken JSON), `error_event`, `early_done` (`[DONE]`), `abort` (a finish reason of vLLM's own). Of a
    whole stream: `no_done`, `no_usage`, `bytewise` (every byte by itself), `gzip`, `crlf` (other line ends, comments
    and names between the events).
    """

    name: str
    after: int = 3
    status: int = 500
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


def status(code: int, error: dict[str, Any] | None = None, **headers: str) -> Fault:
    """An HTTP status with vLLM's kind of error document."""
    shown = {
        "message": f"{PROMPT_MARK} {code}",
        "type": "Error",
        "param": None,
        "code": code,
        **(error or {}),
    }
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Fault("status", status=code, body=json.dumps({"error": shown}).encode(), headers=named)


@dataclass
class Seen:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class ModelServer:
    """The server.

    Args:
        engine: makes the answers.
        key: asked for under `/v1`, as vLLM does it.
        counts: whether it gives usage with every event to those who ask.
        weighs: whether it gives log-probabilities to those who ask, or refuses the request.
    """

    engine: FakeEngine
    key: str | None = None
    fault: Fault | None = None
    counts: bool = True
    tokenizes: bool = True
    weighs: bool = True
    health: int = 200
    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": MODEL, "max_model_len": 512}])
    seen: list[Seen] = field(default_factory=list)
    port: int = 0
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a stalling answer has come to its stall."""
    _runner: web.AppRunner | None = None
    _listening: Any = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def asked(self, path: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.path == path]

    async def start(self) -> None:
        if not self.engine.started:
            await self.engine.start()
        app = web.Application(middlewares=[self._look], client_max_size=1 << 26)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.0, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self._listening = server = site._server
        assert isinstance(server, asyncio.Server)
        self.port = server.sockets[0].getsockname()[1]

    def stop_listening(self) -> None:
        """Take no new connections and go on with what was begun, as a server does that stops in good order."""
        assert isinstance(self._listening, asyncio.Server)
        self._listening.close()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # -- routes

    @web.middleware
    async def _look(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        raw = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.path, headers, json.loads(raw) if raw else None))
        wanted = None if self.key is None else f"Bearer {self.key}"
        if wanted and request.path.startswith("/v1") and headers.get("authorization") != wanted:
            return _answer(401, {"error": "Unauthorized"})
        return await handler(request)

    async def _models(self, _: web.Request) -> web.StreamResponse:
        return _answer(200, {"object": "list", "data": self.models})

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response(status=self.health)

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        if not self.tokenizes:
            return _answer(404, {"detail": "Not Found"})
        body = self.seen[-1].body
        prompt = json.dumps([body["messages"], body.get("tools")], ensure_ascii=False)
        return _answer(200, {"count": max(1, len(prompt) // 4), "max_model_len": self.engine.max_model_len})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body, headers = self.seen[-1].body, self.seen[-1].headers
        fault = self.fault or Fault("none")
        if fault.name == "status":
            return web.Response(status=fault.status, body=fault.body, headers=dict(fault.headers))
        if fault.name in ("garbage", "reset", "stall_head"):
            return await self._no_answer(fault.name, request)
        if body.get("logprobs") and not self.weighs:
            return _error(400, "BadRequestError", f"No logprobs here. {body}")
        if body.get("model") != MODEL:
            return _error(404, "NotFoundError", f"The model `{body.get('model')}` does not exist.")
        call = EngineCall(headers.get("x-request-id", "none"), body, TokenMeter())
        try:
            if body.get("stream"):
                return await self._stream(fault, call, request)
            return await self._whole(fault, call)
        except ContextLengthExceeded:
            return _error(
                400, "BadRequestError", f"This model's maximum context length {body}", "input_tokens"
            )
        except InvalidRequest as exc:
            return _error(400, "BadRequestError", f"{exc.message} {body}", exc.param)
        except EngineOverloaded:
            return _error(503, "Service Unavailable", f"The engine is busy. {body}")
        except ApiError as exc:
            return _error(exc.status, "InternalServerError", f"{exc.message} {body}")

    async def _no_answer(self, name: str, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        if name == "garbage":
            transport.write(b"\x15\x03\x03 no HTTP at all\r\n\r\n")  # type: ignore[attr-defined]
            transport.close()
        elif name == "reset":
            raw = transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()  # type: ignore[attr-defined]
        self.waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def _whole(self, fault: Fault, call: EngineCall) -> web.StreamResponse:
        answer = await self.engine.complete(call)
        if fault.name == "error_document":
            return _answer(200, {"error": {"message": PROMPT_MARK, "code": 500}})
        if fault.name == "page":
            return web.Response(text="<html>", content_type="text/html")
        if fault.name == "not_json":
            answer = answer[: len(answer) // 2]
        response = web.Response(body=answer, content_type="application/json")
        if fault.name == "gzip":
            response.enable_compression(web.ContentCoding.gzip)
        return response

    async def _stream(self, fault: Fault, call: EngineCall, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        if fault.name == "page":
            response = web.StreamResponse(headers={"content-type": "text/html"})
        if fault.name == "gzip":
            response.enable_compression(web.ContentCoding.gzip)

        async def write(data: bytes) -> None:
            if fault.name == "crlf":
                data = b": ping\r\nevent: message\r\n" + data.replace(b"\n", b"\r\n")
            if not response.prepared:
                # vLLM refuses before it sends a head.
                await response.prepare(request)
            for piece in (
                (data[at : at + 1] for at in range(len(data))) if fault.name == "bytewise" else (data,)
            ):
                await response.write(piece)

        sent = 0
        async with aclosing(self._events(call, fault)) as events:
            async for event in events:
                if sent == fault.after and await self._interrupt(fault, write, request):
                    break
                await write(event)
                sent += 1
        await response.write_eof()
        return response

    async def _events(self, call: EngineCall, fault: Fault) -> AsyncIterator[bytes]:  # type: ignore[misc]
        options = call.body.get("stream_options") or {}
        async for event in self.engine.stream(call):
            document = json.loads(event[6:])
            if not document["choices"] and fault.name == "no_usage":
                continue
            counting = self.counts and fault.name != "no_usage" and options.get("continuous_usage_stats")
            if document["choices"] and counting:
                document["usage"] = {
                    "prompt_tokens": call.meter.prompt,
                    "completion_tokens": call.meter.completion,
                    "total_tokens": call.meter.prompt + call.meter.completion,
                }
            yield b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"
        if fault.name != "no_done":
            yield b"data: [DONE]\n\n"

    async def _interrupt(self, fault: Fault, write: Write, request: web.Request) -> bool:
        """Do what goes wrong in the middle of a stream; whether the stream ends here."""
        if fault.name == "cut":
            assert request.transport is not None
            request.transport.close()
            await asyncio.Event().wait()
        if fault.name == "stall":
            self.waiting.set()
            await asyncio.Event().wait()
        if fault.name == "malformed":
            await write(b'data: {"choices": [{"index"\n\n')
        if fault.name == "error_event":
            await write(b'data: {"error": {"message": "SECRET", "code": 500}}\n\ndata: [DONE]\n\n')
        if fault.name == "early_done":
            await write(b"data: [DONE]\n\n")
        if fault.name == "abort":
            choice = {"index": 0, "delta": {}, "finish_reason": "abort"}
            await write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        return fault.name == "short"


def _answer(code: int, document: Any) -> web.Response:
    return web.json_response(document, status=code)


def _error(code: int, kind: str, message: str, param: str | None = None) -> web.Response:
    error = {"message": f"{PROMPT_MARK} {message}", "type": kind, "param": param, "code": code}
    return _answer(code, {"error": error})


@asynccontextmanager
async def model_server(
    *, script: Script | None = None, window: int = 512, **fields: Any
) -> AsyncIterator[ModelServer]:
    """A server that runs. `fields` are those of `ModelServer`."""
    server = ModelServer(FakeEngine("served", max_model_len=window, script=script), **fields)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
