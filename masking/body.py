"""The chat-completions body for a commercial API: a new one, built from the fields this module knows.

Left out are fields it does not know, `user`, `metadata`, `safety_identifier`, `prompt_cache_key`, `store` and
`service_tier` (they name people, accounts or contracts), `logit_bias` (token ids of another vocabulary, which can
spell words), `prediction`, and everything that only a local engine understands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.vault import opaque
from weighbridge.masking.walker import Walker, Whole, is_long

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_TOOL_CHOICES = frozenset({"none", "auto", "required"})
_SEED_LIMIT = 10**6

INSTRUCTION = (
    "Tokens in square brackets such as [EMAIL_…], [PHONE_…] or [NUM_…] stand for values that are withheld from you. "
    "Treat each as the value itself. Where you use one, copy the whole token exactly, brackets included."
)
"""The one line that is added to a request in which something was masked."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A body with nodes where text stood (see `walker`)."""

    tree: dict[str, Any]
    stream: bool
    json_answer: bool


def plan_body(body: dict[str, Any], walker: Walker, upstream_model: str, id_key: bytes) -> Plan:
    """Build the outward body.

    Args:
        body: the decoded request; not changed.
        walker: gathers the texts.
        upstream_model: the model name for the commercial API.
        id_key: key under which tool-call ids are replaced; the same id gets the same replacement.

    Raises:
        MaskingRefused: something is there that this module does not know how to make safe.
    """
    if body.get("audio") is not None or any(kind != "text" for kind in _list(body.get("modalities") or [])):
        raise MaskingRefused("not_text")
    build = _Builder(walker, id_key)
    tree: dict[str, Any] = {"model": upstream_model}
    for field, handle in build.fields.items():
        if body.get(field) is not None:
            tree[field] = handle(body[field])
    if "messages" not in tree:
        raise MaskingRefused("unknown_field_type")
    stream = bool(tree.get("stream", False))
    if stream:
        tree["stream_options"] = {"include_usage": True}
    kind = body["response_format"].get("type") if isinstance(body.get("response_format"), dict) else None
    return Plan(tree, stream, json_answer=kind in ("json_object", "json_schema"))


