"""Writing an answer to an ASGI connection."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.gateway.asgi import Connection
from weighbridge.gateway.sink import AsgiSink
from weighbridge.router.admitted import ClientGone


class Count:
    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        self.value += amount


def sink_of(connection: Connection, count: Count | None = None, timeout_s: float = 5.0) -> AsgiSink:
    return AsgiSink(
        connection.send,
        cut=connection.scope.get("extensions", {}).get("weighbridge.cut"),
        slow_reader_timeout_s=timeout_s,
        slow_readers=count or Count(),
    )


async def test_an_answer_goes_out_in_order() -> None:
    connection = Connection()
    sink = sink_of(connection)
    await sink.start(200, [(b"content-type", b"text/plain")])
    await sink.write(b"ab")
    await sink.write(b"cd")
    await sink.end()
    assert (connection.status, connection.body, connection.complete) == (200, b"abcd", True)
    assert (sink.started, sink.ended, sink.gone) == (True, True, False)


async def test_a_write_waits_for_a_reader_who_comes_back() -> None:
    connection = Connection()
    sink = sink_of(connection)
    await sink.start(200, [])
    connection.reading.clear()
    write = asyncio.create_task(sink.write(b"ab"))
    await asyncio.sleep(0)
    assert not write.done()
    connection.reading.set()
    await write
    assert connection.body == b"ab"


@pytest.mark.parametrize("step", ["write", "end"])
async def test_a_reader_who_does_not_read_is_given_up_and_counted_once(step: str) -> None:
    connection, count = Connection(), Count()
    sink = sink_of(connection, count, timeout_s=0.01)
    await sink.start(200, [])
    connection.reading.clear()
    with pytest.raises(ClientGone) as caught:
        await (sink.write(b"ab") if step == "write" else sink.end())
    assert caught.value.code == "slow_reader"
    assert not sink.ended
    with pytest.raises(ClientGone) as caught:
        await sink.write(b"cd")
    assert caught.value.code == "slow_reader", "the reason stays what it was"
    assert count.value == 1


async def test_a_server_that_reports_a_broken_pipe_means_gone() -> None:
    async def broken(message: object) -> None:
        raise BrokenPipeError

    count = Count()
    sink = AsgiSink(broken, cut=None, slow_reader_timeout_s=5.0, slow_readers=count)
    with pytest.raises(ClientGone) as caught:
        await sink.start(200, [])
    assert caught.value.code == "disconnected"
    assert count.value == 0


async def test_abort_cuts_and_nothing_is_written_any_more() -> None:
    connection = Connection()
    sink = sink_of(connection)
    await sink.start(200, [])
    sink.abort()
    sink.abort()
    assert connection.was_cut
    assert not connection.complete
    with pytest.raises(ClientGone):
        await sink.write(b"ab")


async def test_abort_without_a_server_that_can_cut() -> None:
    sink = sink_of(Connection(cuttable=False))
    sink.abort()
    assert sink.gone
    assert not sink.cut_off
