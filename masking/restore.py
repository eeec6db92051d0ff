"""Putting the values back into an answer.

Only placeholders of this very request are known; any other stays as it is. Text is replaced in the channels a caller
reads: content, reasoning, refusal and the arguments of tool calls. `logprobs` keep the masked tokens, because a
restored value has no token probabilities.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from weighbridge.masking.spelling import OPENINGS, Held, substitute
from weighbridge.masking.vault import Vault

T = TypeVar("T")

TEXT_CHANNELS = ("content", "reasoning_content", "reasoning", "refusal")
# How a text inside an event may write what begins a placeholder, beside a plain bracket.
_BEGINNINGS = re.compile(rb"\\[\\u]|" + b"|".join(bracket.encode() for bracket in OPENINGS if bracket != "["))


def restore_completion(vault: Vault, payload: bytes) -> bytes:
    """A whole `chat.completion` document with the values put back.

    Raises:
        ValueError: `payload` is not JSON.
    """
    if not len(vault):
        return payload
    document = _opened(payload, dict[str, msgspec.Raw])
    choices = None if document is None else _opened(document.get("choices"), list[msgspec.Raw])
    if document is None or choices is None:
        return payload
    made = [_restore_choice(vault, choice) for choice in choices]
    return msgspec.json.encode({**document, "choices": made})


def _restore_choice(vault: Vault, given: msgspec.Raw) -> Any:
    choice = _opened(given, dict[str, msgspec.Raw])
    message = None if choice is None else _opened(choice.get("message"), dict[str, Any])
    if choice is None or message is None:
        return given
    _restore_message(vault, message)
    return {**choice, "message": message}


def _opened(raw: bytes | msgspec.Raw | None, kind: type[T]) -> T | None:
    """What is in there if it is of this kind. The rest of a document stays bytes: the logprobs of an answer are a
    hundred times as long as its text."""
    try:
        return None if raw is None else msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError:
        return None


def _restore_message(vault: Vault, message: dict[str, Any]) -> None:
    for channel in TEXT_CHANNELS:
        if isinstance(message.get(channel), str):
            message[channel] = substitute(vault, message[channel], escaped=is_escaped(vault, channel))
    for part in _dicts(message.get("content")):
        for kind in ("text", "refusal"):
            if isinstance(part.get(kind), str):
                escaped = is_escaped(vault, "content" if kind == "text" else kind)
                part[kind] = substitute(vault, part[kind], escaped=escaped)
    for function in functions_of(message):
        if isinstance(function.get("arguments"), str):
            function["arguments"] = substitute(vault, function["arguments"], escaped=True)


def functions_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The functions called in a message, the old single `function_call` included."""
    called = [call.get("function") for call in _dicts(message.get("tool_calls"))]
    return [function for function in (*called, message.get("function_call")) if isinstance(function, dict)]


def is_escaped(vault: Vault, channel: str) -> bool:
    """Whether values in this text channel stand inside JSON."""
    return channel == "content" and vault.json_answer


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


_Channel = tuple[str, int]
"""A text channel's name and 0, or `tool_calls` and the call's index."""


