"""The HTTP server: uvicorn with uvloop and httptools, and a shutdown in the right order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from weighbridge.gateway.errors import log_unexpected
from weighbridge.gateway.listening import BACKLOG
from weighbridge.gateway.protocol import ConnectionLimits, GatewayProtocol
from weighbridge.gateway.underway import Underway

log = logging.getLogger("weighbridge.gateway")

_BACKSTOP_S = 5.0
"""After the drain limit the cut requests have this long (seconds) to write their records."""

KEEP_ALIVE_S = 75
"""An idle connection is kept this long (seconds): longer than load balancers keep theirs, or they would send into
connections that we are closing."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class GatewayServer(uvicorn.Server):
    """uvicorn's server with our signals and our drain.

    The first SIGINT or SIGTERM stops listening, lets answers finish for `drain_timeout_s`, cuts the rest with an
    error, waits for their records and closes everything. A second one ends the process at once; the ledger then
    records what was open as lost at the next start, and engines end with their gateway.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        underway: Underway,
        drain_timeout_s: float,
    ) -> None:
        super().__init__(config)
        self._underway = underway
        self._drain_timeout_s = drain_timeout_s
        self._stopped_by = ""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Unlike uvicorn's, a signal that was obeyed is not raised again afterwards: the exit status is ours.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os.write(2, b"stopped at once\n")
            os._exit(130)
        self._stopped_by = signal.Signals(sig).name
        self.should_exit = True

    async def _serve(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(_log_loop_fault)
        await super()._serve(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info(
            "%s: stopping; %d requests under way have %g s to finish, a second Ctrl-C ends at once",
            self._stopped_by or "asked to stop",
            self._underway.count,
            self._drain_timeout_s,
        )
        drain = asyncio.create_task(self._underway.drain(self._drain_timeout_s))
        await super().shutdown(sockets)
        if not drain.done():
            drain.cancel()
        elif (cut := drain.result()) > 0:
            log.warning("%d requests were cut at the drain limit", cut)
        log.info("stopped")


def make_server(
    app: ASGIApp,
    *,
    underway: Underway,
    drain_timeout_s: float,
    new_id: Callable[[], str],
    limits: ConnectionLimits | None = None,
    tls_certfile: Path | None = None,
    tls_keyfile: Path | None = None,
) -> GatewayServer:
    """A server that is ready to run on a socket of ours (`server.run(sockets=[sock])`).

    Args:
        drain_timeout_s: seconds answers under way may take at shutdown.
        new_id: makes the ids of requests that never reach `app`.
        limits: what connections may cost.

    Raises:
        OSError: the certificate or its key cannot be read (ssl.SSLError is one).
    """
    for name in ("uvicorn.error", "uvicorn.asgi"):
        quiet = logging.getLogger(name)
        quiet.setLevel(logging.WARNING)
        if not any(isinstance(known, _WithoutTexts) for known in quiet.filters):
            quiet.addFilter(_WithoutTexts())
    config = uvicorn.Config(
        app,
        loop="uvloop",
        # uvicorn only calls it, as it would a class.
        http=cast("Any", partial(GatewayProtocol, new_id=new_id, limits=limits or ConnectionLimits())),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(drain_timeout_s + _BACKSTOP_S),
        ssl_certfile=tls_certfile,
        ssl_keyfile=tls_keyfile,
    )
    config.load()
    return GatewayServer(config, underway=underway, drain_timeout_s=drain_timeout_s)


class _WithoutTexts(logging.Filter):
    """Takes tracebacks off the server's records: an exception's text may hold a piece of a request."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info:
            kind = record.exc_info[0]
            record.msg = f"{record.getMessage().strip()}: {kind.__name__ if kind else 'unknown'}"
            record.args = None
            record.exc_info = None
            record.exc_text = None
        return True


def _log_loop_fault(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    exc = context.get("exception")
    if isinstance(exc, BaseException):
        log_unexpected(log, exc, "-")
    else:
        log.error("event loop: %s", context.get("message"))
