"""What a request asked for and what its answer holds, read as far as evidence needs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Final

import msgspec

from weighbridge.router.answer import Delta, payload_of

_CUT: Final = "length"


class Call(msgspec.Struct):
    """A tool call of an answer."""

    type: Any = None
    name: Any = None
    arguments: str = ""


class Said(msgspec.Struct):
    """One choice of an answer, or as much of it as has come."""

    text: str = ""
    thought: bool = False
    """The model has shown its reasoning."""
    refusal: bool = False
    """The answer says itself that it is a refusal."""
    other: bool = False
    """It answers with something that is neither text nor a tool call: sound, a picture, a call of the old form."""
    calls: list[Call] = msgspec.field(default_factory=list)
    finish: Any = None
    """Why it ended; None while it goes on."""
    stop: Any = None
    """The caller's stop text or token that ended it, where the backend says so."""

    @property
    def cut(self) -> bool:
        """It ended because there was no room for more."""
        return bool(self.finish == _CUT)


class Asked:
    """A request, by what its answer has to be."""

    def __init__(self, body: dict[str, Any], task: str) -> None:
        self._body = body
        self.task = task
        form = body.get("response_format")
        self._form = form if isinstance(form, dict) else {}
        limit = body.get("max_completion_tokens")
        self.limited = (body.get("max_tokens") if limit is None else limit) is not None
        """The caller has set how long the answer may be."""
        self.stops = bool(body.get("stop") or body.get("stop_token_ids"))

    def ended(self, said: Said) -> bool:
        """Whether the caller's own stop text or limit may have ended an answer, as it would a more capable model's."""
        return self.stops or said.stop is not None or (said.cut and self.limited)

    @property
    def wants_json(self) -> bool:
        return self._form.get("type") in ("json_object", "json_schema")

    @property
    def schema(self) -> Any:
        """The JSON schema of the answer; None where there is none."""
        named = self._form.get("json_schema")
        return named.get("schema") if isinstance(named, dict) else None

    @cached_property
    def tools(self) -> dict[str, Any]:
        """The parameters' schema of every function that was offered."""
        functions = [tool.get("function") for tool in _dicts(self._body.get("tools"))]
        return {
            function["name"]: function.get("parameters")
            for function in functions
            if isinstance(function, dict) and isinstance(function.get("name"), str)
        }

    @property
    def must_call(self) -> bool:
        return self._body.get("tool_choice") == "required" or self.named_tool is not None

    @property
    def may_call(self) -> bool:
        return bool(self.tools) and self._body.get("tool_choice") != "none"

    @property
    def named_tool(self) -> str | None:
        """The one tool that is to be called."""
        choice = self._body.get("tool_choice")
        function = choice.get("function") if isinstance(choice, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        return name if isinstance(name, str) else None

    @cached_property
    def question(self) -> str:
        """The text of the caller's last message."""
        for message in reversed(self._messages):
            if message.get("role") == "user":
                return "\n".join(_texts(message.get("content")))
        return ""

    def texts(self) -> Iterator[str]:
        """The texts of all messages, the system's too."""
        for message in self._messages:
            yield from _texts(message.get("content"))

    @property
    def _messages(self) -> list[dict[str, Any]]:
        return _dicts(self._body.get("messages"))


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _texts(content: Any) -> Iterator[str]:
    for part in content if isinstance(content, list) else (content,):
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text


def _pictures(content: Any) -> bool:
    """Whether content in parts has some that are no text."""
    return any("text" not in part for part in _dicts(content))


class _Function(msgspec.Struct):
    name: Any = None
    arguments: Any = None


class _Call(msgspec.Struct):
    index: int | None = None
    type: Any = None
    function: _Function | None = None


class _Message(Delta):
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    index: int = 0
    finish_reason: Any = None
    stop_reason: Any = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None


_answer: Final = msgspec.json.Decoder(_Answer)


def read_answer(document: bytes) -> list[Said]:
    """The choices of a whole answer.

    Raises:
        msgspec.DecodeError: it is no chat completion.
    """
    return [_joined((choice,)) for choice in _answer.decode(document).choices or ()]


class Heard:
    """A stream, put together as it comes."""

    def __init__(self) -> None:
        self._choices: dict[int, list[_Choice]] = {}

    def take(self, piece: bytes) -> None:
        """Read events as engines frame them.

        Raises:
            msgspec.DecodeError: one is no chunk.
        """
        for event in piece.split(b"\n\n"):
            for choice in _answer.decode(payload_of(event)).choices or () if event else ():
                self._choices.setdefault(choice.index, []).append(choice)

    @property
    def ended(self) -> bool:
        """Whether every choice that has come has ended."""
        return bool(self._choices) and all(
            choices[-1].finish_reason is not None for choices in self._choices.values()
        )

    def said(self) -> list[Said]:
        return [_joined(choices) for choices in self._choices.values()]


def _joined(pieces: Iterable[_Choice]) -> Said:
    said, texts, calls = Said(), list[str](), dict[int, Call]()
    for piece in pieces:
        message = piece.message or piece.delta
        said.finish = piece.finish_reason or said.finish
        said.stop = said.stop if piece.stop_reason is None else piece.stop_reason
        if message is None:
            continue
        texts += _texts(message.content)
        said.other = said.other or bool(message.function_call or message.audio or _pictures(message.content))
        said.thought = said.thought or bool(message.reasoning or message.reasoning_content)
        said.refusal = said.refusal or bool(message.refusal)
        for n, call in enumerate(message.tool_calls or ()):
            at = calls.setdefault(n if call.index is None else call.index, Call())
            at.type = call.type or at.type
            if call.function is not None:
                at.name = call.function.name or at.name
                at.arguments += call.function.arguments if isinstance(call.function.arguments, str) else ""
    said.text, said.calls = "".join(texts), list(calls.values())
    return said
