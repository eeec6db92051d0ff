"""The outermost ASGI application: completions go to their own handlers, everything else to FastAPI."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weighbridge.config.errors import ApiError
from weighbridge.gateway.errors import (
    REQUEST_ID,
    error_answer,
    internal_error,
    log_unexpected,
    method_not_allowed,
    not_served_yet,
)
from weighbridge.gateway.web import REQUEST_ID_IN_SCOPE
from weighbridge.router.admitted import Header

log = logging.getLogger("weighbridge.gateway")

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"

NOT_SERVED_YET = ("/v1/embeddings", "/v1/responses")
"""Addresses of OpenAI's, with all below them, that a caller may well try."""


class Front:
    """Dispatches on path and method before any framework sees a request; every answer carries a request id.

    HEAD is answered wherever GET is, with the same head. OPTIONS is no method of any address and no answer holds a CORS
    header: a page of another origin cannot read what comes.

    Args:
        posts: the handlers of the addresses that take POST alone, by path.
        rest: everything else.
    """

    def __init__(self, posts: Mapping[str, ASGIApp], rest: ASGIApp, new_id: Callable[[], str]) -> None:
        self._posts = dict(posts)
        self._rest = rest
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        path: str = scope["path"]
        post = self._posts.get(path)
        if post is not None:
            if scope["method"] == "POST":
                await post(scope, receive, send)
            else:
                await self._refuse(method_not_allowed(), scope, send, ((b"allow", b"POST"),))
        elif _is_or_is_below(path, NOT_SERVED_YET):
            await self._refuse(not_served_yet(), scope, send)
        else:
            await self._guarded(scope, receive, send)

    async def _refuse(
        self, error: ApiError, scope: Scope, send: Send, extra: Sequence[Header] = (), request_id: str = ""
    ) -> None:
        headers, body = error_answer(error, request_id or self._new_id(), extra)
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let no exception reach the server, which would print its text."""
        started = False
        request_id = self._new_id()
        head = scope["method"] == "HEAD"

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if all(name != REQUEST_ID for name, _ in headers):
                    headers.append((REQUEST_ID, request_id.encode("ascii")))
                message = {**message, "headers": headers}
            elif head:
                message = {**message, "body": b""}
            await send(message)

        try:
            method = "GET" if head else scope["method"]
            await self._rest({**scope, "method": method, REQUEST_ID_IN_SCOPE: request_id}, receive, watched)
        except Exception as exc:
            log_unexpected(log, exc, request_id)
            if not started:
                await self._refuse(internal_error(), scope, send, request_id=request_id)


def _is_or_is_below(path: str, addresses: Sequence[str]) -> bool:
    return any(path == address or path.startswith(f"{address}/") for address in addresses)
