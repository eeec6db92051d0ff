"""Serving an ASGI application on a free port in a process of its own, until standard input ends."""

from __future__ import annotations

import socket
import sys
import threading
from typing import Any

import uvicorn

from bench.lib.answering import say


def serve(app: Any, **more: Any) -> None:
    """Say the port, then serve `app` as the gateway is served. `more` goes to uvicorn's configuration."""
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="error", **more)
    )

    def stop_at_end() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=stop_at_end, daemon=True).start()
    say({"port": sock.getsockname()[1]})
    server.run(sockets=[sock])
