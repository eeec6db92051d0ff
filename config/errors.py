"""The error every room may raise and the gateway knows how to answer.

The messages are written by us: they name the cause and never hold a piece of the request.
"""

from __future__ import annotations


class ApiError(Exception):
    """An answer in OpenAI's error shape.

    Args:
        status: HTTP status.
        message: one sentence for the caller; no request text.
        type: OpenAI's `type` (`invalid_request_error`, `authentication_error`, `permission_error`,
            `rate_limit_error`, `server_error`).
        code: a stable word a program can test, such as `context_length_exceeded`.
        param: the request field at fault, if one is.
        retry_after_s: seconds for `Retry-After`; None sends no such header.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.answer_headers: list[tuple[bytes, bytes]] = []
        """Our own headers for the error answer, filled in by the router."""


class InvalidRequest(ApiError):
    """400: the request itself is wrong; no other road can help."""

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(400, message, type="invalid_request_error", code=code, param=param)


class ShuttingDown(ApiError):
    """503: the gateway is told to stop; nothing new is begun and what is left is cut."""

    def __init__(self) -> None:
        super().__init__(
            503, "The gateway is shutting down.", type="server_error", code="shutting_down", retry_after_s=5
        )


class ContextLengthExceeded(InvalidRequest):
    """400: the prompt does not fit the window of any road that is allowed."""

    def __init__(self, prompt_tokens: int | None, window: int) -> None:
        held = "" if prompt_tokens is None else f" Your messages come to {prompt_tokens} tokens."
        super().__init__(
            f"The maximum context length here is {window} tokens.{held} Please shorten the messages.",
            code="context_length_exceeded",
            param="messages",
        )
        self.prompt_tokens = prompt_tokens
        self.window = window


class ConfigError(Exception):
    """Settings or a policy are wrong. `str()` is one line: file:line: field: what is wrong."""
