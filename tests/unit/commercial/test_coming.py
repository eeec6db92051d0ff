"""A stream as it comes, under its limits. Time is virtual: every limit is met exactly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.virtual_time import run_virtual
from weighbridge.commercial import coming
from weighbridge.commercial.answer import StreamReading
from weighbridge.commercial.coming import Coming
from weighbridge.commercial.errors import UpstreamFailed
from weighbridge.config.limits import ExchangeLimits
from weighbridge.config.usage import TokenMeter

FAR = 10_000.0
WIDE = ExchangeLimits(FAR, FAR, FAR, FAR, FAR, FAR)
FIRST_S, GAP_S, LAST_S = 7.0, 3.0, 1.0


def data(document: Any) -> bytes:
    return b"data: " + (document if isinstance(document, bytes) else json.dumps(document).encode()) + b"\n\n"


def chunk(text: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    delta = {} if text is None else {"content": text}
    return data({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more})


ROLE = data({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
HI, END, DONE, COMMENT = chunk("Hi"), chunk(finish="stop"), data(b"[DONE]"), b": still here\n\n"
USAGE = data({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
EOF = b""


@dataclass
class Heard:
    """What came of a stream."""

    kind: str | None = None
    events: list[bytes] = field(default_factory=list)
    at: float = 0.0
    """When it ended, in seconds."""
    meter: TokenMeter = field(default_factory=TokenMeter)

    @property
    def text(self) -> str:
        documents = [json.loads(event) for event in self.events]
        return "".join(
            one["delta"].get("content") or "" for each in documents for one in each["choices"] or []
        )


def hear(
    *pieces: tuple[float, bytes], limits: ExchangeLimits = WIDE, choices: int = 1, sent_at: float = 0.0
) -> Heard:
    """Read a stream whose pieces come at these times; after the last one it says nothing more."""
    heard = Heard()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        waiting = list(pieces)
        await asyncio.sleep(sent_at)

        async def piece(within_s: float) -> bytes:
            at = waiting[0][0] if waiting else float("inf")
            wait_s = max(0.0, at - loop.time())
            if wait_s > 0 and wait_s >= within_s:
                await asyncio.sleep(within_s)
                raise UpstreamFailed("stall")
            await asyncio.sleep(wait_s)
            return waiting.pop(0)[1]

        reading = StreamReading(choices, heard.meter)
        stream = Coming(piece, loop.time(), reading, limits)
        try:
            while (events := await stream.next()) is not None:
                heard.events += events
        except UpstreamFailed as exc:
            heard.kind = exc.kind
        heard.at = loop.time()

    run_virtual(main())
    return heard


def all_at(at: float, *events: bytes) -> tuple[float, bytes]:
    return at, b"".join(events)


WHOLE = all_at(1, ROLE, HI, END, USAGE, DONE)


def test_a_whole_answer_ends_with_its_last_word() -> None:
    heard = hear(WHOLE)
    assert (heard.kind, heard.text, len(heard.events), heard.at) == (None, "Hi", 4, 1)
    assert (heard.meter.completion, heard.meter.exact) == (2, True)


@pytest.mark.parametrize(
    "silence",
    [
        (),
        ((1, ROLE),),
        ((1, COMMENT), (4, COMMENT), (6.9, COMMENT)),
        ((1, ROLE), (2, data(b"ping")), (6, ROLE)),
        tuple((n / 2, COMMENT) for n in range(100)),
    ],
)
def test_the_first_content_has_a_limit_of_its_own(silence: Sequence[tuple[float, bytes]]) -> None:
    heard = hear(*silence, limits=replace(WIDE, first_token_s=FIRST_S))
    assert (heard.kind, heard.at) == ("stall", FIRST_S)


def test_it_counts_from_the_sent_request_and_the_gap_does_not_matter_before_it() -> None:
    limits = replace(WIDE, first_token_s=FIRST_S, gap_s=0.5)
    assert hear((105, ROLE), (106.9, HI + END + DONE), limits=limits, sent_at=100).kind is None
    assert hear((107.1, HI + END + DONE), limits=limits, sent_at=100).at == 107


def test_what_ends_without_content_begins_as_well() -> None:
    """A choice may end at once, such as one that a filter stopped."""
    assert hear((1, chunk(finish="content_filter")), (1.5, DONE)).kind is None


@pytest.mark.parametrize(
    "filler",
    [
        (),
        ((2, COMMENT), (3, COMMENT), (3.9, COMMENT)),
        ((2, data(b"ping")), (3.5, data(b"keep-alive"))),
        ((2, b"data: {"), (3.5, b'"choices"')),
    ],
    ids=["silent", "comments", "bare words", "half a line"],
)
def test_the_gap_after_it_has_a_limit_that_only_chunks_meet(filler: Sequence[tuple[float, bytes]]) -> None:
    heard = hear((1, HI), *filler, limits=replace(WIDE, gap_s=GAP_S))
    assert (heard.kind, heard.at, heard.text) == ("stall", 1 + GAP_S, "Hi")


def test_comments_do_not_count_against_a_slow_stream_either() -> None:
    pieces: list[tuple[float, bytes]] = [(1, HI)]
    for n in range(20):
        pieces += [(1 + 2.9 * n + 1.5, COMMENT), (1 + 2.9 * (n + 1), chunk("x"))]
    last = pieces[-1][0]
    heard = hear(*pieces, (last + 1, END + DONE), limits=replace(WIDE, first_token_s=2.0, gap_s=GAP_S))
    assert (heard.kind, heard.text) == (None, "Hi" + "x" * 20)


def test_an_answer_without_done_ends_soon_after_its_end() -> None:
    heard = hear((1, HI), (2, END))
    assert (heard.kind, heard.text, heard.at) == (None, "Hi", 2 + LAST_S)


def test_the_count_after_the_end_ends_it_at_once() -> None:
    heard = hear((1, HI), (2, END), (2.5, USAGE))
    assert (heard.kind, heard.at) == (None, 2.5)
    assert (heard.meter.prompt, heard.meter.completion, heard.meter.exact) == (5, 2, True)


def test_a_count_before_the_end_does_not() -> None:
    early = data({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 0}})
    heard = hear((1, early), (1, HI), (2, END), (2.5, USAGE))
    assert (heard.at, heard.meter.completion, len(heard.events)) == (2.5, 2, 4)


@pytest.mark.parametrize("filler", [COMMENT, data(b"ping"), data({"choices": []}), ROLE])
def test_nothing_lengthens_the_wait_for_the_last_words(filler: bytes) -> None:
    heard = hear((1, HI), (2, END), *((2 + n * 0.4, filler) for n in range(1, 500)))
    assert heard.kind is None and heard.at <= 2 + LAST_S + 0.4


def test_the_closed_connection_after_the_end_is_an_end() -> None:
    assert hear((1, HI + END), (1.2, EOF)).at == 1.2
    assert hear((1, HI), (1.2, EOF)).kind == "cut"
    assert hear((1, HI + END), (1.2, EOF), choices=2).kind == "cut"


def test_a_fault_after_the_end_is_none() -> None:
    async def main() -> list[bytes] | None:
        told = [HI + END]

        async def piece(within_s: float) -> bytes:
            if told:
                return told.pop()
            raise UpstreamFailed("cut")

        stream = Coming(piece, 0.0, StreamReading(1, TokenMeter()), WIDE)
        assert len(await stream.next() or ()) == 2
        return await stream.next()

    assert run_virtual(main()) is None


def test_done_before_the_end_is_cut() -> None:
    heard = hear(all_at(1, HI, DONE))
    assert (heard.kind, heard.text) == ("cut", "Hi")
    assert hear((1, DONE)).kind == "cut"


def test_what_follows_done_is_not_read() -> None:
    heard = hear(all_at(1, HI, END, DONE, data({"error": "late"}), chunk("more")))
    assert (heard.kind, heard.text) == (None, "Hi")


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (data(b'{"choices": [broken]}'), "malformed"),
        (data({"error": {"message": "x"}}), "status"),
        (DONE, "cut"),
        (EOF, "cut"),
    ],
)
def test_what_came_before_a_fault_is_given_out_first(fault: bytes, kind: str) -> None:
    pieces = [(1.0, HI), (1.0, fault)] if fault == EOF else [(1.0, HI + fault)]
    heard = hear(*pieces, (1.0, END + DONE))
    assert (heard.kind, heard.text) == (kind, "Hi")


def test_after_the_end_or_a_fault_it_stays_ended() -> None:
    async def main() -> None:
        pieces = [WHOLE[1], HI + data(b"{]")]

        async def piece(within_s: float) -> bytes:
            return pieces.pop(0)

        whole = Coming(piece, 0.0, StreamReading(1, TokenMeter()), WIDE)
        assert await whole.next()
        assert await whole.next() is None and await whole.next() is None
        broken = Coming(piece, 0.0, StreamReading(1, TokenMeter()), WIDE)
        assert await broken.next()
        for _ in range(2):
            with pytest.raises(UpstreamFailed, match="malformed"):
                await broken.next()

    run_virtual(main())


def test_an_event_over_the_bound_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coming, "MAX_EVENT_BYTES", 1000)
    assert hear((1, HI), (2, b"data: " + b"x" * 2000)).kind == "malformed"


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_every_way_to_cut_and_end_lines_reads_the_same(newline: bytes) -> None:
    body = b"".join((ROLE, COMMENT, chunk("가😀"), chunk("ㄱ"), END, USAGE, DONE)).replace(b"\n", newline)
    expected = hear((1, body))
    assert (expected.kind, expected.text) == (None, "가😀ㄱ")
    one_by_one = hear(*((1.0, body[n : n + 1]) for n in range(len(body))))
    assert (one_by_one.kind, one_by_one.events) == (None, expected.events)


def test_data_on_several_lines_is_one_event() -> None:
    several = (
        b'data: {"choices":\ndata: [{"index":0,"delta":{"content":"Hi"},\ndata: "finish_reason":"stop"}]}\n\n'
    )
    heard = hear((1, several + DONE))
    assert (heard.kind, heard.text) == (None, "Hi")


def test_a_chunk_that_comes_in_two_events_is_whole_again() -> None:
    raw = json.dumps({"choices": [{"index": 0, "delta": {"content": "가나다"}}]}, ensure_ascii=False).encode()
    for at in range(1, len(raw)):
        heard = hear(all_at(1, HI, data(raw[:at]), data(raw[at:]), END, DONE))
        assert (heard.kind, heard.text) == (None, "Hi가나다"), at


@pytest.mark.parametrize("after", [(DONE,), (EOF,), (chunk("x"), END, DONE), (END, DONE), (data(b"ping"),)])
def test_half_a_chunk_that_nothing_completes_is_no_answer(after: tuple[bytes, ...]) -> None:
    """Not even after the end of every choice, and nothing that follows is taken for its other half."""
    heard = hear(
        (1, HI), (2, data(b'{"choices":[{"index":0,"delta":{"content":"lo')), *((3, one) for one in after)
    )
    assert heard.kind in ("cut", "malformed") and heard.text == "Hi"
