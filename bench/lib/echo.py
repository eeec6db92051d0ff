"""`python -m bench.lib.echo PACE_S`: what uvicorn alone costs, an application that reads a request and answers at once.

It serves as our gateway does (uvloop, httptools, one process), looks nothing up and asks nobody: a gateway's figures
over these say what the gateway costs, on a slow machine as on a fast one.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from bench.lib.small_server import serve
from bench.lib.upstream import DOCUMENT, ROLE_EVENT, WORD_EVENT

CHUNKS = 32
_WHOLE = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(DOCUMENT))]
_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8")]


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    if b'"stream": true' not in body:
        await send({"type": "http.response.start", "status": 200, "headers": _WHOLE})
        await send({"type": "http.response.body", "body": DOCUMENT})
        return
    await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
    await send({"type": "http.response.body", "body": ROLE_EVENT, "more_body": True})
    loop, pace_s = asyncio.get_running_loop(), float(sys.argv[1])
    due = loop.time()
    for _ in range(CHUNKS):
        await send({"type": "http.response.body", "body": WORD_EVENT, "more_body": True})
        due += pace_s
        await asyncio.sleep(due - loop.time())
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


if __name__ == "__main__":
    serve(app, lifespan="off")
