"""The direct line to our own server: the bytes it writes, and what it keeps of uvicorn's record of a request."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from weighbridge.gateway.line import Line

DATE = (b"date", b"now")


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.closed = True

    @property
    def sent(self) -> bytes:
        return b"".join(self.writes)


def connected(*, old: bool = False, keep_alive: bool = True) -> tuple[Line, Transport, RequestResponseCycle]:
    transport: Any = Transport()
    logger = logging.getLogger("test")
    cycle = RequestResponseCycle(
        scope={"type": "http"},  # type: ignore[typeddict-item]
        transport=transport,
        flow=FlowControl(transport),
        logger=logger,
        access_logger=logger,
        access_log=False,
        default_headers=[DATE],
        message_event=asyncio.Event(),
        expect_100_continue=True,
        keep_alive=keep_alive,
        on_response=lambda: ended.append(True),
    )
    ended: list[bool] = []
    cycle.ended = ended  # type: ignore[attr-defined]
    line = Line()
    line.connect(cycle, old=old)
    return line, transport, cycle


def test_a_whole_answer_is_one_write() -> None:
    line, transport, cycle = connected()
    line.begin(200, [(b"content-type", b"text/plain"), (b"content-length", b"2")], 2)
    assert not transport.writes
    line.write(b"ab", last=True)
    assert transport.writes == [
        b"HTTP/1.1 200 OK\r\ndate: now\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nab"
    ]
    assert cycle.response_started and cycle.response_complete
    assert not cycle.waiting_for_100_continue
    assert cycle.ended == [True]  # type: ignore[attr-defined]
    assert not transport.closed


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=8))
def test_a_stream_is_chunked_and_its_last_chunk_is_empty(pieces: list[bytes]) -> None:
    line, transport, cycle = connected()
    line.begin(200, [], None)
    for piece in pieces:
        line.write(piece)
        assert not cycle.response_complete
    line.write(b"", last=True)
    head, _, body = transport.sent.partition(b"\r\n\r\n")
    assert head.endswith(b"transfer-encoding: chunked")
    assert body == b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    assert len(transport.writes) == len(pieces) + 1, "one write a piece, the head with the first"


def test_a_large_piece_is_not_copied_behind_its_head() -> None:
    line, transport, _ = connected()
    large = b"x" * 70_000
    line.begin(200, [(b"content-length", b"70000")], len(large))
    line.write(large, last=True)
    assert len(transport.writes) == 2 and transport.writes[1] is large


def test_an_old_caller_gets_no_chunks_and_the_connection_ends() -> None:
    line, transport, _ = connected(old=True, keep_alive=False)
    line.begin(200, [], None)
    line.write(b"ab")
    line.write(b"c", last=True)
    assert transport.sent == b"HTTP/1.1 200 OK\r\ndate: now\r\nconnection: close\r\n\r\nabc"
    assert transport.closed


def test_an_answer_may_end_its_connection() -> None:
    line, transport, cycle = connected()
    line.begin(408, [(b"content-length", b"0"), (b"connection", b"close")], 0)
    line.write(b"", last=True)
    assert transport.sent.count(b"connection: close") == 1
    assert transport.closed and not cycle.keep_alive


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\nb", b"a\rb"])
def test_no_header_holds_a_line_end(value: bytes) -> None:
    line, transport, _ = connected()
    with pytest.raises(ValueError, match="line end"):
        line.begin(200, [(b"x-weighbridge-reason", value)], None)
    assert not transport.writes


def test_to_a_caller_who_left_nothing_is_written_and_nothing_is_ended() -> None:
    line, transport, cycle = connected()
    line.begin(200, [], None)
    cycle.disconnected = True
    line.write(b"ab")
    line.write(b"", last=True)
    assert not transport.writes
    assert not cycle.response_complete and cycle.ended == []  # type: ignore[attr-defined]


def test_a_body_is_taken_whole_or_not_at_all() -> None:
    line, _, cycle = connected()
    cycle.body += b"ab"
    assert line.whole_body() is None, "more of it is to come"
    assert cycle.body == b"ab"
    cycle.more_body = False
    assert line.whole_body() == b"ab"
    assert cycle.body == b""


def test_the_body_of_a_caller_who_left_is_none() -> None:
    line, _, cycle = connected()
    cycle.more_body = False
    cycle.disconnected = True
    assert line.whole_body() is None


def test_a_full_connection_jams_until_its_caller_reads_or_leaves() -> None:
    line, _, cycle = connected()
    assert not line.jammed
    cycle.flow.pause_writing()
    assert line.jammed
    cycle.disconnected = True
    assert not line.jammed


def test_leaving_is_told_once_watched_even_if_it_was_earlier() -> None:
    told: list[str] = []
    line, _, _ = connected()
    line.watch(lambda: told.append("watched"))
    line.gone()
    line.unwatch()
    line.gone()
    line.watch(lambda: told.append("late"))
    assert told == ["watched", "late"]
