"""Reading a request body within its limits, and decoding it once."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from starlette.types import Receive

from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.config.offload import BODIES
from weighbridge.gateway.auth import HeaderMap
from weighbridge.gateway.waiting import within
from weighbridge.router.admitted import ClientGone

BODY_TIMEOUT_S = 60.0
"""A body must have arrived this long (seconds) after its headers."""

THREAD_BYTES = 262_144
DENSE_BYTES, DENSE_NODES = 32_768, 8_000
"""Bodies above so many bytes, or above fewer that hold many values, are decoded in a thread, so that other answers go
on streaming. Values cost far more than text."""

MAX_DEPTH = 64
"""Levels of nesting. Deeper values would exhaust the recursion of whoever walks them later."""

MAX_NODES = 100_000
"""Values and names in one body, about: commas, colons and opening brackets outside text are counted. Every later
step walks them one by one, so a few megabytes of `[],[],` would hold up everybody for seconds."""

_MOST_DIGITS = 20
_POSITION = re.compile(r"\(byte (\d+)\)")


def too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        f"The request body is larger than the {limit} bytes this gateway takes.",
        type="invalid_request_error",
        code="request_too_large",
    )


def compressed() -> ApiError:
    return ApiError(
        415,
        "Request bodies are taken as they are, not compressed: leave 'Content-Encoding' out.",
        type="invalid_request_error",
        code="unsupported_content_encoding",
    )


def declared_length(headers: HeaderMap) -> int | None:
    """`Content-Length` in bytes; None when there is none to go by."""
    value = headers.get(b"content-length", b"")
    if not value.isdigit():
        return None
    # The parser lets zeros stand before a number of at most twenty digits.
    return int(value) if len(value) <= _MOST_DIGITS else int(value.lstrip(b"0")[:_MOST_DIGITS] or b"0")


async def read_body(receive: Receive, headers: HeaderMap, limit: int) -> bytes:
    """The whole body, at most `limit` bytes of it.

    Raises:
        ApiError: 413 beyond the limit (before reading, if the length is declared), 408 when it does not arrive.
        ClientGone: the caller left before it was complete.
    """
    declared = declared_length(headers)
    if declared is not None and declared > limit:
        raise too_large(limit)
    try:
        return await within(_read(receive, limit), BODY_TIMEOUT_S)
    except TimeoutError:
        raise ApiError(
            408, "The request body did not arrive in time.", type="invalid_request_error", code="body_timeout"
        ) from None


async def _read(receive: Receive, limit: int) -> bytes:
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        body: bytes = message.get("body", b"")
        if len(body) > limit:
            raise too_large(limit)
        return body
    parts = bytearray()
    while message["type"] == "http.request":
        parts += message.get("body", b"")
        if len(parts) > limit:
            raise too_large(limit)
        if not message.get("more_body", False):
            return bytes(parts)
        message = await receive()
    raise ClientGone


async def decode_object(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`.

    Raises:
        InvalidRequest: not a JSON object, not UTF-8, a number out of range, a repeated name, nested too deep, too
            many values.
    """
    if len(body) > THREAD_BYTES or (len(body) > DENSE_BYTES and _marks(body) > DENSE_NODES):
        return await BODIES.run(parse_object, body)
    return parse_object(body)


def parse_object(body: bytes) -> dict[str, Any]:
    """See `decode_object`; this one does it on the spot."""
    if len(body) > MAX_NODES and _has_too_many_nodes(body):
        raise InvalidRequest(
            f"The request body holds more than {MAX_NODES} values and names.", code="too_many_values"
        )
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as exc:
        # Only the position is taken over from the parser's text.
        position = _POSITION.search(str(exc))
        where = f" (at byte {position[1]})" if position else ""
        raise InvalidRequest(f"The request body is not valid JSON{where}.", code="invalid_json") from None
    if type(value) is not dict:
        raise InvalidRequest("The request body must be a JSON object.", code="invalid_json")
    if _colons(value) != body.count(b":") and _repeats_a_name(body):
        raise InvalidRequest("The request body has the same name twice in one object.", code="invalid_json")
    return value


def _has_too_many_nodes(body: bytes) -> bool:
    """Whether there are more than `MAX_NODES`, by counting bytes only: this is what guards the decoder."""
    if _marks(body) <= MAX_NODES:
        return False
    # Long texts hold many commas. Without escapes, every second piece between quotes is outside of text.
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if unescaped.count(b'"') > 2 * MAX_NODES:
        return True
    return _marks(b"".join(unescaped.split(b'"')[::2])) > MAX_NODES


def _marks(text: bytes) -> int:
    return sum(text.count(mark) for mark in (b",", b":", b"[", b"{"))


def _colons(value: dict[str, Any]) -> int:
    """Colons `value` has when written as JSON: one a name, and those inside its strings.

    If the body has more, names were dropped because they came twice (or a colon is written as an escape). Counting
    finds that out at the price of one walk, which also bounds the depth.

    Raises:
        InvalidRequest: nested too deep.
    """
    colons = 0
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for node in level:
            if type(node) is dict:
                colons += len(node) + "".join(node).count(":")
                node = node.values()
            for leaf in node:
                kind = type(leaf)
                if kind is str:
                    if ":" in leaf:
                        colons += leaf.count(":")
                elif kind is dict or kind is list:
                    below.append(leaf)
        if not below:
            return colons
        level = below
    raise _too_deep()


def _repeats_a_name(body: bytes) -> bool:
    """The exact, slow check; reached only when the colons do not add up."""
    repeated = False

    def look(pairs: list[tuple[str, Any]]) -> None:
        nonlocal repeated
        repeated = repeated or len({name for name, _ in pairs}) != len(pairs)

    try:
        json.loads(body, object_pairs_hook=look)
    except RecursionError:
        raise _too_deep() from None
    return repeated


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"The request body is nested deeper than {MAX_DEPTH} levels.", code="invalid_json")
