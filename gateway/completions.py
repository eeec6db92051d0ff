"""`POST /v1/completions`: the chat route with the caller's side of it translated.

The request is admitted, weighed, queued, masked and recorded as a conversation of one user's message; see
`gateway.completions_body` and `gateway.completions_answer` for the two directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from weighbridge.config.errors import ApiError
from weighbridge.config.offload import BODIES
from weighbridge.gateway.completions_answer import Translator, param_of
from weighbridge.gateway.completions_body import to_chat
from weighbridge.router.admitted import Header, Sink
from weighbridge.router.answer import DONE, frame, payload_of

_INLINE_BYTES = 32_768
"""Size of a whole answer up to which it is translated on the event loop: some milliseconds at most."""

_EVENT_END = b"\n\n"


class TextCompletions:
    """The `gateway.chat.Form` of `/v1/completions`."""

    def to_chat(self, body: dict[str, Any]) -> dict[str, Any]:
        return to_chat(body)

    def sink(self, sink: Sink, stream: bool) -> Sink:
        return StreamSink(sink) if stream else DocumentSink(sink)

    def error(self, error: ApiError) -> ApiError:
        """`error` with the caller's own field in it."""
        error.param = param_of(error.param)
        return error


class DocumentSink:
    """Holds a whole answer back until it is there: the head says how long it is."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._head: tuple[int, list[Header]] = (200, [])
        self._body = b""

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        self._head = (status, [header for header in headers if header[0] != b"content-length"])

    async def write(self, data: bytes) -> None:
        self._body += data

    async def end(self) -> None:
        translating = partial(_translated, self._body)
        body = await BODIES.run(translating) if len(self._body) > _INLINE_BYTES else translating()
        status, headers = self._head
        await self._sink.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self._sink.write(body)
        await self._sink.end()


class StreamSink:
    """Translates a stream event by event; comments pass as they are."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._translator = Translator()
        self._rest = b""

    async def start(self, status: int, headers: Sequence[Header]) -> None:
        await self._sink.start(status, headers)

    async def write(self, data: bytes) -> None:
        *events, self._rest = (self._rest + data).split(_EVENT_END)
        made = b"".join([self._event(event + _EVENT_END) for event in events])
        if made:
            await self._sink.write(made)

    async def end(self) -> None:
        await self._sink.end()

    def _event(self, event: bytes) -> bytes:
        if event == DONE or not event.startswith(b"data: "):
            return event
        chunk = self._translator.chunk(msgspec.json.decode(payload_of(event)))
        return b"" if chunk is None else frame(msgspec.json.encode(chunk))


def _translated(document: bytes) -> bytes:
    return msgspec.json.encode(Translator().document(msgspec.json.decode(document)))
