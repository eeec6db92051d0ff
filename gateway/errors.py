"""How an error looks to the caller, and to our log: never with a piece of the request in it."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from weighbridge.config.errors import ApiError
from weighbridge.router.admitted import Header
from weighbridge.router.answer import error_body

REQUEST_ID: bytes = b"x-weighbridge-request-id"


def internal_error() -> ApiError:
    """What the caller sees of a fault of ours."""
    return ApiError(500, "Something went wrong in the gateway.", type="server_error", code="internal_error")


def unknown_path() -> ApiError:
    return ApiError(
        404,
        "There is nothing at this address; see GET /openapi.json.",
        type="invalid_request_error",
        code="unknown_url",
    )


def method_not_allowed() -> ApiError:
    return ApiError(
        405,
        "This address does not take that HTTP method.",
        type="invalid_request_error",
        code="method_not_allowed",
    )


def not_served_yet() -> ApiError:
    return ApiError(
        501,
        "This API is not served here yet; use POST /v1/chat/completions.",
        type="invalid_request_error",
        code="not_implemented",
    )


def error_headers(error: ApiError, request_id: str) -> list[Header]:
    """Content type, request id, `Retry-After` and what the router left in `answer_headers`."""
    headers: list[Header] = [(b"content-type", b"application/json")]
    headers += getattr(error, "answer_headers", ())
    if all(name != REQUEST_ID for name, _ in headers):
        headers.append((REQUEST_ID, request_id.encode("ascii")))
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


def error_answer(
    error: ApiError, request_id: str, extra: Sequence[Header] = ()
) -> tuple[list[Header], bytes]:
    """Headers and body of the answer to a request that failed before anything was sent."""
    body = error_body(error)
    length = (b"content-length", b"%d" % len(body))
    return [*error_headers(error, request_id), *extra, length], body


def log_unexpected(log: logging.Logger, exc: BaseException, request_id: str) -> None:
    """Log a fault of ours: its types and where it was raised. Its text may hold a piece of the request."""
    for leaf in _leaves(exc):
        frames = " < ".join(
            f"{'/'.join(PurePath(frame.f_code.co_filename).parts[-2:])}:{line}"
            for frame, line in reversed(list(traceback.walk_tb(leaf.__traceback__)))
        )
        log.error("request %s: unexpected %s at %s", request_id, _types(leaf), frames or "an unknown place")


def _leaves(exc: BaseException) -> Iterator[BaseException]:
    if isinstance(exc, BaseExceptionGroup):
        for inner in exc.exceptions:
            yield from _leaves(inner)
    else:
        yield exc


def _types(exc: BaseException) -> str:
    names = [type(exc).__name__]
    cause = exc.__cause__
    while cause is not None and len(names) < 4:
        names.append(type(cause).__name__)
        cause = cause.__cause__
    return " from ".join(names)
