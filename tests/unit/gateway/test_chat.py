"""The completions route: what is admitted, what is refused, and how a request ends when somebody leaves."""

from __future__ import annotations

import asyncio
import hashlib
import logging

import pytest

from tests.unit.gateway.asgi import Connection
from tests.unit.gateway.fakes import FakeDispatch, Script, chat_body, chat_route
from weighbridge.config.errors import ApiError
from weighbridge.config.settings import ApiKey, AuthSettings
from weighbridge.gateway.underway import Underway
from weighbridge.router.admitted import Admitted, ClientGone, Sink

KEYED = AuthSettings(keys=(ApiKey(id="one", sha256=hashlib.sha256(b"wb-key").hexdigest(), tenant="acme"),))
AUTHORIZED = {"authorization": "Bearer wb-key"}


async def test_a_good_request_is_admitted_whole_and_answered() -> None:
    route, dispatch, _ = chat_route(auth=KEYED)
    raw = chat_body(model="local-8b", stream=True, unknown_field={"kept": [1]})
    connection = Connection(pieces=[raw[:20], raw[20:]], headers=AUTHORIZED)
    await route(connection.scope, connection.receive, connection.send)
    assert connection.status == 200
    assert connection.complete
    assert connection.body.endswith(b"data: [DONE]\n\n")
    (request,) = dispatch.requests
    assert request.body["unknown_field"] == {"kept": [1]}
    assert (request.request_id, request.model, request.stream) == ("id-1", "local-8b", True)
    assert (request.tenant, request.key_id, request.body_bytes) == ("acme", "one", len(raw))
    assert (request.admitted_at, request.admitted_ns) == (100.0, 1_700_000_000_000_000_000)
    assert not connection.was_cut


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (chat_body(model=...), 400, "invalid_model", "model"),
        (chat_body(model=None), 400, "invalid_model", "model"),
        (chat_body(model=["auto"]), 400, "invalid_model", "model"),
        (chat_body(model="planted-gpt"), 404, "model_not_found", "model"),
        (chat_body(model="AUTO"), 404, "model_not_found", "model"),
        (chat_body(messages=...), 400, None, "messages"),
        (chat_body(messages=[]), 400, None, "messages"),
        (chat_body(messages="planted"), 400, None, "messages"),
        (chat_body(messages=[{"role": "user"}, "planted"]), 400, None, "messages[1]"),
        (chat_body(messages=[{"content": "planted"}]), 400, None, "messages[0]"),
        (chat_body(messages=[{"role": 1, "content": "planted"}]), 400, None, "messages[0]"),
        (chat_body(stream="planted"), 400, None, "stream"),
        (chat_body(stream=1), 400, None, "stream"),
        (b'{"planted":NaN}', 400, "invalid_json", None),
        (b"", 400, "invalid_json", None),
        (b'["planted"]', 400, "invalid_json", None),
    ],
)
async def test_what_cannot_be_routed_is_refused_and_never_admitted(
    body: bytes, status: int, code: str | None, param: str | None
) -> None:
    route, dispatch, _ = chat_route()
    connection = Connection(pieces=[body])
    await route(connection.scope, connection.receive, connection.send)
    assert connection.status == status
    assert (connection.error["code"], connection.error["param"]) == (code, param)
    assert connection.error["type"] == "invalid_request_error"
    assert connection.headers["x-weighbridge-request-id"] == "id-1"
    assert "planted" not in connection.error["message"]
    assert "connection" not in connection.headers
    assert dispatch.requests == []


@pytest.mark.parametrize("stream", [None, False, ...])
async def test_stream_null_and_absent_mean_no(stream: object) -> None:
    route, dispatch, _ = chat_route()
    connection = Connection(pieces=[chat_body(stream=stream)])
    await route(connection.scope, connection.receive, connection.send)
    assert connection.status == 200
    assert dispatch.requests[0].stream is False


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", None])
async def test_the_content_type_is_not_looked_at(kind: str | None) -> None:
    route, _, _ = chat_route()
    connection = Connection(pieces=[chat_body()], headers={"content-type": kind} if kind else {})
    await route(connection.scope, connection.receive, connection.send)
    assert connection.status == 200


