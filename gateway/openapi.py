"""The OpenAPI schema with the completions route in it, which FastAPI itself does not see."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from weighbridge.config.roads import MODEL_NAMES

_HEADERS = {
    "x-weighbridge-request-id": "The id of the request in every record and log line.",
    "x-weighbridge-road": "The road that answered, or the last one tried.",
    "x-weighbridge-score": "The difficulty, 0 to 1.",
    "x-weighbridge-task": "The kind of task that was recognised.",
    "x-weighbridge-policy": "The policy version the request was decided under.",
    "x-weighbridge-attempts": "Roads tried.",
    "x-weighbridge-queue-ms": "Milliseconds spent waiting for a slot.",
    "x-weighbridge-reason": "The last reason of the decision, such as the bound or the task row that decided.",
}

_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}

_REQUEST: dict[str, Any] = {
    "type": "object",
    "required": ["model", "messages"],
    "additionalProperties": True,
    "description": "OpenAI's chat completions body. Fields not named here go to the model's server as they are.",
    "properties": {
        "model": {"type": "string", "enum": list(MODEL_NAMES)},
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
        "stream": {"type": ["boolean", "null"], "default": False},
    },
}

_REFUSALS = {
    "400": "The request is wrong; `code` says how.",
    "401": "No key, or not one of ours.",
    "403": "This caller, or this request, may not.",
    "404": "No such model.",
    "413": "The body is too large.",
    "429": "Busy; `Retry-After` says when to come again.",
    "500": "A fault of the gateway.",
    "502": "The commercial API failed.",
    "503": "No road can answer at the moment.",
    "504": "It took too long.",
}


def with_chat_route(api: FastAPI) -> None:
    """Add `POST /v1/chat/completions` to the schema of `api`."""
    plain = api.openapi

    def schema() -> dict[str, Any]:
        if api.openapi_schema is None:
            made = plain()
            made["paths"]["/v1/chat/completions"] = {"post": _operation()}
            api.openapi_schema = made
        return api.openapi_schema

    api.openapi = schema  # type: ignore[method-assign]


def _operation() -> dict[str, Any]:
    headers = {name: {"description": text, "schema": {"type": "string"}} for name, text in _HEADERS.items()}
    refusals = {
        status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
        for status, text in _REFUSALS.items()
    }
    return {
        "tags": ["completions"],
        "summary": "Answer a conversation on the cheapest road that can carry it",
        "operationId": "create_chat_completion",
        "requestBody": {"required": True, "content": {"application/json": {"schema": _REQUEST}}},
        "responses": {
            "200": {
                "description": "A `chat.completion` document, or with `stream` its events.",
                "headers": headers,
                "content": {
                    "application/json": {"schema": {"type": "object"}},
                    "text/event-stream": {"schema": {"type": "string"}},
                },
            },
            **refusals,
        },
    }
