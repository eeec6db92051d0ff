"""vLLM's errors in our words. Its classes are stood in for by name, as the translation tells them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError, field_validator

from weighbridge.config.errors import ApiError, ContextLengthExceeded, InvalidRequest
from weighbridge.pool.engine import EngineOverloaded, EngineUnavailable
from weighbridge.pool.vllm_errors import translate, translate_response

WINDOW = 2048


class VLLMError(Exception): ...


class VLLMClientError(VLLMError): ...


class VLLMServerError(VLLMError): ...


class VLLMValidationError(VLLMClientError):
    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class GracefulHTTPError(VLLMError): ...


class QueueOverflowError(GracefulHTTPError): ...


class MaxQueuedTokensError(GracefulHTTPError): ...


class EngineDeadError(VLLMServerError): ...


class TemplateError(Exception): ...


def told(exc: BaseException, *, rendered: bool = False, **body: Any) -> ApiError:
    return translate(exc, body, WINDOW, rendered=rendered)


@pytest.mark.parametrize(
    "exc",
    [
        VLLMValidationError("This model's maximum context length is 2048 tokens. SECRET", "input_tokens"),
        VLLMValidationError("Your prompt contains 99999 characters SECRET", "input_text"),
        VLLMValidationError("The decoder prompt (length 2049) is longer than the maximum model length of 2048."),
        VLLMValidationError("max_tokens must be at least 1, got 0.", "max_tokens"),
    ],
)  # fmt: skip
def test_a_prompt_beyond_the_window(exc: Exception) -> None:
    error = told(exc, max_tokens=5)
    assert isinstance(error, ContextLengthExceeded)
    assert error.window == WINDOW and "SECRET" not in error.message


@pytest.mark.parametrize(
    ("text", "parameter", "body", "param", "says"),
    [
        ("temperature must be in [0, 2], got 9.", "temperature", {"temperature": 9}, "temperature", "got 9"),
        ("n must be 1 when using greedy sampling, got 2.", None, {"n": 2}, "n", "greedy"),
        ("stop cannot contain an empty string.", None, {"stop": ["SECRET"]}, "stop", "value of stop"),
        ("max_tokens=9 cannot be greater than 8", "max_tokens", {"max_tokens": 9}, "max_tokens", "=9"),
        ("max_tokens must be at least 1, got 0.", "max_tokens", {"max_tokens": 0}, "max_tokens", "got 0"),
        ("logprobs must be SECRET", "logprobs", {"logprobs": "SECRET"}, "logprobs", "value of logprobs"),
        ("got 99", "logprobs", {"logprobs": True, "top_logprobs": 99}, "top_logprobs", "got 99"),
        ("Invalid `tool_choice`: SECRET!", "tool_choice", {}, "tool_choice", "value of tool_choice"),
        ("Failed to make a grammar: SECRET", None, {"response_format": {}}, "response_format", "schema"),
        ("Grammar error: SECRET", None, {"response_format": {}}, "response_format", "schema"),
        ("The provided JSON schema SECRET", None, {"tools": []}, "tools", "schema"),
        ("something SECRET", None, {}, None, "not valid for this model"),
        ("x", "SECRET 'quoted' parameter", {}, None, "not valid for this model"),
    ],
)
def test_a_request_that_vllm_finds_invalid(
    text: str, parameter: str | None, body: Any, param: str | None, says: str
) -> None:
    error = told(VLLMValidationError(text, parameter), **body)
    assert type(error) is InvalidRequest
    assert (error.status, error.param) == (400, param)
    assert says in error.message
    assert "SECRET" not in error.message


@pytest.mark.parametrize("exc", [VLLMClientError("SECRET"), VLLMClientError()])
def test_an_error_without_a_parameter_names_none(exc: Exception) -> None:
    error = told(exc)
    assert type(error) is InvalidRequest and error.param is None
    assert error.message == "The request is not valid for this model."


@pytest.mark.parametrize(
    ("exc", "rendered", "kind"),
    [
        (QueueOverflowError("full"), False, EngineOverloaded),
        (MaxQueuedTokensError("full"), True, EngineOverloaded),
        (EngineDeadError("SECRET"), False, EngineUnavailable),
        (EngineDeadError("SECRET"), True, EngineUnavailable),
        (GracefulHTTPError("SECRET"), False, EngineUnavailable),
        (ValueError("SECRET"), True, EngineUnavailable),
        (ValueError("SECRET"), False, InvalidRequest),
        (TypeError("SECRET"), False, InvalidRequest),
        (TemplateError("SECRET"), False, InvalidRequest),
        (OSError("SECRET"), False, EngineUnavailable),
        (GeneratorExit(), True, EngineUnavailable),
    ],
)
def test_whose_fault_it_is(exc: BaseException, rendered: bool, kind: type[ApiError]) -> None:
    error = told(exc, rendered=rendered)
    assert type(error) is kind
    assert "SECRET" not in error.message


def test_our_own_errors_stay_what_they_are() -> None:
    error = InvalidRequest("Ours.")
    assert told(error) is error


class Model(BaseModel):
    seed: int | None = None
    user: str | None = None
    logit_bias: dict[str, float] | None = None
    stop: str | None = None

    @field_validator("stop")
    @classmethod
    def quote(cls, value: str) -> str:
        raise ValueError(f"cannot take {value}")


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"seed": "SECRET"}, "seed", "seed: input should be a valid integer"),
        ({"user": 5}, "user", "user: input should be a valid string."),
        ({"logit_bias": {"SECRET": "SECRET"}}, "logit_bias", "The value of logit_bias is not valid."),
        ({"stop": "SECRET"}, "stop", "The value of stop is not valid."),
    ],
)
def test_what_pydantic_says_is_told_without_the_input(body: Any, param: str, says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate(body)
    error = told(caught.value, **body)
    assert type(error) is InvalidRequest
    assert error.param == param and error.message.startswith(says)
    assert "SECRET" not in error.message


@pytest.mark.parametrize(
    ("code", "message", "param", "kind", "told_param"),
    [
        (500, "SECRET", None, EngineUnavailable, None),
        (503, "SECRET", None, EngineUnavailable, None),
        (
            400,
            "tool_choice=SECRET requires --tool-call-parser to be set",
            None,
            InvalidRequest,
            "tool_choice",
        ),
        (400, "SECRET", "user", InvalidRequest, "user"),
        (404, "SECRET", "not a 'name'", InvalidRequest, None),
    ],
)
def test_errors_that_vllm_returns_instead_of_raising(
    code: int, message: str, param: str | None, kind: type[ApiError], told_param: str | None
) -> None:
    error = translate_response(SimpleNamespace(code=code, message=message, param=param))
    assert type(error) is kind
    assert error.param == told_param
    assert "SECRET" not in error.message