async def test_a_bad_key_is_refused_before_the_body_is_read() -> None:
    route, dispatch, _ = chat_route(auth=KEYED)
    connection = Connection(pieces=[chat_body()], headers={"authorization": "Bearer wb-planted"})
    await route(connection.scope, connection.receive, connection.send)
    assert (connection.status, connection.error["code"]) == (401, "invalid_api_key")
    assert connection.body_messages_read == 0
    assert dispatch.requests == []


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip", "GZIP"])
async def test_a_compressed_body_is_refused_unread(encoding: str) -> None:
    route, dispatch, _ = chat_route(auth=KEYED)
    connection = Connection(
        pieces=[b"\x1f\x8b"], headers=AUTHORIZED | {"content-encoding": encoding, "content-length": "2"}
    )
    await route(connection.scope, connection.receive, connection.send)
    assert (connection.status, connection.error["code"]) == (415, "unsupported_content_encoding")
    assert not dispatch.requests and connection.body_messages_read == 0


async def test_a_body_may_say_that_it_is_not_compressed() -> None:
    route, dispatch, _ = chat_route(auth=KEYED)
    connection = Connection(pieces=[chat_body()], headers=AUTHORIZED | {"content-encoding": "Identity"})
    await route(connection.scope, connection.receive, connection.send)
    assert connection.status == 200 and len(dispatch.requests) == 1


@pytest.mark.parametrize(
    ("length", "closes"), [(None, True), ("4097", False), ("32768", False), ("32769", True)]
)
async def test_413_ends_the_connection_only_when_too_much_would_follow(
    length: str | None, closes: bool
) -> None:
    route, _, _ = chat_route(max_body_bytes=4096)
    headers = {} if length is None else {"content-length": length}
    connection = Connection(pieces=[b"x" * 4097], headers=headers)
    await route(connection.scope, connection.receive, connection.send)
    assert (connection.status, connection.error["code"]) == (413, "request_too_large")
    assert (connection.headers.get("connection") == "close") is closes


async def test_an_api_error_is_answered_with_the_routers_headers() -> None:
    async def refuse(request: Admitted, sink: Sink) -> None:
        error = ApiError(429, "Busy.", type="rate_limit_error", code="queue_full", retry_after_s=2)
        error.answer_headers = [(b"x-weighbridge-road", b"local-8b")]
        raise error

    route, _, _ = chat_route(refuse)
    connection = Connection(pieces=[chat_body(stream=True)])
    await route(connection.scope, connection.receive, connection.send)
    assert (connection.status, connection.error["code"]) == (429, "queue_full")
    assert connection.headers["retry-after"] == "2"
    assert connection.headers["x-weighbridge-road"] == "local-8b"


async def test_a_fault_of_ours_is_500_and_logged_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    async def fault(request: Admitted, sink: Sink) -> None:
        raise RuntimeError("planted-text")

    route, _, _ = chat_route(fault)
    connection = Connection(pieces=[chat_body()])
    with caplog.at_level(logging.DEBUG):
        await route(connection.scope, connection.receive, connection.send)
    assert (connection.status, connection.error["code"]) == (500, "internal_error")
    assert "id-1" in caplog.text
    assert "RuntimeError" in caplog.text
    assert "planted" not in caplog.text + connection.body.decode()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_fault_after_the_start_cuts_the_connection(stream: bool) -> None:
    async def fault(request: Admitted, sink: Sink) -> None:
        await sink.start(200, [])
        await sink.write(b"half")
        raise RuntimeError

    route, _, _ = chat_route(fault)
    connection = Connection(pieces=[chat_body(stream=stream)])
    await route(connection.scope, connection.receive, connection.send)
    assert connection.was_cut
    assert connection.body == b"half"
    assert not connection.complete


async def test_an_answer_that_is_never_ended_is_cut() -> None:
    async def forgets(request: Admitted, sink: Sink) -> None:
        await sink.start(200, [])
        await sink.write(b"half")

    route, _, _ = chat_route(forgets)
    connection = Connection(pieces=[chat_body(stream=True)])
    await route(connection.scope, connection.receive, connection.send)
    assert connection.was_cut
    assert not connection.complete


async def working(request: Admitted, sink: Sink) -> None:
    """A stream under way, or an answer that is still being made."""
    if request.stream:
        await sink.start(200, [])
        await sink.write(b"data: 1\n\n")
    await asyncio.Event().wait()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_caller_who_leaves_cancels_the_work_at_once(stream: bool) -> None:
    route, dispatch, _ = chat_route(working)
    connection = Connection(pieces=[chat_body(stream=stream)])
    call = asyncio.create_task(route(connection.scope, connection.receive, connection.send))
    await dispatch.began.wait()
    connection.leave()
    async with asyncio.timeout(1):
        await dispatch.ended.wait()
        await call
    assert dispatch.ends == ["CancelledError"]
    assert not connection.complete
    assert connection.status == 200 if stream else connection.sent == []


