"""`POST /v1/chat/completions` as plain ASGI: no framework and no model classes on the data path."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from weighbridge.config.clock import Clock
from weighbridge.config.errors import ApiError, InvalidRequest, ShuttingDown
from weighbridge.gateway.auth import Authenticator, HeaderMap, header_map
from weighbridge.gateway.body import declared_length, decode_object, read_body
from weighbridge.gateway.errors import error_answer, internal_error, log_unexpected
from weighbridge.gateway.sink import AsgiSink, Counter
from weighbridge.gateway.underway import Underway
from weighbridge.gateway.wishes import read_wishes
from weighbridge.router.admitted import Admitted, ClientGone, Header, Sink
from weighbridge.router.answer import error_body

log = logging.getLogger("weighbridge.gateway")

CUT = "weighbridge.cut"
"""The ASGI extension by which our server offers to drop a connection (see `gateway.protocol`)."""

_DISCARD_FACTOR = 8
"""A refused body of up to so many times the limit is read and thrown away, to keep the connection usable."""

_CLOSE = (b"connection", b"close")


class Dispatcher(Protocol):
    """What this route needs of `router.dispatch.Dispatch`."""

    async def run(self, request: Admitted, sink: Sink) -> None: ...


class ChatRoute:
    """Authenticates, parses and admits one request, then lets the dispatch answer it.

    Args:
        new_id: makes request ids.
        models: the names a request may ask for.
        max_body_bytes, slow_reader_timeout_s: from the `server` settings.
        slow_readers: counts answers given up because nobody read them.
    """

    def __init__(
        self,
        *,
        auth: Authenticator,
        dispatch: Dispatcher,
        clock: Clock,
        new_id: Callable[[], str],
        underway: Underway,
        models: Sequence[str],
        max_body_bytes: int,
        slow_reader_timeout_s: float,
        slow_readers: Counter,
    ) -> None:
        self._auth = auth
        self._dispatch = dispatch
        self._clock = clock
        self._new_id = new_id
        self._underway = underway
        self._models = tuple(models)
        self._max_body_bytes = max_body_bytes
        self._slow_reader_timeout_s = slow_reader_timeout_s
        self._slow_readers = slow_readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = self._new_id()
        headers = header_map(scope["headers"])
        sink = AsgiSink(
            send,
            cut=(scope.get("extensions") or {}).get(CUT),
            slow_reader_timeout_s=self._slow_reader_timeout_s,
            slow_readers=self._slow_readers,
        )
        self._underway.enter(request_id, sink.abort)
        try:
            await self._answer(request_id, scope, headers, receive, sink)
        except ApiError as error:
            await self._refuse(error, request_id, headers, sink)
        except ClientGone:
            sink.abort()
        except Exception as exc:
            log_unexpected(log, exc, request_id)
            await self._refuse(internal_error(), request_id, headers, sink)
        finally:
            self._underway.leave(request_id)
        if sink.cut_off:
            # Return only once the server has seen the cut, or it would report an unfinished answer.
            await _until_disconnect(receive)

    async def _answer(
        self, request_id: str, scope: Scope, headers: HeaderMap, receive: Receive, sink: AsgiSink
    ) -> None:
        if self._underway.draining:
            raise ShuttingDown()
        caller = self._auth.api(headers, scope.get("client"))
        wishes = read_wishes(headers)
        raw = await read_body(receive, headers, self._max_body_bytes)
        body = await decode_object(raw)
        model = check_body(body, self._models)
        request = Admitted(
            request_id=request_id,
            body=body,
            body_bytes=len(raw),
            model=model,
            stream=bool(body.get("stream")),
            tenant=caller.tenant,
            key_id=caller.key_id,
            admitted_at=self._clock.monotonic(),
            admitted_ns=self._clock.wall_ns(),
            max_queue_ms=wishes.max_queue_ms,
            batch=wishes.batch,
            data_class=wishes.data_class,
            conversation=wishes.conversation,
        )
        await self._serve(request, receive, sink)

    async def _serve(self, request: Admitted, receive: Receive, sink: AsgiSink) -> None:
        """Run the dispatch beside a watch on the connection, in one task group."""
        fault: Exception | None = None

        async def run() -> None:
            nonlocal fault
            try:
                await self._dispatch.run(request, sink)
            except Exception as exc:
                fault = exc
            finally:
                watch.cancel()

        async with asyncio.TaskGroup() as group:
            # In this order: the dispatch has taken the request over before anything can cancel it.
            run_task = group.create_task(run())
            watch = group.create_task(_watch(receive, sink, run_task.cancel))
            self._underway.enter(request.request_id, run_task.cancel)
        if fault is not None:
            raise fault
        if not sink.ended:
            await self._finish_cut(request, sink)

    async def _finish_cut(self, request: Admitted, sink: AsgiSink) -> None:
        """The dispatch ended without ending the answer: never let that pass for a whole answer."""
        if sink.gone or not self._underway.cut:
            raise ClientGone
        error = ShuttingDown()
        if not sink.started:
            raise error
        if request.stream:
            await sink.write(b"data: " + error_body(error) + b"\n\n")
            await sink.end()
        else:
            sink.abort()

    async def _refuse(self, error: ApiError, request_id: str, headers: HeaderMap, sink: AsgiSink) -> None:
        if sink.started:
            sink.abort()
            return
        answer_headers, body = error_answer(error, request_id, self._closing(error, headers))
        try:
            await sink.start(error.status, answer_headers)
            await sink.write(body)
            await sink.end()
        except ClientGone:
            sink.abort()

    def _closing(self, error: ApiError, headers: HeaderMap) -> tuple[Header, ...]:
        """End the connection with the answer where more of the body may come than is worth reading."""
        if error.status == 408 or error.code == "shutting_down":
            return (_CLOSE,)
        if error.status not in (401, 403, 413):
            return ()
        declared = declared_length(headers)
        worth_reading = declared is not None and declared <= _DISCARD_FACTOR * self._max_body_bytes
        return () if worth_reading else (_CLOSE,)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _watch(receive: Receive, sink: AsgiSink, cancel: Callable[[], object]) -> None:
    """Cancel the request when its connection goes away, whether it streams, waits or queues."""
    await _until_disconnect(receive)
    if not sink.ended:
        sink.gone = True
        cancel()


def check_body(body: dict[str, Any], models: Sequence[str]) -> str:
    """Check what routing needs; everything else is the engine's or the provider's to judge.

    Returns:
        The model name.

    Raises:
        InvalidRequest: `messages` or `stream` cannot be routed.
        ApiError: 404 for a model we do not have.
    """
    model = body.get("model")
    if not isinstance(model, str):
        raise InvalidRequest(
            f"'model' must be one of: {', '.join(models)}.", code="invalid_model", param="model"
        )
    if model not in models:
        raise ApiError(
            404,
            f"There is no such model here. The models are: {', '.join(models)}.",
            type="invalid_request_error",
            code="model_not_found",
            param="model",
        )
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("'messages' must be a list with at least one message.", param="messages")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise InvalidRequest(
                "Each message must be an object with a 'role' that is text.", param=f"messages[{index}]"
            )
    if not isinstance(body.get("stream"), bool | None):
        raise InvalidRequest("'stream' must be true, false or null.", param="stream")
    return model
