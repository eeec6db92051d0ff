"""A TCP proxy in a test's hands: it forwards, waits before it does, swallows everything, or refuses."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Wire:
    """Forwards to a port of this machine.

    Args:
        target: the port.
        tls: what it shows to those who connect; None speaks plainly.

    Attributes:
        delay_s: seconds that each piece is held back, in either direction.
        swallows: nothing is forwarded any more, and nothing closed: a black hole. New connections are taken.
    """

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self.delay_s = 0.0
        self.swallows = False
        self.port = 0
        self._target = target
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Close everything; new connections are refused until `start`."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        # A handler that is cancelled is complained of, so it ends in order.
        with suppress(OSError, asyncio.CancelledError):
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            ways = [asyncio.create_task(self._forward(*way)) for way in ((reader, back), (there, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                back.close()
        self._tasks.discard(task)
        writer.close()

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while piece := await source.read(1 << 16):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            if self.swallows:
                continue
            sink.write(piece)
            await sink.drain()
        if self.swallows:
            await asyncio.Event().wait()


@asynccontextmanager
async def wire(target: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Wire]:
    made = Wire(target, tls)
    await made.start()
    try:
        yield made
    finally:
        await made.refuse()
