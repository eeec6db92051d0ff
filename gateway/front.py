"""The outermost ASGI application: completions go to their own handler, everything else to FastAPI."""

from __future__ import annotations

import logging
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weighbridge.gateway.errors import (
    REQUEST_ID,
    error_answer,
    internal_error,
    log_unexpected,
    method_not_allowed,
)

log = logging.getLogger("weighbridge.gateway")

CHAT_PATH = "/v1/chat/completions"


class Front:
    """Dispatches on path and method before any framework sees a request; every answer carries a request id."""

    def __init__(self, chat: ASGIApp, rest: ASGIApp, new_id: Callable[[], str]) -> None:
        self._chat = chat
        self._rest = rest
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
        elif scope["path"] != CHAT_PATH:
            await self._guarded(scope, receive, send)
        elif scope["method"] == "POST":
            await self._chat(scope, receive, send)
        else:
            headers, body = error_answer(method_not_allowed(), self._new_id(), ((b"allow", b"POST"),))
            await send({"type": "http.response.start", "status": 405, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let no exception reach the server, which would print its text."""
        started = False
        request_id = self._new_id()

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if all(name != REQUEST_ID for name, _ in headers):
                    headers.append((REQUEST_ID, request_id.encode("ascii")))
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._rest(scope, receive, watched)
        except Exception as exc:
            log_unexpected(log, exc, request_id)
            if not started:
                headers, body = error_answer(internal_error(), request_id)
                await send({"type": "http.response.start", "status": 500, "headers": headers})
                await send({"type": "http.response.body", "body": body})
