"""How an answer looks on the wire: our headers, SSE framing, and where its content begins."""

from __future__ import annotations

from typing import Any

import msgspec

from weighbridge.config.errors import ApiError
from weighbridge.router.admitted import Header

DONE = b"data: [DONE]\n\n"

_OURS = (
    b"x-weighbridge-request-id",
    b"x-weighbridge-road",
    b"x-weighbridge-score",
    b"x-weighbridge-task",
    b"x-weighbridge-policy",
    b"x-weighbridge-attempts",
    b"x-weighbridge-queue-ms",
    b"x-weighbridge-reason",
)


class Delta(msgspec.Struct):
    """What a message, or a piece of one, may carry; of any type, since providers differ."""

    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None
    audio: Any = None


class _Choice(msgspec.Struct):
    delta: Delta | None = None
    finish_reason: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None


_chunk = msgspec.json.Decoder(_Chunk)


def frame(payload: bytes) -> bytes:
    """One Server-Sent Event around a JSON payload."""
    return b"data: " + payload + b"\n\n"


def payload_of(event: bytes) -> bytes:
    """The JSON of an event as engines frame it."""
    return event[6:].rstrip(b"\n")


def commits(piece: bytes) -> bool:
    """Whether one of the events in a piece, as engines frame them, is the commit point."""
    events = piece.split(b"\n\n") if piece.count(b"\n\n") > 1 else (piece,)
    return any(has_content(payload_of(event)) for event in events if event)


def has_content(payload: bytes) -> bool:
    """Whether this chunk is the commit point: it carries content or ends a choice. A role alone does not."""
    for choice in _chunk.decode(payload).choices or ():
        delta = choice.delta
        if choice.finish_reason is not None:
            return True
        if delta is not None and (
            delta.content
            or delta.reasoning
            or delta.reasoning_content
            or delta.refusal
            or delta.tool_calls
            or delta.function_call
            or delta.audio
        ):
            return True
    return False


def is_usage_only(payload: bytes) -> bool:
    """The extra last chunk of `stream_options.include_usage`, which only those who asked for it may see."""
    if b'"usage"' not in payload:
        return False
    chunk = _chunk.decode(payload)
    return not chunk.choices and chunk.usage is not None


def wants_usage(body: dict[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))


def error_body(error: ApiError) -> bytes:
    """OpenAI's error object."""
    return msgspec.json.encode(
        {
            "error": {
                "message": error.message,
                "type": error.type,
                "param": error.param,
                "code": error.code,
            }
        }
    )


def content_headers(stream: bool) -> list[Header]:
    if stream:
        return [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]
    return [(b"content-type", b"application/json")]


def weighbridge_headers(
    *,
    request_id: str,
    road: str,
    score: float | None,
    task: str,
    policy: str,
    attempts: int | None,
    queue_ms: float | None,
    reason: str,
) -> list[Header]:
    """The `x-weighbridge-*` headers every answer carries, errors included; what is not known is left out."""
    values = (
        request_id,
        road,
        "" if score is None else f"{score:.3f}",
        task,
        policy,
        "" if attempts is None else str(attempts),
        "" if queue_ms is None else f"{queue_ms:.0f}",
        reason,
    )
    return [
        (name, value.encode("latin-1", "replace")) for name, value in zip(_OURS, values, strict=True) if value
    ]
