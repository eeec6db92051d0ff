"""Bodies: limits before reading, and JSON that is refused rather than guessed at."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.gateway.asgi import Connection
from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.gateway import body as body_module
from weighbridge.gateway.body import (
    DENSE_BYTES,
    DENSE_NODES,
    MAX_DEPTH,
    MAX_NODES,
    THREAD_BYTES,
    declared_length,
    decode_object,
    parse_object,
    read_body,
)
from weighbridge.router.admitted import ClientGone

BAD = {
    "empty": b"",
    "not JSON": b"hello",
    "trailing text": b'{"a":1}x',
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":-Infinity}',
    "float out of range": b'{"a":1e999}',
    "integer out of range": b'{"a":' + b"9" * 5000 + b"}",
    "not UTF-8": b'{"a":"\xff"}',
    "encoded surrogate": b'{"a":"\xed\xa0\x80"}',
    "lone high surrogate": b'{"a":"\\ud800"}',
    "lone low surrogate": b'{"a":"\\udc00 x"}',
    "lone surrogate in a name": b'{"\\ud800":1}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "a list": b"[1]",
    "text": b'"a"',
    "null": b"null",
    "very deep lists": b'{"a":' + b"[" * 50_000,
    "deep lists": b'{"a":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
    "deep objects": b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1),
    "a name twice": b'{"a":1,"a":2}',
    "a name twice, far apart": b'{"a":{"x:y":"p:q","b":[{"c":1 , "c" : 2}]}}',
    "a name twice, one escaped": b'{"a":1,"\\u0061":2}',
    "a name twice, colons escaped": b'{"a":"\\u003a\\u003A","a":"::"}',
    "a name twice, the dropped one deep": b'{"a":' + b"[" * 900 + b"]" * 900 + b',"a":1}',
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD.keys())
def test_bad_json_is_the_callers_fault(raw: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_object(raw)
    assert caught.value.status == 400
    assert caught.value.code == "invalid_json"


def test_the_message_names_the_place_and_nothing_of_the_body() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_object(b'{"planted-secret": tru, "a": 1}')
    assert "byte" in caught.value.message
    assert "planted" not in caught.value.message


GOOD = {
    "colons everywhere": b'{"a:b":"c:d::","e":{"f":":"}, "g" :[":", {"h":1}]}',
    "escaped colon": b'{"a\\u003ab":"c\\u003Ad"}',
    "quotes before colons": b'{"a":"\\":\\":","b\\\\":"\\\\"}',
    "just deep enough": b'{"a":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}",
    "large whole number": b'{"a":123456789012345678901234567890}',
    "NUL in text": b'{"a":"\\u0000"}',
    "pair of surrogates": b'{"a":"\\ud83d\\ude00"}',
    "no names": b"{}",
}


@pytest.mark.parametrize("raw", GOOD.values(), ids=GOOD.keys())
def test_good_json_is_read_as_any_parser_reads_it(raw: bytes) -> None:
    assert parse_object(raw) == json.loads(raw)


class Pairs(list[tuple[str, object]]):
    """An object as its pairs, so that a name can come twice."""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(st.tuples(st.text(':\\"ab', max_size=3), inner), max_size=4).map(Pairs)
    ),
    max_leaves=20,
)


def write(value: object) -> str:
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(name)} : {write(inner)}" for name, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(write(inner) for inner in value) + "]"
    return json.dumps(value)


def repeats(value: object) -> bool:
    if isinstance(value, Pairs):
        names = [name for name, _ in value]
        return len(set(names)) < len(names) or any(repeats(inner) for _, inner in value)
    return isinstance(value, list) and any(repeats(inner) for inner in value)


@given(JSON)
def test_exactly_the_bodies_with_a_repeated_name_are_refused(value: object) -> None:
    whole = Pairs([("top", value)])
    raw = write(whole).encode()
    if repeats(whole):
        with pytest.raises(InvalidRequest):
            parse_object(raw)
    else:
        assert parse_object(raw) == json.loads(raw)


@given(st.binary(max_size=60))
def test_no_bytes_bring_anything_but_a_refusal(raw: bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        parse_object(raw)


def listed(item: bytes, count: int) -> bytes:
    return b'{"a":[' + b",".join([item] * count) + b"]}"


TOO_MANY = {
    "lists": listed(b"[]", MAX_NODES // 2 + 1),
    "objects": listed(b"{}", MAX_NODES // 2 + 1),
    "numbers": listed(b"1", MAX_NODES + 1),
    "empty texts": listed(b'""', MAX_NODES + 1),
    "texts with marks": listed(b'"[\\\\\\",{"', MAX_NODES + 1),
    "texts that end in a backslash": listed(b'"\\\\"', MAX_NODES + 1),
    "names": listed(b'{"b":1}', MAX_NODES // 3 + 1),
    "not even JSON": b"[" * (MAX_NODES + 1),
}


@pytest.mark.parametrize("raw", TOO_MANY.values(), ids=TOO_MANY.keys())
def test_too_many_values_are_refused_before_they_are_decoded(
    raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_module.msgspec.json, "decode", None)
    with pytest.raises(InvalidRequest) as caught:
        parse_object(raw)
    assert caught.value.code == "too_many_values"


MANY_ENOUGH = {
    "as many as are taken": listed(b"[]", MAX_NODES // 2 - 3),
    "one text": msgspec.json.encode({"a": '1,[{:\\",' * MAX_NODES}),
    "JSON in a text": msgspec.json.encode({"a": msgspec.json.encode([{"b": "c"}] * MAX_NODES).decode()}),
}


@pytest.mark.parametrize("raw", MANY_ENOUGH.values(), ids=MANY_ENOUGH.keys())
def test_what_is_inside_a_text_does_not_count(raw: bytes) -> None:
    assert parse_object(raw) == json.loads(raw)


@given(st.lists(st.text('\\",:[{a', max_size=6), max_size=6), st.integers(0, 30))
def test_the_count_is_that_of_the_decoded_values(texts: list[str], limit: int) -> None:
    raw = msgspec.json.encode({"top": texts})
    nodes = 3 + max(0, len(texts) - 1)  # two brackets, a colon, and the commas between
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_module, "MAX_NODES", limit)
        if nodes > limit:
            assert body_module._has_too_many_nodes(raw)
        elif 2 * len(texts) + 2 <= 2 * limit:
            assert not body_module._has_too_many_nodes(raw)


async def test_large_bodies_are_decoded_in_a_thread_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    go, lock = threading.Event(), threading.Lock()
    busy = most = 0

    def slowly(body: bytes) -> dict[str, Any]:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        go.wait(5)
        with lock:
            busy -= 1
        return parse_object(body)

    monkeypatch.setattr(body_module, "parse_object", slowly)
    large = msgspec.json.encode({"a": "x" * THREAD_BYTES})
    decodes = [asyncio.create_task(decode_object(large)) for _ in range(6)]
    async with asyncio.timeout(5):
        while busy < 1:
            await asyncio.sleep(0.001)
    go.set()
    assert [decoded["a"] for decoded in await asyncio.gather(*decodes)] == ["x" * THREAD_BYTES] * 6
    assert most == 1


@pytest.mark.parametrize(
    ("body", "beside"),
    [
        ({"a": "x" * (DENSE_BYTES + 1)}, False),
        ({"a": ", " * (DENSE_NODES // 2 - 10) + "x" * DENSE_BYTES}, False),
        ({"a": [0] * (DENSE_NODES - 100)}, False),
        ({"a": [[]] * (DENSE_NODES + 4_000)}, True),
        ({"a": [{"": 0}] * DENSE_NODES}, True),
        ({"a": "x" * THREAD_BYTES}, True),
    ],
)
async def test_bodies_that_take_long_are_decoded_in_a_thread(
    body: dict[str, Any], beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def noting(raw: bytes) -> dict[str, Any]:
        seen.append(threading.current_thread() is not threading.main_thread())
        return parse_object(raw)

    monkeypatch.setattr(body_module, "parse_object", noting)
    assert await decode_object(msgspec.json.encode(body)) == body
    assert seen == [beside]


async def test_small_bodies_are_decoded_on_the_spot() -> None:
    decoding = decode_object(b'{"a":1}')
    with pytest.raises(StopIteration) as done:
        decoding.send(None)
    assert done.value.value == {"a": 1}


async def read(connection: Connection, limit: int) -> bytes:
    return await read_body(connection.receive, dict(connection.scope["headers"]), limit)


async def test_pieces_are_joined() -> None:
    assert await read(Connection(pieces=[b"ab", b"", b"cd"]), 4) == b"abcd"
    assert await read(Connection(pieces=[b"abcd"]), 4) == b"abcd"


@pytest.mark.parametrize("pieces", [[b"abcde"], [b"abc", b"de"]])
async def test_one_byte_too_many_is_413(pieces: list[bytes]) -> None:
    with pytest.raises(ApiError) as caught:
        await read(Connection(pieces=pieces), 4)
    assert (caught.value.status, caught.value.code) == (413, "request_too_large")


async def test_a_declared_length_is_refused_before_reading() -> None:
    connection = Connection(pieces=None, headers={"content-length": "5"})
    with pytest.raises(ApiError) as caught:
        await read(connection, 4)
    assert caught.value.status == 413
    assert connection.body_messages_read == 0


async def test_a_length_that_is_no_number_does_not_count() -> None:
    for value in ("-1", "five"):
        connection = Connection(pieces=[b"ab"], headers={"content-length": value})
        assert await read(connection, 4) == b"ab"


@pytest.mark.parametrize(
    ("value", "length"),
    [
        ("9" * 18, 10**18 - 1),
        ("9" * 20, 10**20 - 1),
        ("9" * 5000, 10**20 - 1),
        ("0" * 5000 + "7", 7),
        ("0" * 99, 0),
    ],
)
async def test_a_length_of_any_number_of_digits_counts_before_the_body_is_read(
    value: str, length: int
) -> None:
    assert declared_length({b"content-length": value.encode()}) == length
    connection = Connection(pieces=None, headers={"content-length": value})
    if length > 4:
        with pytest.raises(ApiError) as caught:
            await read(connection, 4)
        assert caught.value.status == 413
        assert connection.body_messages_read == 0


async def test_a_caller_who_leaves_while_sending_is_gone() -> None:
    for pieces in ([], [b"ab"]):
        connection = Connection(pieces=None)
        for piece in pieces:
            connection.deliver(piece, more=True)
        connection.leave()
        with pytest.raises(ClientGone):
            await read(connection, 4)


async def test_a_body_that_does_not_arrive_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "BODY_TIMEOUT_S", 0.01)
    connection = Connection(pieces=None)
    connection.deliver(b"ab", more=True)
    with pytest.raises(ApiError) as caught:
        await read(connection, 4)
    assert caught.value.status == 408
