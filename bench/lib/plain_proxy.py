"""`python -m bench.lib.plain_proxy UPSTREAM_URL`: the proxy most people would write first, with FastAPI and httpx."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict

from bench.lib.answering import say

URL = f"{sys.argv[1]}/chat/completions"


class ChatRequest(BaseModel):
    model_config = ConfigDict(extra="allow")
    model: str
    messages: list[dict[str, Any]]
    stream: bool = False


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with httpx.AsyncClient(timeout=60) as client:
        app.state.client = client
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/v1/chat/completions", response_model=None)
async def chat(request: ChatRequest) -> Response:
    client: httpx.AsyncClient = app.state.client
    body = request.model_dump()
    if not request.stream:
        answer = await client.post(URL, json=body)
        return JSONResponse(answer.json(), answer.status_code)

    async def relay() -> AsyncIterator[bytes]:
        async with client.stream("POST", URL, json=body) as answer:
            async for piece in answer.aiter_bytes():
                yield piece

    return StreamingResponse(relay(), media_type="text/event-stream")


def main() -> None:
    sock = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="error")
    )

    def stop_at_end() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=stop_at_end, daemon=True).start()
    say({"port": sock.getsockname()[1]})
    server.run(sockets=[sock])


if __name__ == "__main__":
    main()
