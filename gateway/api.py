"""Everything but completions: models, health, metrics and the admin API, on FastAPI."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from fastapi import Depends, FastAPI, Request, Response
from starlette.exceptions import HTTPException

from weighbridge.config.errors import ApiError
from weighbridge.gateway.admin import add_admin
from weighbridge.gateway.admin_access import Access
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.errors import error_answer, internal_error, method_not_allowed, unknown_path
from weighbridge.gateway.health import readiness
from weighbridge.gateway.models import list_models, model_names
from weighbridge.gateway.openapi import with_completions
from weighbridge.gateway.parts import Parts
from weighbridge.gateway.web import credentials, json_response, request_id_of
from weighbridge.router.admitted import ClientGone
from weighbridge.state.audit import AuditLog


def make_api(
    parts: Parts,
    auth: Authenticator,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """The FastAPI application. Its schema is at `/openapi.json`; it serves no documentation pages, because those
    fetch their scripts from other people's servers."""
    access = Access(auth, AuditLog(parts.state))
    api = FastAPI(
        title="Weighbridge",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        dependencies=[Depends(access.guard())],
    )
    _answer_errors_as_openai_does(api, parts.ids.new)
    _add_models(api, parts, auth)
    _add_health(api, parts)
    _add_metrics(api, parts, auth)
    add_admin(api, parts, auth, access)
    with_completions(api, model_names(parts))
    return api


def _add_models(api: FastAPI, parts: Parts, auth: Authenticator) -> None:
    @api.get("/v1/models", tags=["models"], summary="The models by name, and what serves each of them")
    async def models(request: Request) -> Response:
        caller = auth.api(*credentials(request))
        return json_response({"object": "list", "data": list_models(parts, caller.barred)})

    # An alias or an adapter may have slashes in its name.
    @api.get("/v1/models/{name:path}", tags=["models"], summary="One model")
    async def model(name: str, request: Request) -> Response:
        caller = auth.api(*credentials(request))
        for known in list_models(parts, caller.barred):
            if known["id"] == name:
                return json_response(known)
        raise ApiError(
            404,
            "There is no such model here; GET /v1/models lists those there are.",
            type="invalid_request_error",
            code="model_not_found",
            param="model",
        )


def _add_health(api: FastAPI, parts: Parts) -> None:
    async def live() -> Response:
        return json_response({"status": "alive"})

    async def ready() -> Response:
        can_answer, report = readiness(parts)
        return json_response(report, 200 if can_answer else 503)

    summaries = {
        "live": "The process runs",
        "ready": "200 when at least one road can answer; the state of every part",
    }
    for route in (live, ready):
        name = route.__name__
        api.get(f"/health/{name}", tags=["health"], summary=summaries[name])(route)


def _add_metrics(api: FastAPI, parts: Parts, auth: Authenticator) -> None:
    @api.get("/metrics", tags=["health"], summary="Prometheus metrics; open to this machine, else with a key")
    async def metrics(request: Request) -> Response:
        auth.metrics(*credentials(request))
        text, content_type = parts.metrics.render()
        return Response(text, media_type=content_type)


def _answer_errors_as_openai_does(api: FastAPI, new_id: Callable[[], str]) -> None:
    def answer(error: ApiError, request: Request) -> Response:
        headers, body = error_answer(error, request_id_of(request) or new_id())
        response = Response(body, status_code=error.status)
        response.raw_headers = headers
        return response

    async def api_error(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, ApiError)
        return answer(exc, request)

    async def http_error(request: Request, exc: Exception) -> Response:
        assert isinstance(exc, HTTPException)
        if exc.status_code == 405:
            response = answer(method_not_allowed(), request)
            response.headers["allow"] = _with_head((exc.headers or {}).get("Allow", ""))
            return response
        return answer(unknown_path(), request)

    async def gone(_: Request, exc: Exception) -> Response:
        # Nobody reads it; the server wants an answer all the same.
        return Response(status_code=499)

    async def fault(request: Request, exc: Exception) -> Response:
        return answer(internal_error(), request)

    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
        ApiError: api_error,
        HTTPException: http_error,
        ClientGone: gone,
        Exception: fault,
    }
    for kind, handler in handlers.items():
        api.add_exception_handler(kind, handler)


def _with_head(allow: str) -> str:
    """The methods of an `Allow` header; the front answers HEAD wherever GET is answered."""
    methods = [method.strip() for method in allow.split(",")]
    return ", ".join([*methods, "HEAD"] if "GET" in methods and "HEAD" not in methods else methods)
