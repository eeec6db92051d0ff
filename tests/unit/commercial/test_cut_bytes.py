"""An answer whose bytes are cut at every place, inside UTF-8 too, on a real connection."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.support.recorder import Mode, stream_events
from tests.unit.commercial.harness import Side, masked, side
from weighbridge.commercial.exchange import Exchange
from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.restore import StreamRestorer

PLACEHOLDER, VALUE = "[NUM_ABCDEFGH]", "1234567"
REPLY = f"번호 {PLACEHOLDER}😀[num abcdefgh]\uff3bNUM_ABCDEFGH\uff3d"
RESTORED = f"번호 {VALUE}😀{VALUE}{VALUE}"


async def told(here: Side, request: MaskedRequest) -> tuple[str, str]:
    """The content and the arguments, restored."""
    restorer = StreamRestorer(request.vault)
    events = [made async for event in here.stream(request) for made in restorer.feed(event)]
    text, arguments = "", ""
    for event in (*events, *restorer.finish()):
        for choice in json.loads(event)["choices"]:
            text += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls", []):
                arguments += call["function"]["arguments"]
    return text, arguments


def content_bytes(mode: Mode, request: MaskedRequest) -> range:
    """The places in the bytes of the stream at which text comes."""
    events = list(stream_events(json.loads(request.body), mode))
    with_text = [at for at, event in enumerate(events) if b"index" in event and b'"role"' not in event]
    begin = len(b"".join(events[: with_text[0]]))
    return range(begin + 1, begin + len(b"".join(events[with_text[0] : with_text[-1]])) + 1)


async def test_cut_at_every_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bytes] = []
    read = Exchange.piece

    async def noted(exchange: Exchange, within_s: float) -> bytes:
        pieces.append(await read(exchange, within_s))
        return pieces[-1]

    monkeypatch.setattr(Exchange, "piece", noted)
    request = masked(stream=True)
    async with side() as here:
        for tool in (False, True):
            mode = Mode(reply=REPLY, tool=tool, piece=20)
            places = content_bytes(mode, request)
            for cuts in (*((at,) for at in places), tuple(places)):
                here.recorder.mode = dataclasses.replace(mode, cuts=cuts)
                pieces.clear()
                text, arguments = await told(here, request)
                # What is cut arrives cut.
                assert len(pieces) > len(cuts)
                if tool:
                    assert (text, json.loads(arguments)) == ("", {"to": RESTORED})
                else:
                    assert (text, arguments) == (RESTORED, "")
