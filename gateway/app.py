"""The application: the parts behind one ASGI callable."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from starlette.types import ASGIApp

from weighbridge.config.legal import is_loopback
from weighbridge.gateway.api import make_api
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.chat import ChatRoute, Form
from weighbridge.gateway.completions import TextCompletions
from weighbridge.gateway.concurrency import Concurrency
from weighbridge.gateway.front import CHAT_PATH, COMPLETIONS_PATH, Front
from weighbridge.gateway.lifespan import running
from weighbridge.gateway.models import model_names
from weighbridge.gateway.parts import EngineFactory, Parts, build_parts

__all__ = ["EngineFactory", "Parts", "build_parts", "create_app"]


def create_app(parts: Parts, *, on_first_ready: Callable[[], None] = lambda: None) -> ASGIApp:
    """The gateway as an ASGI application. Its lifespan starts and closes the parts.

    Args:
        on_first_ready: called once, when the first local tier can serve.
    """
    server = parts.settings.server
    auth = Authenticator(
        parts.settings.auth, parts.keys, open_to_local=is_loopback(parts.settings.server.host)
    )
    concurrency = Concurrency(
        most=server.max_concurrent_requests,
        most_per_key=server.max_concurrent_per_key,
        most_body_bytes=max(server.max_bodies_bytes, server.max_body_bytes),
        refused=parts.metrics.refused_busy,
    )

    def route(form: Form | None = None) -> ChatRoute:
        return ChatRoute(
            auth=auth,
            dispatch=parts.dispatch,
            clock=parts.clock,
            new_id=parts.ids.new,
            underway=parts.underway,
            models=model_names(parts),
            concurrency=concurrency,
            max_body_bytes=server.max_body_bytes,
            slow_reader_timeout_s=server.slow_reader_timeout_s,
            slow_readers=parts.metrics.slow_reader_aborts_total,
            aliases=lambda: parts.policies.current.aliases,
            form=form,
        )

    def lifespan(_: object) -> AbstractAsyncContextManager[None]:
        return running(parts, on_first_ready)

    posts = {CHAT_PATH: route(), COMPLETIONS_PATH: route(TextCompletions())}
    return Front(posts, make_api(parts, auth, lifespan), parts.ids.new)
