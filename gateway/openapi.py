"""The OpenAPI schema with the completions routes in it, which FastAPI itself does not see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi import FastAPI

from weighbridge.gateway.completions_body import DEFAULT_MAX_TOKENS, MAX_LOGPROBS
from weighbridge.gateway.front import CHAT_PATH, COMPLETIONS_PATH
from weighbridge.policies.schema import MAX_QUEUE_LOCK_MS

_HEADERS = {
    "x-weighbridge-request-id": "The id of the request in every record and log line.",
    "x-weighbridge-road": "The road that answered, or the last one tried.",
    "x-weighbridge-score": "The difficulty, 0 to 1.",
    "x-weighbridge-task": "The kind of task that was recognised.",
    "x-weighbridge-policy": "The policy version the request was decided under.",
    "x-weighbridge-attempts": "Backends tried.",
    "x-weighbridge-queue-ms": "Milliseconds spent waiting for a slot.",
    "x-weighbridge-reason": (
        "The last reason of the decision, such as the bound or the task row that decided, "
        "or what spoke against a local answer."
    ),
    "x-weighbridge-explanation": (
        "Only for those who asked: how the decision came about, as one line of JSON with the task, both probabilities "
        "of failure, the distance to the bounds, what moved the score, and the policy's clamps."
    ),
}


def error_schema(**beside: Any) -> dict[str, Any]:
    """OpenAI's error object, as a schema; `beside`: what an error of ours holds besides."""
    fields = {
        "message": {"type": "string"},
        "type": {"type": "string"},
        "param": {"type": ["string", "null"]},
        "code": {"type": ["string", "null"]},
    }
    error = {"type": "object", "required": [*fields], "properties": fields | beside}
    return {"type": "object", "required": ["error"], "properties": {"error": error}}


_ERROR: dict[str, Any] = error_schema()

_WISHES = {
    "x-weighbridge-max-queue-ms": (
        "Milliseconds to wait for a slot at most; can only shorten the policy's wait. 0 does not wait.",
        {"type": "integer", "minimum": 0, "maximum": MAX_QUEUE_LOCK_MS},
    ),
    "x-weighbridge-priority": (
        "`batch` lets interactive requests go first.",
        {"type": "string", "enum": ["interactive", "batch"]},
    ),
    "x-weighbridge-data-class": (
        "Class of the request's data, one of the policy's; can only be stricter than the policy's own. What is of a "
        "class that the policy does not know does not leave.",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,32}$"},
    ),
    "x-weighbridge-conversation-id": (
        "The conversation the request belongs to: once one of its requests was kept in, all that follow stay local.",
        {"type": "string", "pattern": "^[A-Za-z0-9._:@/+=-]{1,200}$"},
    ),
    "x-weighbridge-explain": (
        "`true` asks for the header `x-weighbridge-explanation` in the answer.",
        {"type": "string", "enum": ["true", "false"]},
    ),
}


def _model(models: Sequence[str]) -> dict[str, Any]:
    alias = "An alias out of the policy in force; `GET /v1/models` lists them."
    return {
        "description": "A road, an adapter or an alias.",
        "anyOf": [{"enum": list(models)}, {"type": "string", "description": alias}],
    }


_STREAM: dict[str, Any] = {"type": ["boolean", "null"], "default": False}


def _chat_body(models: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["model", "messages"],
        "additionalProperties": True,
        "description": "OpenAI's chat completions body. Fields not named here go to the model's server as they are.",
        "properties": {
            "model": _model(models),
            "messages": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["role"],
                    "additionalProperties": True,
                    "properties": {"role": {"type": "string"}},
                },
            },
            "stream": _STREAM,
        },
    }


def _text_body(models: Sequence[str]) -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        "required": ["model", "prompt"],
        "additionalProperties": True,
        "description": "OpenAI's legacy completions body. The prompt is put to the model as a user's message. Fields "
        "not named here go to the model's server as they are.",
        "properties": {
            "model": _model(models),
            "prompt": {"anyOf": [text, {"type": "array", "items": text, "minItems": 1, "maxItems": 1}]},
            "max_tokens": {"type": ["integer", "null"], "minimum": 1, "default": DEFAULT_MAX_TOKENS},
            "logprobs": {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_LOGPROBS},
            "echo": {"enum": [False, None]},
            "suffix": {"enum": ["", None]},
            "stream": _STREAM,
        },
    }


