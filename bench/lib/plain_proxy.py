"""`python -m bench.lib.plain_proxy UPSTREAM_URL`: the proxy most people would write first, with FastAPI and httpx."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict

from bench.lib.small_server import serve

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


if __name__ == "__main__":
    serve(app)