class StreamRestorer:
    """Restores a streamed answer chunk by chunk. Events are the JSON of `chat.completion.chunk`s, without `data:`.

    Each choice and each channel has its own hold-back, so nothing waits for anything else. What is held goes out before
    the choice's `finish_reason`, before a usage chunk, and at `finish`.
    """

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._held: dict[int, dict[_Channel, Held]] = {}
        self._envelope: dict[str, Any] = {}
        self._holding = 0

    def feed(self, event: bytes) -> list[bytes]:
        """The events to send on for this one: mostly one, none while all its text is held.

        Raises:
            ValueError: `event` is not JSON. Only what could hold a placeholder is read at all.
        """
        if not self._holding and (not len(self._vault) or _needs_no_look(event)):
            return [event]
        chunk = msgspec.json.decode(event)
        if not isinstance(chunk, dict):
            return [event]
        choices = _dicts(chunk.get("choices"))
        if not choices:
            # Usage ends a stream; any other event without choices may come between two pieces of a placeholder.
            return [event] if chunk.get("usage") is None else [*self.finish(), event]
        self._envelope = {key: value for key, value in chunk.items() if key not in ("choices", "usage")}
        ready: list[bytes] = []
        changed = emptied = False
        for choice in choices:
            before, differs, hollow = self._restore_choice(choice)
            ready.extend(before)
            changed, emptied = changed or differs, emptied or hollow
        if emptied and chunk.get("usage") is None and all(map(_says_nothing, choices)):
            return ready
        return [*ready, msgspec.json.encode(chunk) if changed else event]

    def finish(self) -> list[bytes]:
        """What is still held, as events."""
        return [event for index in list(self._held) for event in self._release(index)]

    def _restore_choice(self, choice: dict[str, Any]) -> tuple[list[bytes], bool, bool]:
        """Events to send before; whether the choice was changed; whether a text in it became empty."""
        index = _number(choice.get("index"))
        delta = choice.get("delta")
        final = choice.get("finish_reason") is not None
        held = self._held.setdefault(index, {})
        changed = emptied = False
        for channel, holder, field in _channels(delta if isinstance(delta, dict) else {}):
            text = holder[field]
            buffer = held.get(channel)
            if buffer is None:
                escaped = channel[0] not in TEXT_CHANNELS or is_escaped(self._vault, channel[0])
                buffer = held[channel] = Held(self._vault, escaped)
            held_before = bool(buffer.text)
            holder[field] = buffer.push(text) + (buffer.flush() if final else "")
            self._holding += bool(buffer.text) - held_before
            changed = changed or holder[field] != text
            emptied = emptied or (bool(text) and not holder[field])
        return (self._release(index) if final else []), changed, emptied

    def _release(self, index: int) -> list[bytes]:
        delta: dict[str, Any] = {}
        for (name, call), buffer in self._held.pop(index, {}).items():
            rest = buffer.flush()
            if not rest:
                continue
            self._holding -= 1
            if name == "tool_calls":
                delta.setdefault(name, []).append({"index": call, "function": {"arguments": rest}})
            else:
                delta[name] = {"arguments": rest} if name == "function_call" else rest
        if not delta:
            return []
        choice = {"index": index, "delta": delta, "finish_reason": None}
        return [msgspec.json.encode({**self._envelope, "choices": [choice]})]


def _needs_no_look(event: bytes) -> bool:
    """Whether no text in an event can begin a placeholder: its only brackets are those of its lists."""
    lists = 1 + event.count(b'"tool_calls":[') + event.count(b'"tool_calls": [')
    return event.count(b"[") <= lists and not _BEGINNINGS.search(event)


def _channels(delta: dict[str, Any]) -> list[tuple[_Channel, dict[str, Any], str]]:
    """Where text stands in a delta: the channel, the object and the field that holds it."""
    found: list[tuple[_Channel, dict[str, Any], str]] = [
        ((name, 0), delta, name) for name in TEXT_CHANNELS if isinstance(delta.get(name), str)
    ]
    for place, call in enumerate(_dicts(delta.get("tool_calls"))):
        function = call.get("function")
        if isinstance(function, dict) and isinstance(function.get("arguments"), str):
            found.append((("tool_calls", _number(call.get("index", place))), function, "arguments"))
    legacy = delta.get("function_call")
    if isinstance(legacy, dict) and isinstance(legacy.get("arguments"), str):
        found.append((("function_call", 0), legacy, "arguments"))
    return found


def _says_nothing(choice: dict[str, Any]) -> bool:
    """Whether a choice of a chunk carries neither text nor anything else a caller could need."""
    if choice.get("finish_reason") is not None or choice.get("logprobs"):
        return False
    delta = choice.get("delta")
    return not isinstance(delta, dict) or all(_nothing(name, value) for name, value in delta.items())


def _nothing(name: str, value: Any) -> bool:
    if name == "tool_calls":
        return all(
            set(call) <= {"index", "function"} and _nothing("", call.get("function"))
            for call in _dicts(value)
        )
    if isinstance(value, dict):
        return set(value) <= {"arguments"} and not value.get("arguments")
    return value is None or value == ""


def _number(index: Any) -> int:
    return index if isinstance(index, int) else 0
