"""What an event of a stream from another machine costs between the two sockets."""

from __future__ import annotations

import json

from tests.support.cost import in_references
from weighbridge.config.sse import SseParser
from weighbridge.config.usage import TokenMeter
from weighbridge.pool.http_answer import Renamed, StreamReader, Tally

MOST_ALONE = 0.25
MOST_OF_MANY = 0.16
"""Reference loops an event; half of it was measured."""


def event(text: str) -> bytes:
    document = {
        "id": "chatcmpl-0123456789",
        "object": "chat.completion.chunk",
        "created": 1_764_000_000,
        "model": "served-model",
        "choices": [{"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}],
        "usage": {"prompt_tokens": 230, "completion_tokens": 7, "total_tokens": 237},
    }
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def cost_of(piece: bytes, events: int) -> float:
    parser = SseParser(1 << 20)
    reader = StreamReader({"stream": True}, Renamed("r-1", "local-8b"), Tally(TokenMeter()))

    def one() -> None:
        made, fault = reader.take_all(parser.feed(piece))
        assert fault is None and made.count(b'"model":"local-8b"') == events

    return in_references(one, 100) / events


def test_an_event_that_comes_alone_stays_in_budget() -> None:
    assert (cost := cost_of(event(" parcel"), 1)) < MOST_ALONE, f"{cost:.2f} reference loops"


def test_events_that_come_together_cost_less() -> None:
    assert (cost := cost_of(event(" parcel") * 16, 16)) < MOST_OF_MANY, f"{cost:.2f} reference loops"


def test_plain_events_are_not_read_line_by_line() -> None:
    plain, parser = event(" parcel") * 16, SseParser(1 << 20)
    commented = plain.replace(b"data: ", b": ping\ndata: ")
    assert parser.feed(plain) == parser.feed(commented)
    assert in_references(lambda: parser.feed(plain)) < 0.5 * in_references(lambda: parser.feed(commented))
