"""What it costs to hand a piece of a stream to the server, its syscall left out."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Message

from tests.support.cost import in_references
from weighbridge.gateway.sink import AsgiSink
from weighbridge.observability.instruments import Counter
from weighbridge.router.delivery import Delivery

MOST = 0.055
"""Reference loops a piece; half of it was measured."""


def run(work: Coroutine[Any, Any, None]) -> None:
    """Drive a coroutine that never waits, without an event loop's own cost."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("it waited")


async def test_a_piece_on_its_way_to_the_server_stays_in_budget() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    sink = AsgiSink(send, cut=None, slow_reader_timeout_s=5.0, slow_readers=Counter())
    delivery = Delivery(sink, stream=True, headers=lambda _: [], summary=dict, keep_alive_s=60.0)
    delivery.start_waiting()
    await delivery.begin()
    cost = in_references(lambda: run(delivery.write(b"data: {}\n\n")))
    delivery.stop()
    assert {message["body"] for message in sent[1:]} == {b"data: {}\n\n"}
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert cost < MOST, f"{cost:.3f} reference loops"
