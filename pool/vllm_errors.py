"""vLLM's errors in our own words. Its texts may quote the request, so nearly all of them are dropped.

Classes are told by name along their bases, so that this needs no vLLM and survives its moving them about.
"""

from __future__ import annotations

import re
from typing import Any, Final

from weighbridge.config.errors import ApiError, ContextLengthExceeded, InvalidRequest
from weighbridge.pool.engine import EngineOverloaded, EngineUnavailable

_NUMBERS: Final = (
    "frequency_penalty",
    "length_penalty",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "min_p",
    "min_tokens",
    "n",
    "presence_penalty",
    "prompt_logprobs",
    "repetition_penalty",
    "seed",
    "stream_interval",
    "temperature",
    "top_k",
    "top_logprobs",
    "top_p",
    "truncate_prompt_tokens",
)
"""Fields whose errors hold nothing but numbers, as long as the caller sent a number."""

_LEADING_FIELD: Final = re.compile(r"`?([a-z_]+)`?\b")
_GRAMMAR: Final = re.compile(r"[Gg]rammar|json schema|JSON schema|regex|structural tag", re.ASCII)
_PARAMETER: Final = re.compile(r"[a-z_][a-z_.]{0,60}")
_STRUCTURED: Final = ("response_format", "structured_outputs", "tools")

_PLAIN_PYDANTIC: Final = frozenset(
    {
        "missing",
        "string_type",
        "int_type",
        "int_parsing",
        "int_from_float",
        "float_type",
        "float_parsing",
        "bool_type",
        "bool_parsing",
        "list_type",
        "dict_type",
        "greater_than",
        "greater_than_equal",
        "less_than",
        "less_than_equal",
        "too_long",
        "too_short",
        "finite_number",
    }
)
"""Error types of pydantic whose message is made of types and limits, never of the input."""


def translate(exc: BaseException, body: dict[str, Any], window: int, *, rendered: bool) -> ApiError:
    """What the caller is told about an error of vLLM's.

    Args:
        body: the request, to tell which of its fields is meant; nothing of it is quoted.
        window: the tier's context window in tokens.
        rendered: whether the engine had taken the request; what fails before is the request's fault, what fails
            after it is the engine's.
    """
    names = {cls.__name__ for cls in type(exc).__mro__}
    if isinstance(exc, ApiError):
        return exc
    if names & {"QueueOverflowError", "MaxQueuedTokensError"}:
        return EngineOverloaded()
    if "VLLMClientError" in names:
        return _client_error(exc, body, window)
    if "ValidationError" in names and hasattr(exc, "errors"):
        return _pydantic_error(exc)
    if names & {"VLLMServerError", "GracefulHTTPError"} or rendered:
        return EngineUnavailable()
    if names & {
        "ValueError",
        "TypeError",
        "OverflowError",
        "NotImplementedError",
        "KeyError",
        "TemplateError",
    }:
        return InvalidRequest("The messages cannot be put into this model's chat template.", param="messages")
    return EngineUnavailable()


def translate_response(error: Any) -> ApiError:
    """The same for an `ErrorResponse` that vLLM returned instead of raising."""
    if error.code >= 500:
        return EngineUnavailable()
    message = str(error.message)
    if "tool" in message:
        return InvalidRequest("This model's tier has no tool calls set up.", param="tool_choice")
    return InvalidRequest("The request is not valid for this model.", param=_parameter(error.param))


def _client_error(exc: BaseException, body: dict[str, Any], window: int) -> ApiError:
    text = str(exc.args[0]) if exc.args else ""
    parameter = getattr(exc, "parameter", None)
    if parameter in ("input_tokens", "input_text") or "longer than the maximum model length" in text:
        # The tokeniser stops one past the window, so the count is a lower bound; we give none rather than that.
        return ContextLengthExceeded(None, window)
    if not isinstance(parameter, str):
        match = _LEADING_FIELD.match(text)
        parameter = match.group(1) if match is not None and match.group(1) in (*_NUMBERS, "stop") else None
    if "must be at least 1, got 0" in text and parameter == "max_tokens" and _asked_for_tokens(body):
        # vLLM had cut the limit down to what the prompt leaves over: nothing.
        return ContextLengthExceeded(window, window)
    if parameter in _NUMBERS and not isinstance(body.get(parameter), str | list | dict):
        # vLLM has one name for both fields.
        top = parameter == "logprobs" and isinstance(body.get("top_logprobs"), int)
        return InvalidRequest(_sentence(text), param="top_logprobs" if top else parameter)
    if _GRAMMAR.search(text):
        field = next((name for name in _STRUCTURED if body.get(name) is not None), None)
        return InvalidRequest(
            "The answer cannot be held to this schema: it is not valid, or uses what the model's grammar engine lacks.",
            param=field,
        )
    parameter = _parameter(parameter)
    return InvalidRequest(
        "The request is not valid for this model."
        if parameter is None
        else f"The value of {parameter} is not valid for this model.",
        param=parameter,
    )


def _asked_for_tokens(body: dict[str, Any]) -> bool:
    """Whether the caller's own limit is absent or legal, so that vLLM's complaint is about what it made of it."""
    asked = body.get("max_completion_tokens")
    asked = body.get("max_tokens") if asked is None else asked
    return asked is None or (isinstance(asked, int) and asked >= 1)


def _pydantic_error(exc: Any) -> InvalidRequest:
    try:
        first = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        # Below the first step stand keys of the caller's own, such as those of logit_bias.
        field = _parameter(first["loc"][0]) if first["loc"] else None
    except (LookupError, TypeError):
        return InvalidRequest("The request is not valid.")
    if field is None:
        return InvalidRequest("The request is not valid.")
    if first["type"] in _PLAIN_PYDANTIC and len(first["loc"]) == 1:
        reason = str(first["msg"])
        return InvalidRequest(f"{field}: {reason[:1].lower()}{reason[1:]}.", param=field)
    return InvalidRequest(f"The value of {field} is not valid.", param=field)


def _parameter(name: Any) -> str | None:
    return name if isinstance(name, str) and _PARAMETER.fullmatch(name) else None


def _sentence(text: str) -> str:
    text = text.split("\n", 1)[0].strip()
    return text if text.endswith(".") else f"{text}."
