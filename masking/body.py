"""The chat-completions body for a commercial API: a new one, built from the fields this module knows.

Left out are fields it does not know, `user`, `metadata`, `safety_identifier`, `prompt_cache_key`, `store` and
`service_tier` (they name people, accounts or contracts), `logit_bias` (token ids of another vocabulary, which can
spell words), `prediction`, and everything that only a local engine understands.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from weighbridge.config.errors import InvalidRequest
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.vault import opaque
from weighbridge.masking.walker import JsonText, Leaf, Walker, is_long

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
_TOOL_CHOICES = frozenset({"none", "auto", "required"})
_FORMATS = frozenset({"text", "json_object", "json_schema"})
# What OpenAI takes as a name, and the dot and the length that some others take.
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SEED_LIMIT = 10**6
_MOST_CHOICES = 128

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
        InvalidRequest: a known field has a wrong type; no road could use it.
    """
    build = _Builder(walker, id_key)
    if body.get("audio") is not None:
        raise MaskingRefused("not_text")
    _of(build.modalities, "modalities", body.get("modalities") or [])
    tree: dict[str, Any] = {"model": upstream_model}
    for field, handle in build.fields.items():
        if body.get(field) is not None:
            tree[field] = _of(handle, field, body[field])
    if "messages" not in tree:
        raise InvalidRequest("messages must be a list of messages.", param="messages")
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
            "response_format": self._format,
            "temperature": _real,
            "top_p": _real,
            "presence_penalty": _real,
            "frequency_penalty": _real,
            "n": _choices,
            "max_tokens": _positive,
            "max_completion_tokens": _positive,
            "stop": self._stop,
            "seed": _seed,
            "logprobs": _flag,
            "top_logprobs": _whole,
            "reasoning_effort": _one_of(_EFFORTS),
            "verbosity": _one_of(_EFFORTS),
            "stream": _flag,
        }

    def modalities(self, value: Any) -> None:
        """Text is the only one we can mask."""
        if any(kind != "text" for kind in self._items(value)):
            raise MaskingRefused("not_text")

    def _items(self, value: Any) -> Iterator[Any]:
        """The items of a list, each counted before it is looked at."""
        for item in _list(value):
            self._walker.count()
            yield item

    def _messages(self, value: Any) -> list[Any]:
        messages = [_of(self._message, f"[{at}]", message) for at, message in enumerate(self._items(value))]
        if not messages:
            raise _WrongType("a list of at least one message")
        self._adjoin(messages)
        return messages

    def _adjoin(self, messages: list[dict[str, Any]]) -> None:
        """A number may be dealt out over messages: one after the other, or one turn of a role after the next."""
        previous: dict[str, Leaf | JsonText] = {}
        before: Leaf | JsonText | None = None
        for message in messages:
            content = message.get("content")
            nodes: list[Any] = (
                [part[part["type"]] for part in content] if isinstance(content, list) else [content]
            )
            if not nodes or nodes[0] is None:
                continue
            same_role = previous.get(message["role"])
            for earlier in (before,) if same_role is before else (before, same_role):
                if earlier is not None:
                    self._walker.adjoin_numbers(earlier, nodes[0])
            before = previous[message["role"]] = nodes[-1]

    def _message(self, value: Any) -> dict[str, Any]:
        message = _dict(value)
        role = _one_of(_ROLES)(message.get("role"))
        if message.get("audio") is not None:
            raise MaskingRefused("not_text")
        made: dict[str, Any] = {"role": role}
        if "content" in message:
            made["content"] = _of(self._content, ".content", message["content"])
        if message.get("refusal") is not None:
            made["refusal"] = self._walker.text(_text(message["refusal"]))
        if message.get("name") is not None:
            name = _text(message["name"])
            # A participant's name is a name, whatever the detectors think; a function's name is one of ours.
            made["name"] = (
                self._word(name) if role in ("tool", "function") else self._walker.whole("PERSON", name)
            )
        if message.get("tool_call_id") is not None:
            made["tool_call_id"] = self._id(message["tool_call_id"])
        if message.get("tool_calls") is not None:
            made["tool_calls"] = [self._tool_call(_dict(call)) for call in self._items(message["tool_calls"])]
        if message.get("function_call") is not None:
            made["function_call"] = self._call(_dict(message["function_call"]))
        return made

    def _content(self, content: Any) -> Any:
        if content is None:
            return None
        if isinstance(content, str):
            return self._walker.text(content)
        if not isinstance(content, list):
            raise _WrongType("a string or a list of content parts")
        parts = [self._part(_dict(part)) for part in self._items(content)]
        self._walker.adjoin([part[part["type"]] for part in parts])
        return parts

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
            "name": self._word(call.get("name")),
            "arguments": self._walker.arguments(_text(call.get("arguments"))),
        }

    def _id(self, value: Any) -> str:
        """Callers choose these ids freely, so they are not passed on."""
        return "call_" + opaque(self._id_key, 24, "tool call", _text(value))

    def _tools(self, value: Any) -> list[Any]:
        tools = [_dict(tool) for tool in self._items(value)]
        if any(tool.get("type") != "function" for tool in tools):
            raise MaskingRefused("unknown_field_type")
        return [
            {"type": "function", "function": self._function(_dict(tool.get("function")))} for tool in tools
        ]

    def _functions(self, value: Any) -> list[Any]:
        return [self._function(_dict(function)) for function in self._items(value)]

    def _function(self, function: dict[str, Any]) -> dict[str, Any]:
        made = {"name": self._word(function.get("name"))}
        for field in ("description", "parameters", "strict"):
            if function.get(field) is not None:
                made[field] = self._schema(function[field])
        return made

    def _schema(self, value: Any) -> Any:
        return self._walker.value(value, schema=True)

    def _format(self, value: Any) -> Any:
        asked = _dict(value)
        kind = _one_of(_FORMATS)(asked.get("type"))
        if kind != "json_schema":
            return {"type": kind}
        wanted = _dict(asked.get("json_schema"))
        made = {"name": self._word(wanted.get("name"))}
        for field in ("description", "schema", "strict"):
            if wanted.get(field) is not None:
                made[field] = self._schema(wanted[field])
        return {"type": kind, "json_schema": made}

    def _word(self, value: Any) -> str:
        """A function's or a format's name: a word as providers take it. Anything else could be a sentence."""
        name = _text(value)
        if _WORD.fullmatch(name) is None:
            raise MaskingRefused("key_hit")
        return self._walker.name(name)

    def _tool_choice(self, value: Any) -> Any:
        if isinstance(value, str):
            return _one_of(_TOOL_CHOICES)(value)
        if _dict(value).get("type") != "function":
            raise MaskingRefused("unknown_field_type")
        return {"type": "function", "function": self._named(value.get("function"))}

    def _function_choice(self, value: Any) -> Any:
        return _one_of(_TOOL_CHOICES)(value) if isinstance(value, str) else self._named(value)

    def _named(self, value: Any) -> dict[str, str]:
        return {"name": self._word(_dict(value).get("name"))}

    def _stop(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._walker.text(value)
        return [self._walker.text(_text(item)) for item in self._items(value)]


class _WrongType(Exception):
    """A field is not what it must be; `expected` says what that is and holds nothing of the request."""

    def __init__(self, expected: str) -> None:
        super().__init__(expected)
        self.expected = expected
        self.path = ""


def _of(handle: Callable[[Any], Any], name: str, value: Any) -> Any:
    """`handle(value)`; a wrong type is told with the field's name. A name that begins a path is the request's field."""
    try:
        return handle(value)
    except _WrongType as wrong:
        wrong.path = name + wrong.path
        if name[0] in "[.":
            raise
        raise InvalidRequest(f"{wrong.path} must be {wrong.expected}.", param=wrong.path) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _WrongType("made of strings where text stands")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _WrongType("a list")
    return value


def _dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _WrongType("an object, or made of objects")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _WrongType("true or false")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _WrongType("a whole number")
    if is_long(value):
        raise MaskingRefused("number")
    return value


def _positive(value: Any) -> int:
    number = _whole(value)
    if number < 1:
        raise _WrongType("a whole number above zero")
    return number


def _choices(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_CHOICES:
        raise _WrongType(f"a whole number from 1 to {_MOST_CHOICES}")
    return value


def _real(value: Any) -> float:
    """Sampling numbers lose what stands behind the fourth decimal: 0.1 + 0.2 is a number of 17 digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _WrongType("a number")
    if not abs(value) < 1000:
        raise MaskingRefused("number")
    return round(value, 4)


def _seed(value: Any) -> int:
    """A seed is only a label for a draw: a long one is replaced, always by the same."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**64:
        raise _WrongType("a whole number of at most 64 bits")
    if not is_long(value):
        return value
    digest = hashlib.sha256(value.to_bytes(9, "big", signed=True)).digest()
    return int.from_bytes(digest[:8], "big") % _SEED_LIMIT


def _one_of(legal: frozenset[str]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str):
            raise _WrongType("one of the known words, in a string")
        if value not in legal:
            raise MaskingRefused("unknown_field_type")
        return value

    return check
