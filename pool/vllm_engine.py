"""vLLM in this process behind the `Engine` port: one model, its chat layer and its child processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from weighbridge.config.clock import Clock
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ApiError
from weighbridge.config.settings import TierSettings
from weighbridge.config.usage import TokenMeter
from weighbridge.observability.metrics import Metrics
from weighbridge.pool import vllm_loading
from weighbridge.pool.continuation import Handover, usable_trail
from weighbridge.pool.engine import EngineCall, EngineLoad, EngineStartFailed, EngineUnavailable, Trail
from weighbridge.pool.engine_body import prepare
from weighbridge.pool.metering import Tally, Track
from weighbridge.pool.processes import ProcessId, kill, still_alive
from weighbridge.pool.threads import in_thread
from weighbridge.pool.vllm_errors import translate, translate_response

if TYPE_CHECKING:
    from weighbridge.pool.vllm_compat import Chat

log = logging.getLogger("weighbridge.pool")

_DONE: Final = "data: [DONE]"
_ERROR: Final = 'data: {"error"'
_ABORT_S: Final = 2.0
"""Seconds that aborted calls get to end before their engine is taken away."""
_IMPORT_S: Final = 15.0
"""Seconds a load that is given up may still take: an import cannot be stopped."""

WARM_UP: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"logprobs": True, "top_logprobs": 2},
    {
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "warm",
                "schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
            },
        }
    },
)
"""Features whose first call compiles something; a request would wait seconds for it."""


class VllmEngine:
    """One model in vLLM's `AsyncLLM`, whose core and workers are child processes. Used from one event loop.

    Args:
        settings: the tier's settings; `model_path` None takes the embedded model.
        road: the tier's name; answers carry it as `model`.
        clock: the gateway's clock.
        metrics: gets the engine's numbers; None keeps them out of sight.
        worker: the name of the worker the engine is of, a label of those numbers.

    Raises:
        ConfigError: something is wrong that can be seen without loading anything.
    """

    def __init__(
        self,
        settings: TierSettings,
        road: str,
        clock: Clock,
        *,
        metrics: Metrics | None = None,
        worker: str = "0",
    ) -> None:
        vllm_loading.check(road, settings)
        self.road: Final = road
        self._settings = settings
        self._clock = clock
        self._loaded: vllm_loading.Loaded | None = None
        self._loader = vllm_loading.Loader(road, settings, metrics or Metrics(), worker)
        self._loading: asyncio.Future[vllm_loading.Loaded] | None = None
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._death = asyncio.Event()
        self._tally = Tally()
        self._kv_tokens: int | None = None
        self.processes: tuple[ProcessId, ...] = ()
        """The engine's children and theirs, once it is built."""

    @property
    def max_model_len(self) -> int:
        return self._settings.max_model_len

    @property
    def kv_tokens(self) -> int | None:
        return self._kv_tokens

    @property
    def alive(self) -> bool:
        if self._closed:
            return False
        return self._loaded is None or not self._loaded.engine.errored

    async def start(self) -> None:
        if self._closed or self._loading is not None:
            raise EngineStartFailed("the engine was started or closed before")
        # A thread of its own, not the loop's: a build that is given up must not hold the process's exit.
        self._loading = in_thread(self._loader.run, f"load-{self.road}")
        try:
            loaded = self._loaded = await asyncio.shield(self._loading)
            self.processes = loaded.processes
            if self._closed:
                raise EngineStartFailed("closed while it was loading")
            loaded.engine.watch(self._ended)
            self._kv_tokens = loaded.engine.kv_tokens
            await vllm_loading.add_adapters(self.road, self._settings, loaded.chat)
        except asyncio.CancelledError:
            await self.close(0.0)
            raise

    def _ended(self) -> None:
        """vLLM hands nothing over any more."""
        if not self._closed:
            self._death.set()
            self._loader.stats.gone()

    async def died(self) -> None:
        await self._death.wait()

    async def warm(self) -> None:
        for n, extra in enumerate(WARM_UP):
            body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, **extra}
            try:
                await self.complete(EngineCall(f"warm-up-{n}", body, TokenMeter()))
            except ApiError as exc:
                raise EngineStartFailed(f"the engine did not pass its warm-up: {exc.message}") from None

    async def count_tokens(self, body: dict[str, Any]) -> int:
        chat = self._chat()
        prepared = await prepare(body, model=self.road, request_id="count", stream=False)
        try:
            counted = await chat.prompt_tokens(await chat.request(prepared))
        except Exception as exc:
            raise translate(exc, prepared, self.max_model_len, rendered=False) from None
        if isinstance(counted, int):
            return counted
        raise translate_response(counted.error)

    async def complete(self, call: EngineCall) -> bytes:
        chat = self._chat()
        prepared = await prepare(
            call.body, model=self._model(call.adapter), request_id=call.request_id, stream=False
        )
        async with self._tracked(call) as track:
            answer = await self._create(chat, prepared, track)
            if isinstance(track.failure, asyncio.CancelledError):
                # vLLM's chat layer swallows a cancellation and answers with an error object.
                raise asyncio.CancelledError
            if track.failure is not None:
                raise translate(track.failure, prepared, self.max_model_len, rendered=track.taken_by_engine)
            if not track.finished:
                raise translate_response(answer.error) if hasattr(answer, "error") else EngineUnavailable()
            return bytes(answer.model_dump_json(), "utf-8")

    async def stream(self, call: EngineCall) -> AsyncGenerator[bytes, None]:
        chat = self._chat()
        prepared = await prepare(
            call.body, model=self._model(call.adapter), request_id=call.request_id, stream=True
        )
        trail = usable_trail(call)
        async with self._tracked(call, trail) as track:
            handover = None if trail is None else Handover(trail, track)
            events = await self._create(chat, prepared, track)
            if hasattr(events, "error"):
                raise translate_response(events.error)
            event = ""
            try:
                async for event in events:
                    if track.failure is not None or event.startswith((_DONE, _ERROR)):
                        break
                    data: bytes | None = event.encode()
                    if handover is not None and data is not None:
                        data = handover.hand_over(data)
                    if data is not None:
                        yield data
            finally:
                await events.aclose()
            if track.failure is not None:
                raise translate(
                    track.failure, prepared, self.max_model_len, rendered=track.taken_by_engine
                ) from None
            if not track.finished or not event.startswith(_DONE):
                # An error of the chat layer's own, or an engine that ended without an end.
                raise EngineUnavailable

    async def abort(self, request_id: str) -> None:
        if self._loaded is not None:
            await self._loaded.engine.abort(_name(request_id))

    def load(self) -> EngineLoad:
        if self._loaded is None:
            return EngineLoad(0, 0, self._tally.made)
        engine = self._loaded.engine
        return EngineLoad(
            engine.get_num_unfinished_requests(), engine.get_num_queued_tokens(), self._tally.made
        )

    async def probe(self, timeout_s: float) -> bool:
        if self._loaded is None or not self.alive:
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await self._loaded.engine.is_sleeping()
        except Exception:
            return False
        return True

    async def close(self, grace_s: float) -> None:
        self._closed = True
        if self._closing is None:
            self._loader.stats.gone()
            self._closing = asyncio.create_task(self._close(grace_s))
        await asyncio.shield(self._closing)

    async def _close(self, grace_s: float) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is None and self._loading is not None:
            loaded = await self._give_up(self._loading)
        if loaded is None:
            return
        processes = loaded.processes
        # A shutdown with calls in flight would leave their callers waiting for ever.
        await self._abort_all(loaded)
        await in_thread(lambda: vllm_loading.shut_down(loaded, grace_s), f"close-{self.road}")
        await self._abort_all(loaded)
        leftover = await in_thread(lambda: kill(processes), f"close-{self.road}")
        if leftover:
            log.warning("%s: %d engine processes had to be killed", self.road, len(leftover))
        if stuck := still_alive(processes):
            log.error(
                "%s: %d engine processes do not end, and may hold a GPU: %s",
                self.road,
                len(stuck),
                ", ".join(str(process.pid) for process in stuck),
            )

    async def _give_up(self, loading: asyncio.Future[vllm_loading.Loaded]) -> vllm_loading.Loaded | None:
        """End a load under way. Returns the engine when it came up all the same."""
        deadline = Deadline.after(self._clock, _IMPORT_S)
        while not loading.done() and not deadline.expired():
            await in_thread(self._loader.interrupt, f"close-{self.road}")
            await asyncio.wait([loading], timeout=0.1)
        return loading.result() if loading.done() and loading.exception() is None else None

    async def _abort_all(self, loaded: vllm_loading.Loaded) -> None:
        tracks = loaded.engine.tracks
        if not tracks:
            return
        try:
            async with asyncio.timeout(_ABORT_S):
                await loaded.engine.abort(list(tracks))
                await self._idle.wait()
        except TimeoutError:
            log.warning("%s: %d calls did not end when aborted", self.road, len(tracks))

    def _chat(self) -> Chat:
        if self._loaded is None or not self.alive:
            raise EngineUnavailable
        return self._loaded.chat

    def _model(self, adapter: str | None) -> str:
        if adapter is None:
            return self.road
        if adapter not in self._settings.lora_adapters:
            raise ApiError(
                404,
                "The local model has no such adapter.",
                type="invalid_request_error",
                code="model_not_found",
                param="model",
            )
        return adapter

    async def _create(self, chat: Chat, prepared: dict[str, Any], track: Track) -> Any:
        try:
            return await chat.create(await chat.request(prepared))
        except Exception as exc:
            failure = track.failure or exc
            raise translate(failure, prepared, self.max_model_len, rendered=track.taken_by_engine) from None

    @asynccontextmanager
    async def _tracked(self, call: EngineCall, trail: Trail | None = None) -> AsyncIterator[Track]:
        """Count for `call`, and free the engine on every way out."""
        if self._loaded is None:
            # Closed while the body was being prepared.
            raise EngineUnavailable
        engine = self._loaded.engine
        name = _name(call.request_id)
        if name in engine.tracks:
            raise RuntimeError("this request is running already")
        track = engine.tracks[name] = Track(
            call.meter, tally=self._tally, trail=trail, confidence=call.confidence
        )
        self._idle.clear()
        try:
            yield track
        finally:
            track.settle()
            del engine.tracks[name]
            if not engine.tracks:
                self._idle.set()
            if not track.finished:
                await engine.abort(name)


def _name(request_id: str) -> str:
    """vLLM's name for a request of ours; stands in the answer as `id`."""
    return f"chatcmpl-{request_id}"