_REFUSALS = {
    "400": "The request is wrong; `code` says how.",
    "401": "No key, or not one of ours.",
    "403": "This caller, or this request, may not.",
    "404": "No such model.",
    "408": "The body did not arrive in time.",
    "409": "It has changed meanwhile, or was done before.",
    "413": "The body is too large.",
    "415": "The body is compressed.",
    "429": "Busy; `Retry-After` says when to come again.",
    "500": "A fault of the gateway.",
    "502": "The commercial API failed.",
    "503": "No road can answer at the moment.",
    "504": "It took too long.",
}


def with_completions(api: FastAPI, models: Sequence[str]) -> None:
    """Add `POST /v1/chat/completions` and `POST /v1/completions` to the schema of `api`.

    Args:
        models: the names a request may ask for, aliases aside.
    """
    plain = api.openapi
    chat = _operation(
        _chat_body(models),
        summary="Answer a conversation on the cheapest road that can carry it",
        operation_id="create_chat_completion",
        answer="A `chat.completion` document, or with `stream` its events.",
    )
    text = _operation(
        _text_body(models),
        summary="Answer a prompt, as a conversation of one message",
        operation_id="create_completion",
        answer="A `text_completion` document, or with `stream` its events.",
    )

    def schema() -> dict[str, Any]:
        if api.openapi_schema is None:
            made = plain()
            _say_refusals(made)
            made["paths"][CHAT_PATH] = {"post": chat}
            made["paths"][COMPLETIONS_PATH] = {"post": text}
            api.openapi_schema = made
        return api.openapi_schema

    api.openapi = schema  # type: ignore[method-assign]


_COMPLETIONS = tuple(status for status in _REFUSALS if status != "409")
_BY_ID = ("/admin/v1/policies/", "/admin/v1/keys", "/admin/v1/admin-keys")
"""Admin routes that name things by their id."""
_ADMIN = ("400", "401", "403", "408", "413", "500", "503")


def _say_refusals(made: dict[str, Any]) -> None:
    """Write down what FastAPI cannot know: our refusals instead of its own, and answers that are not plain JSON."""
    for path, operations in made["paths"].items():
        for operation in operations.values():
            responses = operation["responses"]
            # Its own answer to a wrong parameter; ours is a 400.
            responses.pop("422", None)
            if path.startswith(_BY_ID):
                # What an operation says of its own refusals stands.
                operation["responses"] = _refusals((*_ADMIN, "404", "409")) | responses
            elif path.startswith("/admin/"):
                responses |= _refusals(_ADMIN)
            elif path.startswith("/v1/"):
                responses |= _refusals(("401", "403", "404", "500"))
            elif path == "/metrics":
                responses["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
                responses |= _refusals(("401", "403", "500"))
            elif path == "/health/ready":
                responses["503"] = responses["200"] | {"description": "No road can answer."}
    for unused in ("HTTPValidationError", "ValidationError"):
        made.get("components", {}).get("schemas", {}).pop(unused, None)


def _refusals(statuses: Iterable[str]) -> dict[str, Any]:
    return {
        status: {"description": _REFUSALS[status], "content": {"application/json": {"schema": _ERROR}}}
        for status in statuses
    }


def _operation(body: dict[str, Any], *, summary: str, operation_id: str, answer: str) -> dict[str, Any]:
    headers = {name: {"description": text, "schema": {"type": "string"}} for name, text in _HEADERS.items()}
    return {
        "tags": ["completions"],
        "summary": summary,
        "operationId": operation_id,
        "parameters": [
            {"name": name, "in": "header", "required": False, "description": text, "schema": schema}
            for name, (text, schema) in _WISHES.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {
                "description": answer,
                "headers": headers,
                "content": {
                    "application/json": {"schema": {"type": "object"}},
                    "text/event-stream": {"schema": {"type": "string"}},
                },
            },
            **_refusals(_COMPLETIONS),
        },
    }