async def test_a_caller_who_leaves_while_sending_is_never_admitted() -> None:
    route, dispatch, _ = chat_route()
    connection = Connection(pieces=None)
    connection.deliver(b'{"model"', more=True)
    call = asyncio.create_task(route(connection.scope, connection.receive, connection.send))
    await asyncio.sleep(0)
    connection.leave()
    async with asyncio.timeout(1):
        await call
    assert dispatch.requests == []
    assert connection.sent == []


async def test_the_end_of_an_answer_is_not_taken_for_a_caller_who_left() -> None:
    async def ends_and_works_on(request: Admitted, sink: Sink) -> None:
        await sink.start(200, [])
        await sink.end()
        for _ in range(5):
            await asyncio.sleep(0)

    route, dispatch, _ = chat_route(ends_and_works_on)
    connection = Connection(pieces=[chat_body()])
    await route(connection.scope, connection.receive, connection.send)
    assert dispatch.ends == ["ok"]
    assert not connection.was_cut


async def test_a_slow_reader_is_cut_and_counted() -> None:
    async def pours(request: Admitted, sink: Sink) -> None:
        await sink.start(200, [])
        try:
            while True:
                await sink.write(b"data: 1\n\n")
                await asyncio.sleep(0)
        except ClientGone as exc:
            assert exc.code == "slow_reader"

    route, dispatch, count = chat_route(pours, slow_reader_timeout_s=0.02)
    connection = Connection(pieces=[chat_body(stream=True)])
    call = asyncio.create_task(route(connection.scope, connection.receive, connection.send))
    await connection.wrote.wait()
    connection.reading.clear()
    async with asyncio.timeout(2):
        await call
    assert connection.was_cut
    assert (dispatch.ends, count.value) == (["ok"], 1)


async def drained(script: Script, connection: Connection) -> tuple[FakeDispatch, int, list[str]]:
    events: list[str] = []
    underway = Underway(on_cut=lambda: events.extend(["cutting", *dispatch.ends]))
    route, dispatch, _ = chat_route(script, underway=underway)
    call = asyncio.create_task(route(connection.scope, connection.receive, connection.send))
    await dispatch.began.wait()
    async with asyncio.timeout(2):
        cut = await underway.drain(0.01)
        await call
    return dispatch, cut, events


async def test_the_drain_limit_ends_a_stream_with_an_error_event_and_no_done() -> None:
    connection = Connection(pieces=[chat_body(stream=True)])
    dispatch, cut, events = await drained(working, connection)
    assert (dispatch.ends, cut, events) == (["CancelledError"], 1, ["cutting"])
    assert b'"code":"shutting_down"' in connection.body
    assert b"[DONE]" not in connection.body
    assert connection.complete


async def test_the_drain_limit_refuses_what_has_no_answer_yet() -> None:
    connection = Connection(pieces=[chat_body()])
    await drained(working, connection)
    assert (connection.status, connection.error["code"]) == (503, "shutting_down")
    assert connection.headers["retry-after"] == "5"
    assert connection.headers["connection"] == "close"


async def test_the_drain_limit_cuts_half_a_document() -> None:
    async def half(request: Admitted, sink: Sink) -> None:
        await sink.start(200, [])
        await sink.write(b'{"half":')
        await asyncio.Event().wait()

    connection = Connection(pieces=[chat_body()])
    await drained(half, connection)
    assert connection.was_cut
    assert not connection.complete


async def test_the_drain_limit_cuts_a_body_that_is_still_arriving() -> None:
    underway = Underway()
    route, dispatch, _ = chat_route(underway=underway)
    connection = Connection(pieces=None)
    connection.deliver(b'{"model"', more=True)
    call = asyncio.create_task(route(connection.scope, connection.receive, connection.send))
    await asyncio.sleep(0)
    async with asyncio.timeout(2):
        assert await underway.drain(0.01) == 1
        await call
    assert connection.was_cut
    assert dispatch.requests == []


async def test_a_drain_lets_answers_finish_and_takes_no_new_ones() -> None:
    underway, go = Underway(), asyncio.Event()

    async def waits(request: Admitted, sink: Sink) -> None:
        await sink.start(200, [])
        await go.wait()
        await sink.end()

    route, dispatch, _ = chat_route(waits, underway=underway)
    first, second = Connection(pieces=[chat_body()]), Connection(pieces=[chat_body()])
    call = asyncio.create_task(route(first.scope, first.receive, first.send))
    await dispatch.began.wait()
    drain = asyncio.create_task(underway.drain(5))
    await asyncio.sleep(0)
    await route(second.scope, second.receive, second.send)
    assert (second.status, second.error["code"]) == (503, "shutting_down")
    go.set()
    async with asyncio.timeout(2):
        assert await drain == 0
        await call
    assert first.complete
    assert underway.count == 0
