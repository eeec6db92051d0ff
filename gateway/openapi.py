"""The OpenAPI schema with the completions route in it, which FastAPI itself does not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI

from weighbridge.policies.schema import MAX_QUEUE_LOCK_MS

_HEADERS = {
    "x-weighbridge-request-id": "The id of the request in every record and log line.",
    "x-weighbridge-road": "The road that answered, or the last one tried.",
    "x-weighbridge-score": "The difficulty, 0 to 1.",
    "x-weighbridge-task": "The kind of task that was recognised.",
    "x-weighbridge-policy": "The policy version the request was decided under.",
    "x-weighbridge-attempts": "Backends tried.",
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
}


def _request(models: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["model", "messages"],
        "additionalProperties": True,
        "description": "OpenAI's chat completions body. Fields not named here go to the model's server as they are.",
        "properties": {
            "model": {"type": "string", "enum": list(models)},
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


def with_chat_route(api: FastAPI, models: Sequence[str]) -> None:
    """Add `POST /v1/chat/completions` to the schema of `api`.

    Args:
        models: the names a request may ask for.
    """
    plain = api.openapi

    def schema() -> dict[str, Any]:
        if api.openapi_schema is None:
            made = plain()
            made["paths"]["/v1/chat/completions"] = {"post": _operation(models)}
            api.openapi_schema = made
        return api.openapi_schema

    api.openapi = schema  # type: ignore[method-assign]


def _operation(models: Sequence[str]) -> dict[str, Any]:
    headers = {name: {"description": text, "schema": {"type": "string"}} for name, text in _HEADERS.items()}
    refusals = {
        status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
        for status, text in _REFUSALS.items()
    }
    return {
        "tags": ["completions"],
        "summary": "Answer a conversation on the cheapest road that can carry it",
        "operationId": "create_chat_completion",
        "parameters": [
            {"name": name, "in": "header", "required": False, "description": text, "schema": schema}
            for name, (text, schema) in _WISHES.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _request(models)}}},
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
