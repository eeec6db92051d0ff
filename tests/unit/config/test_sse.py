"""The event-stream parser."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.config.sse import EventTooLarge, SseParser

END = st.sampled_from([b"\n", b"\r\n", b"\r"])
DATA_LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=20).map(
    str.encode
)
NOISE = st.sampled_from(
    [b": comment", b":", b"event: message", b"id: 7", b"retry: 10", b"dataset: x", b"unknown", b" data: x"]
)


def parse(stream: bytes, cuts: list[int] | None = None) -> list[bytes]:
    parser = SseParser(1_000_000)
    edges = [0, *sorted(cuts or []), len(stream)]
    return [event for start, end in itertools.pairwise(edges) for event in parser.feed(stream[start:end])]


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A well-formed stream and the events in it."""
    stream = bytearray(draw(st.sampled_from([b"", b"\xef\xbb\xbf"])))
    expected: list[bytes] = []
    for _ in range(draw(st.integers(0, 6))):
        data: list[bytes] = []
        for _ in range(draw(st.integers(0, 4))):
            if draw(st.booleans()):
                line = draw(DATA_LINE)
                colon = draw(st.sampled_from([b"data: ", b"data:"]))
                data.append(line[1:] if colon == b"data:" and line.startswith(b" ") else line)
                stream += colon + line
            else:
                stream += draw(NOISE)
            stream += draw(END)
        # A CR that ends a line must not meet an LF that is a line of its own.
        stream += b"\n" if not stream.endswith(b"\r") else b"\r"
        if data:
            expected.append(b"\n".join(data))
    return bytes(stream), expected


@settings(deadline=None)
@given(streams(), st.data())
def test_any_cut_gives_the_same_events(made: tuple[bytes, list[bytes]], data: st.DataObject) -> None:
    stream, expected = made
    assert parse(stream) == expected
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    assert parse(stream, cuts) == expected
    assert parse(stream, list(range(len(stream)))) == expected


@settings(deadline=None)
@given(st.binary(max_size=200), st.data())
def test_garbage_gives_the_same_however_it_is_cut(stream: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    assert parse(stream, cuts) == parse(stream)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data\n\n", [b""]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b": ping\n\ndata: a\n\n", [b"a"]),
        (b"event: x\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [b"a"]),
        (b"data: a\n", []),
        (b"data: a", []),
        (b"\n\n\ndata: a\n\n\n\n", [b"a"]),
        ("data: 한글😀\n\n".encode(), ["한글😀".encode()]),
    ],
)
def test_the_standard_by_example(stream: bytes, events: list[bytes]) -> None:
    assert parse(stream) == events
    assert parse(stream, list(range(len(stream)))) == events


@pytest.mark.parametrize(
    "stream", [b"data: " + b"x" * 200, b"data: x\n" * 40, b": " + b"x" * 200, b"x" * 200]
)
def test_an_event_over_the_bound_is_refused(stream: bytes) -> None:
    for size in (1, 7, len(stream)):
        parser = SseParser(100)
        with pytest.raises(EventTooLarge):
            for at in range(0, len(stream), size):
                parser.feed(stream[at : at + size])


def test_the_bound_is_for_one_event_not_for_the_stream() -> None:
    parser = SseParser(100)
    assert parser.feed(b"data: " + b"x" * 80 + b"\n\n") == [b"x" * 80]
    assert parser.feed((b"data: " + b"x" * 80 + b"\n\n") * 5) == [b"x" * 80] * 5


def test_one_byte_at_a_time_costs_no_more_than_linear_time() -> None:
    parser = SseParser(2_000_000)
    before = time.process_time()
    for _ in range(500_000):
        parser.feed(b"x")
    assert time.process_time() - before < 10


def test_a_piece_that_looks_whole_goes_on_with_what_came_before() -> None:
    parser = SseParser(1_000)
    assert parser.feed(b"data: a") == []
    assert parser.feed(b"data: b\n\n") == [b"adata: b"]
    assert parser.feed(b"data: a\n") == []
    assert parser.feed(b"data: b\n\ndata: c\n\n") == [b"a\nb", b"c"]
    assert parser.feed(b"data: a\n\r") == [b"a"]
    assert parser.feed(b"data: b\n\n") == [b"b"]


def test_the_bound_holds_for_whole_events_too() -> None:
    fits, longer = b"data: " + 94 * b"x" + b"\n\n", b"data: " + 95 * b"x" + b"\n\n"
    assert SseParser(100).feed(2 * fits) == 2 * [94 * b"x"]
    with pytest.raises(EventTooLarge):
        SseParser(100).feed(fits + longer)
