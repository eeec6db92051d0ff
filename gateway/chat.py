"""`POST /v1/chat/completions` as plain ASGI: no framework and no model classes on the data path."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from starlette.types import Receive, Scope, Send

from weighbridge.config.clock import Clock
from weighbridge.config.errors import ApiError, InvalidRequest, ShuttingDown
from weighbridge.gateway.auth import Authenticator, Caller, HeaderMap, header_map
from weighbridge.gateway.body import compressed, declared_length, decode_object, read_body, too_large
from weighbridge.gateway.concurrency import UNREAD, Concurrency
from weighbridge.gateway.errors import error_answer, internal_error, log_unexpected
from weighbridge.gateway.line import LINE, Line
from weighbridge.gateway.sink import AsgiSink, Counter
from weighbridge.gateway.underway import Underway
from weighbridge.gateway.wishes import Wishes, read_wishes
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


class Form(Protocol):
    """Another API's form of a chat request: its body, its answer and its errors."""

    def to_chat(self, body: dict[str, Any]) -> dict[str, Any]:
        """The chat body that stands for the caller's. Raises: InvalidRequest."""
        ...

    def sink(self, sink: Sink, stream: bool) -> Sink:
        """Takes the chat answer and writes the caller's."""
        ...

    def error(self, error: ApiError) -> ApiError:
        """`error`, naming the caller's fields."""
        ...


def _no_aliases() -> Mapping[str, str]:
    return {}


class ChatRoute:
    """Authenticates, parses and admits one request, then lets the dispatch answer it.

    Args:
        new_id: makes request ids.
        models: the names a request may ask for.
        aliases: other names for them, out of the policy in force.
        form: what the caller writes and reads, where that is not chat.
        concurrency: bounds what is under way.
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
        concurrency: Concurrency,
        max_body_bytes: int,
        slow_reader_timeout_s: float,
        slow_readers: Counter,
        aliases: Callable[[], Mapping[str, str]] = _no_aliases,
        form: Form | None = None,
    ) -> None:
        self._auth = auth
        self._aliases = aliases
        self._form = form
        self._dispatch = dispatch
        self._clock = clock
        self._new_id = new_id
        self._underway = underway
        self._models = tuple(models)
        self._concurrency = concurrency
        self._max_body_bytes = max_body_bytes
        self._slow_reader_timeout_s = slow_reader_timeout_s
        self._slow_readers = slow_readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = self._new_id()
        headers = header_map(scope["headers"])
        extensions = scope.get("extensions") or {}
        line: Line | None = extensions.get(LINE)
        sink = AsgiSink(
            send,
            line,
            cut=extensions.get(CUT),
            slow_reader_timeout_s=self._slow_reader_timeout_s,
            slow_readers=self._slow_readers,
        )
        self._underway.enter(request_id, sink.abort)
        try:
            await self._answer(request_id, scope, headers, receive, line, sink)
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
        self,
        request_id: str,
        scope: Scope,
        headers: HeaderMap,
        receive: Receive,
        line: Line | None,
        sink: AsgiSink,
    ) -> None:
        if self._underway.draining:
            raise ShuttingDown()
        caller = self._auth.api(headers, scope.get("client"))
        concurrency, held = self._concurrency, 0
        concurrency.enter(caller.key_id, caller.parallel)
        try:
            if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
                raise compressed()
            wishes = read_wishes(headers)
            held = concurrency.hold(declared_length(headers), self._max_body_bytes)
            raw = None if line is None else line.whole_body()
            if raw is None:
                raw = await read_body(receive, headers, self._max_body_bytes)
            elif len(raw) > self._max_body_bytes:
                raise too_large(self._max_body_bytes)
            if held:
                held = concurrency.settle(held, len(raw))
            request = await self._admit(request_id, raw, caller, wishes, headers.get(b"traceparent"))
            del raw
            await self._serve(request, line or _Received(receive), sink)
        finally:
            concurrency.leave(caller.key_id, held)

    async def _admit(
        self, request_id: str, raw: bytes, caller: Caller, wishes: Wishes, traceparent: bytes | None
    ) -> Admitted:
        body = await decode_object(raw)
        if self._form is not None:
            body = self._form.to_chat(body)
        model = check_body(body, self._models, self._aliases())
        return Admitted(
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
            explain=wishes.explain,
            traceparent=traceparent,
            barred=caller.barred,
        )

    async def _serve(self, request: Admitted, caller: Line | _Received, sink: AsgiSink) -> None:
        """Run the dispatch in this task; it is cancelled when the caller leaves."""
        out: Sink = sink if self._form is None else self._form.sink(sink, request.stream)
        task = asyncio.current_task()
        assert task is not None
        cancelled = 0

        def cancel() -> None:
            nonlocal cancelled
            cancelled += 1
            task.cancel()

        def left() -> None:
            if not sink.ended:
                sink.gone = True
                cancel()

        caller.watch(left)
        self._underway.enter(request.request_id, cancel)
        try:
            # It begins at once: the dispatch has taken the request over before anything can cancel it.
            await self._dispatch.run(request, out)
        except asyncio.CancelledError:
            if not cancelled:
                raise
        finally:
            caller.unwatch()
            self._underway.enter(request.request_id, sink.abort)
            for _ in range(cancelled):
                task.uncancel()
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
        if self._form is not None:
            error = self._form.error(error)
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
        if error.status not in (401, 403, 413, 415) and error.code not in UNREAD:
            return ()
        declared = declared_length(headers)
        worth_reading = declared is not None and declared <= _DISCARD_FACTOR * self._max_body_bytes
        return () if worth_reading else (_CLOSE,)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class _Received:
    """A caller whose leaving is told by `receive` alone; see `Line`."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    def watch(self, tell: Callable[[], object]) -> None:
        async def wait() -> None:
            await _until_disconnect(self._receive)
            tell()

        self._task = asyncio.create_task(wait())

    def unwatch(self) -> None:
        if self._task is not None:
            self._task.cancel()


def check_body(body: dict[str, Any], models: Sequence[str], aliases: Mapping[str, str]) -> str:
    """Check what routing needs; everything else is the engine's or the provider's to judge.

    Returns:
        The model name as the caller gave it, an alias or not.

    Raises:
        InvalidRequest: `messages` or `stream` cannot be routed.
        ApiError: 404 for a model we do not have.
    """
    model = body.get("model")
    if not isinstance(model, str):
        raise InvalidRequest(
            f"'model' must be one of: {', '.join(models)}.", code="invalid_model", param="model"
        )
    if model not in models and model not in aliases:
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