def with_instruction(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with `INSTRUCTION` at the end of the leading system message, or as one before all others."""
    first = messages[0]
    content = first.get("content")
    if first["role"] in ("system", "developer"):
        if isinstance(content, str):
            return [{**first, "content": f"{content}\n\n{INSTRUCTION}"}, *messages[1:]]
        if isinstance(content, list):
            return [{**first, "content": [*content, {"type": "text", "text": INSTRUCTION}]}, *messages[1:]]
    return [{"role": "system", "content": INSTRUCTION}, *messages]


class _Builder:
    def __init__(self, walker: Walker, id_key: bytes) -> None:
        self._walker = walker
        self._id_key = id_key
        self.fields: dict[str, Callable[[Any], Any]] = {
            "messages": self._messages,
            "tools": self._tools,
            "tool_choice": self._tool_choice,
            "parallel_tool_calls": _flag,
            "functions": self._functions,
            "function_call": self._function_choice,
            "response_format": self._schema,
            "temperature": _real,
            "top_p": _real,
            "presence_penalty": _real,
            "frequency_penalty": _real,
            "n": _whole,
            "max_tokens": _whole,
            "max_completion_tokens": _whole,
            "stop": self._stop,
            "seed": _seed,
            "logprobs": _flag,
            "top_logprobs": _whole,
            "reasoning_effort": _one_of(_EFFORTS),
            "verbosity": _one_of(_EFFORTS),
            "stream": _flag,
        }

    def _messages(self, value: Any) -> list[Any]:
        messages = [self._message(_dict(message)) for message in _list(value)]
        if not messages:
            raise MaskingRefused("unknown_field_type")
        return messages

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        role = _one_of(_ROLES)(message.get("role"))
        if message.get("audio") is not None:
            raise MaskingRefused("not_text")
        made: dict[str, Any] = {"role": role}
        if "content" in message:
            made["content"] = self._content(message["content"])
        if message.get("refusal") is not None:
            made["refusal"] = self._walker.text(_text(message["refusal"]))
        if message.get("name") is not None:
            name = _text(message["name"])
            # A participant's name is a name, whatever the detectors think; a function's name is one of ours.
            made["name"] = self._walker.name(name) if role in ("tool", "function") else Whole("PERSON", name)
        if message.get("tool_call_id") is not None:
            made["tool_call_id"] = self._id(message["tool_call_id"])
        if message.get("tool_calls") is not None:
            made["tool_calls"] = [self._tool_call(_dict(call)) for call in _list(message["tool_calls"])]
        if message.get("function_call") is not None:
            made["function_call"] = self._call(_dict(message["function_call"]))
        return made

    def _content(self, content: Any) -> Any:
        if content is None:
            return None
        if isinstance(content, str):
            return self._walker.text(content)
        return [self._part(_dict(part)) for part in _list(content)]

    def _part(self, part: dict[str, Any]) -> dict[str, Any]:
        kind = part.get("type")
        if kind not in ("text", "refusal"):
            raise MaskingRefused("not_text")
        return {"type": kind, kind: self._walker.text(_text(part.get(kind)))}

    def _tool_call(self, call: dict[str, Any]) -> dict[str, Any]:
        if call.get("type", "function") != "function":
            raise MaskingRefused("unknown_field_type")
        return {
            "id": self._id(call.get("id")),
            "type": "function",
            "function": self._call(_dict(call.get("function"))),
        }

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": self._walker.name(_text(call.get("name"))),
            "arguments": self._walker.arguments(_text(call.get("arguments"))),
        }

    def _id(self, value: Any) -> str:
        """Callers choose these ids freely, so they are not passed on."""
        return "call_" + opaque(self._id_key, 24, "tool call", _text(value))

    def _tools(self, value: Any) -> list[Any]:
        tools = [_dict(tool) for tool in _list(value)]
        if any(tool.get("type") != "function" for tool in tools):
            raise MaskingRefused("unknown_field_type")
        return [
            {"type": "function", "function": self._function(_dict(tool.get("function")))} for tool in tools
        ]

    def _functions(self, value: Any) -> list[Any]:
        return [self._function(_dict(function)) for function in _list(value)]

    def _function(self, function: dict[str, Any]) -> dict[str, Any]:
        made = {"name": self._walker.name(_text(function.get("name")))}
        for field in ("description", "parameters", "strict"):
            if function.get(field) is not None:
                made[field] = self._schema(function[field])
        return made

    def _schema(self, value: Any) -> Any:
        return self._walker.value(value, schema=True)

    def _tool_choice(self, value: Any) -> Any:
        if isinstance(value, str):
            return _one_of(_TOOL_CHOICES)(value)
        if _dict(value).get("type") != "function":
            raise MaskingRefused("unknown_field_type")
        return {"type": "function", "function": self._named(value.get("function"))}

    def _function_choice(self, value: Any) -> Any:
        return _one_of(_TOOL_CHOICES)(value) if isinstance(value, str) else self._named(value)

    def _named(self, value: Any) -> dict[str, str]:
        return {"name": self._walker.name(_text(_dict(value).get("name")))}

    def _stop(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._walker.text(value)
        return [self._walker.text(_text(item)) for item in _list(value)]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise MaskingRefused("unknown_field_type")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise MaskingRefused("unknown_field_type")
    return value


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MaskingRefused("unknown_field_type")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise MaskingRefused("unknown_field_type")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise MaskingRefused("unknown_field_type")
    if is_long(value):
        raise MaskingRefused("number")
    return value


def _real(value: Any) -> float:
    """Sampling numbers lose what stands behind the fourth decimal: 0.1 + 0.2 is a number of 17 digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise MaskingRefused("unknown_field_type")
    if not abs(value) < 1000:
        raise MaskingRefused("number")
    return round(value, 4)


def _seed(value: Any) -> int:
    """A seed is only a label for a draw: a long one is replaced, always by the same."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**64:
        raise MaskingRefused("unknown_field_type")
    if not is_long(value):
        return value
    digest = hashlib.sha256(value.to_bytes(9, "big", signed=True)).digest()
    return int.from_bytes(digest[:8], "big") % _SEED_LIMIT


def _one_of(legal: frozenset[str]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in legal:
            raise MaskingRefused("unknown_field_type")
        return value

    return check
