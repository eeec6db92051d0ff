"""`/v1/completions`: the chat route in the legacy form, on both sides of the dispatch."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.gateway.asgi import Connection
from tests.unit.gateway.fakes import Script, chat_route
from weighbridge.config.errors import ApiError, ContextLengthExceeded
from weighbridge.gateway.completions import TextCompletions
from weighbridge.router.admitted import Admitted, Sink
from weighbridge.router.answer import DONE, error_body, frame


def body(**changes: Any) -> bytes:
    return msgspec.json.encode({"model": "local-8b", "prompt": "hello", **changes})


def chunk(text: str | None, reason: str | None = None) -> bytes:
    delta = {"role": "assistant", "content": ""} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    frame_ = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "local-8b"}
    return frame(msgspec.json.encode({**frame_, "choices": [choice]}))


def texts(data: bytes) -> list[str]:
    events = [event for event in data.split(b"\n\n") if event.startswith(b"data: {")]
    return [msgspec.json.decode(event[6:])["choices"][0]["text"] for event in events]


async def asked(script: Script, raw: bytes) -> tuple[Connection, Admitted | None]:
    route, dispatch, _ = chat_route(script, form=TextCompletions())
    connection = Connection(path="/v1/completions", pieces=[raw])
    await route(connection.scope, connection.receive, connection.send)
    return connection, dispatch.requests[0] if dispatch.requests else None


def whole(text: str) -> Script:
    async def answer(request: Admitted, sink: Sink) -> None:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        made = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }
        document = msgspec.json.encode(made)
        length = b"%d" % len(document)
        await sink.start(
            200, [(b"content-type", b"application/json"), (b"content-length", length), (b"x-a", b"b")]
        )
        await sink.write(document)
        await sink.end()

    return answer


@pytest.mark.parametrize("size", [5, 100_000], ids=["short", "long"])
async def test_a_document_is_translated_and_its_length_is_right(size: int) -> None:
    connection, request = await asked(whole("가" * size), body(n=1, kept=[1]))
    assert request is not None
    assert request.body["messages"] == [{"role": "user", "content": "hello"}]
    assert (request.body["kept"], request.body_bytes) == ([1], len(body(n=1, kept=[1])))
    answer = msgspec.json.decode(connection.body)
    assert (answer["object"], answer["id"], answer["choices"][0]["text"]) == (
        "text_completion",
        "cmpl-1",
        "가" * size,
    )
    lengths = [value for name, value in connection.sent[0]["headers"] if name == b"content-length"]
    assert lengths == [b"%d" % len(connection.body)]
    assert connection.headers["x-a"] == "b"
    assert connection.complete


def streamed(*pieces: bytes) -> Script:
    async def answer(request: Admitted, sink: Sink) -> None:
        await sink.start(200, [(b"content-type", b"text/event-stream")])
        for piece in pieces:
            await sink.write(piece)
        await sink.end()

    return answer


EVENTS = chunk(None) + chunk("가") + b": keep-alive\n\n" + chunk("🙂") + chunk("", "stop") + DONE


@pytest.mark.parametrize("size", [1, 7, 64, len(EVENTS)])
async def test_a_stream_is_translated_however_it_comes(size: int) -> None:
    pieces = [EVENTS[at : at + size] for at in range(0, len(EVENTS), size)]
    connection, request = await asked(streamed(*pieces), body(stream=True))
    assert request is not None
    assert request.stream
    assert texts(connection.body) == ["가", "🙂", ""]
    assert b": keep-alive\n\n" in connection.body
    assert connection.body.endswith(DONE)
    assert all(message.get("body") for message in connection.sent[1:-1]), "no empty piece is written"


async def test_an_error_event_names_the_callers_field() -> None:
    error = ContextLengthExceeded(10, 5)
    connection, _ = await asked(streamed(chunk("a"), frame(error_body(error))), body(stream=True))
    last = msgspec.json.decode(connection.body.split(b"\n\n")[-2][6:])
    assert last["error"]["param"] == "prompt"
    assert b"[DONE]" not in connection.body


async def test_a_refusal_names_the_callers_field() -> None:
    async def refuse(request: Admitted, sink: Sink) -> None:
        raise ContextLengthExceeded(10, 5)

    connection, _ = await asked(refuse, body())
    assert (connection.status, connection.error["param"]) == (400, "prompt")
    assert connection.error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("changes", "status", "param"),
    [
        ({"prompt": ["planted", "b"]}, 400, "prompt"),
        ({"prompt": [1, 2]}, 400, "prompt"),
        ({"echo": True}, 400, "echo"),
        ({"stream": 1}, 400, "stream"),
        ({"model": "planted"}, 404, "model"),
        ({"model": None}, 400, "model"),
    ],
)
async def test_what_is_refused_is_never_admitted(changes: dict[str, Any], status: int, param: str) -> None:
    connection, request = await asked(whole("x"), body(**changes))
    assert (connection.status, connection.error["param"], request) == (status, param, None)
    assert "planted" not in connection.error["message"]


@pytest.mark.parametrize("stream", [True, False])
async def test_half_an_answer_is_cut_and_never_ended(stream: bool) -> None:
    async def half(request: Admitted, sink: Sink) -> None:
        await sink.start(200, [])
        await sink.write(chunk("half") if stream else b'{"half":')
        raise RuntimeError

    connection, _ = await asked(half, body(stream=stream))
    if stream:
        assert connection.was_cut
        assert texts(connection.body) == ["half"]
    else:
        # Nothing of a document has gone out yet, so the fault can be told.
        assert (connection.status, connection.error["code"]) == (500, "internal_error")


async def test_an_alias_is_admitted_under_its_own_name() -> None:
    route, dispatch, _ = chat_route(aliases=lambda: {"gpt-4o": "auto"})
    connection = Connection(pieces=[msgspec.json.encode({"model": "gpt-4o", "messages": [{"role": "user"}]})])
    await route(connection.scope, connection.receive, connection.send)
    assert (connection.status, dispatch.requests[0].model) == (200, "gpt-4o")


async def test_the_routers_own_errors_keep_their_fields() -> None:
    async def busy(request: Admitted, sink: Sink) -> None:
        raise ApiError(429, "Busy.", type="rate_limit_error", code="queue_full", param="max_tokens")

    connection, _ = await asked(busy, body())
    assert (connection.error["param"], connection.error["code"]) == ("max_tokens", "queue_full")
