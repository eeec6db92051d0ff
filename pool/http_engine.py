"""A tier's model that is served elsewhere on the private network, behind the `Engine` port.

The server is `vllm serve` or another gateway of this kind. It gets raw text; `pool.private_network` says where it may
be.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, Final

import msgspec

from weighbridge.config.clock import Clock
from weighbridge.config.errors import ContextLengthExceeded, InvalidRequest
from weighbridge.config.offload import BODIES
from weighbridge.config.settings import TierSettings
from weighbridge.config.sse import EventTooLarge, SseParser
from weighbridge.pool.continuation import continues
from weighbridge.pool.engine import (
    EngineCall,
    EngineLoad,
    EngineOverloaded,
    EngineStartFailed,
    EngineUnavailable,
)
from weighbridge.pool.engine_body import for_wire
from weighbridge.pool.http_answer import (
    NOT_A_STREAM,
    Broken,
    Renamed,
    StreamReader,
    Sureness,
    Tally,
    read_document,
    refusal,
)
from weighbridge.pool.http_exchange import (
    NOTHING_SENT,
    Exchange,
    ExchangeLost,
    LostKind,
    Resolver,
    Session,
    header_lines,
    open_session,
)
from weighbridge.pool.http_questions import Questions, fewest_tokens
from weighbridge.pool.http_trouble import Trouble
from weighbridge.pool.private_network import check_endpoint

_MAX_EVENT_BYTES: Final = 4 * 1024 * 1024

_INLINE_BYTES: Final = 256 << 10
"""Bytes of a whole answer up to which it is read on the event loop, in a few milliseconds."""


class HttpEngine:
    """One server that answers chat completions. Used from one event loop.

    Args:
        settings: the tier's settings; the `endpoint_*` ones, `trusted_endpoints` and `max_model_len` are used.
        road: the tier's name; answers carry it as `model`.
        url: the server's base URL, such as `http://10.0.0.5:8000/v1`.
        clock: the gateway's clock.
        resolver: looks names up in place of the machine's own resolver.

    Raises:
        ConfigError: the URL's address may not get raw text.
    """

    def __init__(
        self,
        settings: TierSettings,
        road: str,
        url: str,
        clock: Clock,
        *,
        resolver: Resolver | None = None,
    ) -> None:
        check_endpoint(road, url, settings.trusted_endpoints)
        self.road: Final = road
        self._settings = settings
        self._url = url.rstrip("/")
        self._model = settings.endpoint_model or road
        self._trouble = Trouble(road, self._url, self._model, clock)
        self._resolver = resolver
        self._headers = {
            stream: header_lines(settings.endpoint_api_key, stream=stream) for stream in (False, True)
        }
        self._session: Session | None = None
        self._questions = Questions(
            road, self._url, self._model, lambda: self._exchange(self._require_session())
        )
        self._ready = False
        self._closed = asyncio.Event()
        self._died = asyncio.Event()
        self._deaf = False
        """Nobody listens there any more; what was begun may still be finished."""
        self._calls: dict[str, Exchange] = {}
        self._silent = 0
        self._made = 0
        self._weighs: bool | None = None
        """Whether the server gives log-probabilities; None until it has shown."""

    @property
    def max_model_len(self) -> int:
        return self._settings.max_model_len

    @property
    def kv_tokens(self) -> int | None:
        return None

    @property
    def alive(self) -> bool:
        return not self._closed.is_set() and not self._died.is_set()

    async def start(self) -> None:
        """Wait until the server has the model; it may be booting. See `Engine.start`."""
        if self._closed.is_set() or self._session is not None:
            raise EngineStartFailed("the engine was started or closed before")
        self._session = open_session(self._settings.trusted_endpoints, self._resolver)
        try:
            await self._questions.until_ready(self._closed, self.max_model_len)
        except BaseException:
            await self.close(0.0)
            raise
        self._ready = True

    async def died(self) -> None:
        await self._died.wait()

    async def warm(self) -> None:
        """Nothing: the server has warmed up before it began to listen, and an answer would take turns from others."""

    async def count_tokens(self, body: dict[str, Any]) -> int:
        """Prompt tokens, counted by the server where it can (`/tokenize`), else a bound from below.

        Raises:
            ContextLengthExceeded: the prompt alone does not fit the window.
        """
        self._up()
        prepared = for_wire(body, model=self._model, stream=False)
        if prepared.get("truncate_prompt_tokens") is not None:
            return 1
        counted = await self._questions.prompt_tokens(prepared)
        tokens = await BODIES.run(fewest_tokens, prepared["messages"]) if counted is None else counted
        if tokens >= self.max_model_len:
            raise ContextLengthExceeded(counted, self.max_model_len)
        return tokens

    async def complete(self, call: EngineCall) -> bytes:
        with _Underway(self, call, stream=False) as (exchange, tally):
            self._silent += 1
            try:
                await self._send(exchange, call, tally, stream=False)
                document = await exchange.read()
            finally:
                self._silent -= 1
            before = call.meter.completion
            names, sureness = Renamed(call.request_id, self.road), _sureness(call)
            if len(document) <= _INLINE_BYTES:
                answer = read_document(document, names, tally, sureness)
            else:
                answer = await BODIES.run(read_document, document, names, tally, sureness)
            self._made += max(0, call.meter.completion - before)
            return answer

    async def stream(self, call: EngineCall) -> AsyncGenerator[bytes, None]:
        if continues(call.trail):
            # It takes text, not ids, so the answer could not go on where it broke off.
            raise EngineUnavailable
        with _Underway(self, call, stream=True) as (exchange, tally):
            await self._send(exchange, call, tally, stream=True)
            if exchange.header("content-type").lower().startswith(NOT_A_STREAM):
                raise Broken
            names = Renamed(call.request_id, self.road)
            reader = StreamReader(call.body, names, tally, _sureness(call))
            parser = SseParser(_MAX_EVENT_BYTES)
            if call.trail is not None:
                call.trail.lost = True
            while piece := await exchange.piece():
                before = call.meter.completion
                events, fault = reader.take_all(parser.feed(piece))
                self._made += max(0, call.meter.completion - before)
                if events:
                    yield events
                if fault is not None:
                    raise fault
                if reader.done:
                    if not reader.whole:
                        raise ExchangeLost("cut")
                    exchange.over()
                    return
            if not reader.finished:
                raise ExchangeLost("cut")

    async def abort(self, request_id: str) -> None:
        """Close the connection of that call, which makes the server stop."""
        exchange = self._calls.get(request_id)
        if exchange is not None:
            exchange.end()

    def load(self) -> EngineLoad:
        """Our own calls alone. A whole answer shows no token before its end: while one is awaited, a server that
        answers its probes counts as moving."""
        return EngineLoad(len(self._calls), 0, self._made)

    async def probe(self, timeout_s: float) -> bool:
        if not self._ready or not self.alive:
            return False
        try:
            async with asyncio.timeout(timeout_s):
                healthy = await self._questions.healthy(timeout_s)
        except TimeoutError:
            return False
        except ExchangeLost as lost:
            self._note(lost.kind)
            return False
        if healthy:
            self._deaf = False
        if healthy and self._silent:
            self._made += 1
        return healthy and self.alive

    async def close(self, grace_s: float) -> None:
        """End every call and close the connections. There is nothing here that could need the grace. Idempotent."""
        self._closed.set()
        for exchange in tuple(self._calls.values()):
            exchange.end()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # ---- one call ----

    def _begin(self, call: EngineCall, *, stream: bool) -> Exchange:
        session = self._up()
        if call.request_id in self._calls:
            raise RuntimeError("this request is running already")
        exchange = self._calls[call.request_id] = self._exchange(session, call, stream=stream)
        return exchange

    def _ended(self, call: EngineCall, exchange: Exchange) -> None:
        del self._calls[call.request_id]
        exchange.close()
        self._look_for_death()

    async def _send(self, exchange: Exchange, call: EngineCall, tally: Tally, *, stream: bool) -> None:
        """Send the request; returns once an answer with status 200 has begun."""
        prepared = self._prepared(call, stream=stream)
        weighed = self._weighs is not False and call.confidence is not None and not prepared.get("logprobs")
        tally.unknown()
        status = await self._ask(exchange, {**prepared, "logprobs": True} if weighed else prepared, stream)
        body = b"" if status == 200 else await _rest(exchange)
        if weighed and status in (400, 422) and (self._weighs is None or b"logprob" in body):
            # It may be one that gives no log-probabilities: that is not the caller's fault.
            exchange.close()
            status = await self._ask(exchange, prepared, stream)
            if status == 200 and self._weighs is None:
                self._weighs = False
            body = b"" if status == 200 else await _rest(exchange)
        elif weighed and status == 200:
            self._weighs = True
        if status == 200:
            return
        error = refusal(status, body, prepared, self.max_model_len)
        if status < 500 or isinstance(error, EngineOverloaded):
            tally.nothing()
        if isinstance(error, EngineUnavailable):
            self._trouble.refused(status)
        raise error

    async def _ask(self, exchange: Exchange, prepared: dict[str, Any], stream: bool) -> int:
        # Nothing comes of a whole answer before all of it is made, so silence says nothing there.
        return await exchange.send(
            "POST", f"{self._url}/chat/completions", _written(prepared), patient=not stream
        )

    def _prepared(self, call: EngineCall, *, stream: bool) -> dict[str, Any]:
        prepared = for_wire(call.body, model=call.adapter or self._model, stream=stream)
        options = prepared.get("stream_options") or {}
        if stream and isinstance(options, dict):
            # Counts with every event, so that a stream that is cut has them too.
            prepared["stream_options"] = {**options, "include_usage": True, "continuous_usage_stats": True}
        return prepared

    def _exchange(
        self, session: Session, call: EngineCall | None = None, *, stream: bool = False
    ) -> Exchange:
        headers = self._headers[stream]
        if call is not None:
            headers += b"x-request-id: %b\r\n" % call.request_id.encode("ascii")
            if call.traceparent:
                headers += b"traceparent: %b\r\n" % call.traceparent
        return Exchange(
            session,
            headers,
            connect_s=self._settings.endpoint_connect_timeout_s,
            idle_s=self._settings.endpoint_idle_timeout_s,
            keep=call is not None,
        )

    # ---- the server ----

    def _require_session(self) -> Session:
        if self._session is None:
            raise EngineUnavailable
        return self._session

    def _up(self) -> Session:
        if not self._ready or self._deaf or not self.alive:
            raise EngineUnavailable
        return self._require_session()

    def _note(self, kind: LostKind) -> None:
        """A call was lost. Where nobody listens any more nothing new is begun."""
        self._trouble.lost(kind)
        if kind == "refused" and self._ready:
            self._deaf = True
            self._look_for_death()

    def _look_for_death(self) -> None:
        """A server that stops in good order closes its door first and then finishes what it has begun: the engine is
        dead when nothing is left of that. Its successor waits for the server."""
        if self._deaf and not self._calls and not self._closed.is_set():
            self._died.set()


async def _rest(exchange: Exchange) -> bytes:
    """What an error says, as far as it came."""
    try:
        return await exchange.read()
    except ExchangeLost:
        return b""


def _written(body: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except RecursionError:
        raise InvalidRequest("The request is nested too deeply.") from None


def _sureness(call: EngineCall) -> Sureness | None:
    if call.confidence is None:
        return None
    return Sureness(call.confidence, shown=bool(call.body.get("logprobs")))


class _Underway:
    """Keeps count of one call, ends its connection on every way out, and says in our words what went wrong."""

    __slots__ = ("_call", "_engine", "_exchange", "_tally")

    def __init__(self, engine: HttpEngine, call: EngineCall, *, stream: bool) -> None:
        self._engine, self._call = engine, call
        self._exchange = engine._begin(call, stream=stream)
        choices = call.body.get("n")
        self._tally = Tally(
            call.meter, engine.max_model_len, choices if isinstance(choices, int) and choices > 0 else 1
        )

    def __enter__(self) -> tuple[Exchange, Tally]:
        return self._exchange, self._tally

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        lost = exc.kind if isinstance(exc, ExchangeLost) else None
        if isinstance(exc, Broken | EventTooLarge):
            lost = "malformed"
        if lost in NOTHING_SENT:
            self._tally.nothing()
        if lost is not None:
            self._engine._note(lost)
        self._engine._ended(self._call, self._exchange)
        if lost is not None:
            raise EngineUnavailable from None
