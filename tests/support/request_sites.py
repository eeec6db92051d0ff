"""Every place of a chat request in which text may stand.

One site for each leaf of the published types, made by itself from its path, and further ones where a leaf takes values
of any shape, where our walker looks closer, and where no type says anything: unknown fields, headers, the query.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tests.support.request_fields import PATHS

Body = dict[str, Any]
SAY = {"role": "user", "content": "안녕하세요. Please answer in one line."}


@dataclass(frozen=True)
class Request:
    """What a client sends."""

    body: Body
    headers: dict[str, bytes] = field(default_factory=dict)
    query: str = ""


@dataclass(frozen=True)
class Site:
    """A place by name. `build` takes the sentence and the bare value, and gives None where the value cannot stand."""

    name: str
    build: Callable[[str, str], Request | None]

    def __str__(self) -> str:
        return self.name


def _site(name: str, body: Callable[[str], Body]) -> Site:
    return Site(name, lambda text, value: Request({"messages": [SAY], **body(text)}))


# ---- a leaf of the published types ----

_KIND_BY_KEY = {
    "refusal": "refusal",
    "image_url": "image_url",
    "input_audio": "input_audio",
    "file": "file",
    "custom": "custom",
    "allowed_tools": "allowed_tools",
}
_CALL = {"name": "look_up", "arguments": "{}"}


def _around(path: str, key: str, below: str) -> Body:
    """What must stand beside the field `key` of the object at `path` for the request to be a sensible one."""
    if path == "messages[]":
        if key in ("audio", "refusal", "tool_calls", "function_call") or below == "refusal":
            return {"role": "assistant", "content": None}
        if key == "tool_call_id":
            return {"role": "tool", "content": "done"}
        return {"role": "user", "content": "hello"}
    if path in ("messages[].content[]", "prediction.content[]"):
        return {"type": _KIND_BY_KEY.get(key, "text"), **({} if key in _KIND_BY_KEY else {"text": "hello"})}
    if path in ("tools[]", "messages[].tool_calls[]", "tool_choice"):
        kind = _KIND_BY_KEY.get(key, "function")
        own: Body = {} if key == kind else {kind: dict(_CALL) if "messages" in path else {"name": "look_up"}}
        return {"type": kind, **own, **({"id": "call-1"} if "messages" in path else {})}
    if path.endswith((".function", ".custom", "functions[]", "function_call")):
        return dict(_CALL) if "messages" in path else {"name": "look_up"}
    if path == "response_format":
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": {}}}
    return {
        "response_format.json_schema": {"name": "answer", "schema": {}},
        "prediction": {"type": "content"},
    }.get(path, {})


def at_path(path: str, leaf: Any, *, key: str = "entry") -> Body:
    """A body that holds `leaf` at `path`. `key` is the name that stands for a `*`."""
    made = _made("", path.split("."), leaf, key)
    if "messages" in made:
        made["messages"] = [SAY, *made["messages"]]
    return {"messages": [SAY], **made}


def _made(path: str, tokens: list[str], leaf: Any, key: str) -> Any:
    if not tokens:
        return leaf
    name, *rest = tokens
    below = rest[-1] if rest else ""
    bare = name.removesuffix("[]")
    inner = _made(f"{path}.{name}".lstrip("."), rest, leaf, key)
    return {
        **_around(path, bare, below),
        (key if bare == "*" else bare): [inner] if name.endswith("[]") else inner,
    }


def _leaf_sites(path: str) -> list[Site]:
    sites = [Site(path, lambda text, value: Request(at_path(path, text)))]
    if path.endswith("*"):
        sites.append(Site(f"{path} as a name", lambda text, value: Request(at_path(path, 5, key=text))))
    return sites


# ---- places that the types say nothing about ----

_SCHEMA_TEXTS = (
    *("description", "title", "default", "const", "pattern", "format", "$comment", "$id", "$ref", "x-note"),
    *("contentMediaType", "type"),
)


def _tool(parameters: Any, **more: Any) -> Body:
    return {
        "tools": [{"type": "function", "function": {"name": "look_up", "parameters": parameters, **more}}]
    }


def _answer_format(schema: Any, **more: Any) -> Body:
    return {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, **more},
        }
    }


def _schemas(text: str) -> dict[str, Any]:
    """Schemas with the text in them, by where it stands."""
    at_keyword = {
        keyword: {"type": "object", "properties": {"p": {"type": "string", keyword: text}}}
        for keyword in _SCHEMA_TEXTS
    }
    return at_keyword | {
        "enum": {"enum": ["a", text]},
        "examples": {"examples": [[{"deep": text}]]},
        "default, nested": {"default": {"a": [{"b": text}]}},
        "property name": {"type": "object", "properties": {text: {"type": "string"}}},
        "required": {"type": "object", "required": [text]},
        "definition's name": {"$defs": {text: {"type": "string"}}},
        "pattern property": {"patternProperties": {text: {"type": "string"}}},
        "unknown keyword": {text: True},
        "items": {"type": "array", "items": {"anyOf": [{"description": text}]}},
        "JSON in a default": {"default": json.dumps({"q": text})},
    }


def _call(arguments: str) -> Body:
    call = {"id": "call-1", "type": "function", "function": {"name": "look_up", "arguments": arguments}}
    return {
        "messages": [
            SAY,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call-1", "content": "done"},
        ]
    }


def _halves(text: str, count: int) -> list[Body]:
    step = max(1, -(-len(text) // count))
    return [{"type": "text", "text": text[at : at + step]} for at in range(0, len(text), step)]


def _at_a_space(text: str) -> list[str]:
    """Two halves; nobody ends a message inside a word."""
    at = text.find(" ", len(text) // 2)
    return [text[:at], text[at + 1 :]] if at > 0 else [text]


def _say(role: str, content: Any, **more: Any) -> Body:
    return {"messages": [{"role": role, "content": content, **more}, SAY]}


_DEEP: dict[str, Callable[[str], Body]] = {
    **{
        f"content of {role}": (lambda text, role=role: _say(role, text))
        for role in ("system", "developer", "assistant")
    },
    "content of user": lambda text: {"messages": [{"role": "user", "content": text}]},
    "content of user, streamed": lambda text: {
        "messages": [{"role": "user", "content": text}],
        "stream": True,
    },
    "an early turn": lambda text: {
        "messages": [
            SAY,
            {"role": "assistant", "content": "네."},
            {"role": "user", "content": text},
            SAY,
            SAY,
        ]
    },
    "content parts of system": lambda text: _say("system", [{"type": "text", "text": text}]),
    "text over two parts": lambda text: _say("user", _halves(text, 2)),
    "text over seven parts": lambda text: _say("user", _halves(text, 7)),
    "two messages": lambda text: {
        "messages": [{"role": "user", "content": half} for half in _at_a_space(text)]
    },
    "content of tool": lambda text: _say("tool", text, tool_call_id="call-1"),
    "content of function": lambda text: _say("function", text, name="look_up"),
    "name of tool": lambda text: _say("tool", "done", tool_call_id="call-1", name=text),
    "name of function": lambda text: _say("function", "done", name=text),
    "JSON in a tool's result": lambda text: _say(
        "tool", json.dumps({"rows": [{"v": text}]}), tool_call_id="call-1"
    ),
    "name in a tool's result": lambda text: _say("tool", json.dumps({text: 1}), tool_call_id="call-1"),
    "lines in a tool's result": lambda text: _say(
        "tool", f"id\tvalue\n1\t{text}\n2\tnone\n", tool_call_id="call-1"
    ),
    "argument": lambda text: _call(json.dumps({"q": text}, ensure_ascii=False)),
    "argument, escaped": lambda text: _call(
        '{"q": "' + "".join(f"\\u{ord(c):04x}" if ord(c) < 0x10000 else c for c in text) + '"}'
    ),
    "argument, nested": lambda text: _call(json.dumps({"a": [1, {"b": [[text]]}]})),
    "JSON in an argument": lambda text: _call(json.dumps({"a": json.dumps({"b": json.dumps([text])})})),
    "name of an argument": lambda text: _call(json.dumps({text: 1})),
    "argument that is one string": lambda text: _call(json.dumps(text)),
    "extra field of a call": lambda text: {
        "messages": [SAY, {"role": "assistant", "tool_calls": [{**_CALL_OBJECT, "note": text, text: 1}]}]
    },
    "extra field of a message": lambda text: {"messages": [{**SAY, "reasoning_content": text, text: text}]},
    "extra field of a part": lambda text: _say(
        "user", [{"type": "text", "text": "hi", "cache_control": {"type": text}, text: 1}]
    ),
    "part of an unknown type": lambda text: _say("user", [{"type": text, "text": "hi"}]),
    "part of no type": lambda text: _say("user", [{"text": text}]),
    "extra field of a tool": lambda text: {
        "tools": [{"type": "function", "function": {"name": "look_up"}, "note": text, text: 1}]
    },
    "extra field of a function": lambda text: _tool({}, note=text),
    "strict, as text": lambda text: _tool({}, strict=text),
    "parameters, as text": lambda text: _tool(text),
    "extra field of the answer's format": lambda text: _answer_format({}, note=text),
    "answer's format of another type": lambda text: {"response_format": {"type": "grammar", "grammar": text}},
    "answer's format, a name": lambda text: {"response_format": {"type": "json_object", text: 1}},
    "unknown field": lambda text: {"something_new": text},
    "unknown field, nested": lambda text: {"something_new": {"a": [text]}},
    "unknown field, its name": lambda text: {text: 1},
    "extra_body": lambda text: {"extra_body": {"documents": [text]}},
    "chat_template_kwargs": lambda text: {"chat_template_kwargs": {"note": text}},
    "guided_choice": lambda text: {"guided_choice": [text]},
    "prompt": lambda text: {"prompt": text},
    "input": lambda text: {"input": [{"role": "user", "content": text}]},
    "several stops": lambda text: {"stop": ["\n", text]},
    "extra field of stream_options": lambda text: {"stream": True, "stream_options": {"note": text}},
    "messages, as text": lambda text: {"messages": text},
    "message, as text": lambda text: {"messages": [text]},
    "tool_choice, another type": lambda text: {
        "tool_choice": {"type": text, "function": {"name": "look_up"}}
    },
}
_CALL_OBJECT = {"id": "call-1", "type": "function", "function": _CALL}


def _schema_site(where: str, around: Callable[[Any], Body], name: str) -> Site:
    return _site(f"{name}: {where}", lambda text: around(_schemas(text)[where]))


# ---- numbers, headers, the query ----


def _number(value: str) -> int | None:
    digits = "".join(filter(str.isdigit, value))
    bare = all(char.isdigit() or char in "-. ()+" for char in value)
    return int(digits) if bare and digits and value.isascii() else None


def _number_site(name: str, body: Callable[[int], Body]) -> Site:
    def build(text: str, value: str) -> Request | None:
        number = _number(value)
        return None if number is None else Request({"messages": [SAY], **body(number)})

    return Site(name, build)


_NUMBERS = (
    _number_site("a number in an argument", lambda number: _call(json.dumps({"n": number}))),
    _number_site("a fraction in an argument", lambda number: _call(f'{{"n": {number}.5}}')),
    _number_site("a small fraction in an argument", lambda number: _call(f'{{"n": 0.{number}}}')),
    _number_site("a number in a schema", lambda number: _tool({"type": "integer", "default": number})),
    _number_site("a number in an enum", lambda number: _answer_format({"enum": [1, number]})),
    *(
        _number_site(f"{name}, as a number", lambda number, name=name: {name: number})
        for name in (
            "seed",
            "max_tokens",
            "max_completion_tokens",
            "n",
            "top_logprobs",
            "temperature",
            "top_p",
        )
    ),
    _number_site("temperature, a fraction", lambda number: {"temperature": float(f"0.{number}")}),
    _number_site("logit_bias, as a number", lambda number: {"logit_bias": {"50256": number}}),
    _number_site("unknown field, a number", lambda number: {"something_new": number}),
)

HEADERS = (
    *("x-weighbridge-conversation-id", "x-weighbridge-data-class", "x-request-id", "user-agent", "referer"),
    *(
        "cookie",
        "traceparent",
        "baggage",
        "x-forwarded-for",
        "openai-organization",
        "x-note",
        "idempotency-key",
    ),
)


def _header_site(name: str) -> Site:
    def build(text: str, value: str) -> Request:
        line = "".join(char if char.isprintable() else " " for char in text).strip()
        return Request({"messages": [SAY]}, {name: line.encode()})

    return Site(f"header {name}", build)


_QUERY = Site("the query", lambda text, value: Request({"messages": [SAY]}, query=f"?note={quote(text)}"))

SITES: tuple[Site, ...] = (
    *(site for path in PATHS for site in _leaf_sites(path)),
    *(_site(name, body) for name, body in _DEEP.items()),
    *(_schema_site(where, _tool, "parameters") for where in _schemas("")),
    *(_schema_site(where, _answer_format, "answer's schema") for where in _schemas("")),
    *_NUMBERS,
    *map(_header_site, HEADERS),
    _QUERY,
)
