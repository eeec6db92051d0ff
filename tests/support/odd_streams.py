"""The bytes of streamed answers, sound and odd, for a recorder's `raw` mode."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"
PIECES = ["안녕", "하세요", ", ", "가각", " emoji ", "👩‍👩‍👧", " jamo ", "각", "!"]
"""Korean, an emoji of several characters, and single jamo."""
TEXT = "".join(PIECES)


def head(content_type: str = "text/event-stream", *more: str) -> bytes:
    """The head of an answer that ends with its connection."""
    lines = ["HTTP/1.1 200 OK", f"content-type: {content_type}", "connection: close", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def document(choices: list[dict[str, Any]], **more: Any) -> bytes:
    """One chunk as JSON."""
    body = {
        "id": "chatcmpl-odd",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "odd-model",
        "choices": choices,
    }
    return json.dumps({**body, **more}, ensure_ascii=False).encode()


def choice(delta: dict[str, Any], reason: str | None = None) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": delta, "finish_reason": reason}]


def event(payload: bytes) -> bytes:
    return b"data: " + payload + b"\n\n"


ROLE = document(choice({"role": "assistant", "content": ""}))
END = document(choice({}, "stop"))
USAGE = document([], usage={"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16})


def payloads(pieces: Sequence[str] = PIECES) -> list[bytes]:
    """The chunks of a whole answer, usage included."""
    return [ROLE, *(document(choice({"content": piece})) for piece in pieces), END, USAGE]


def stream(chunks: Iterable[bytes]) -> bytes:
    """Events around the chunks, as everybody writes them."""
    return b"".join(map(event, chunks))


def numbered(count: int) -> list[str]:
    """`count` tokens that can be told apart."""
    return [f"t{n} " for n in range(count)]
