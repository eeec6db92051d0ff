"""A bounded, safe look at a chat-completions body: the few texts and facts that scoring uses.

Whatever the body holds, at most `MAX_CHARS` characters and a fixed number of messages, parts and schema
fields are looked at, nothing is followed deeper than one level, and nothing is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

USER_HEAD: Final = 8_000
USER_TAIL: Final = 4_000
SYSTEM_HEAD: Final = 2_000
SYSTEM_TAIL: Final = 1_000
EARLIER_HEAD: Final = 600
EARLIER_TAIL: Final = 400
MAX_CHARS: Final = USER_HEAD + USER_TAIL + SYSTEM_HEAD + SYSTEM_TAIL + EARLIER_HEAD + EARLIER_TAIL
"""The most characters that are ever looked at in one request."""

_LAST_MESSAGES: Final = 1_000
_FIRST_MESSAGES: Final = 8
_PARTS: Final = 16
_BLANK: Final = 64
_FIELDS: Final = 64


@dataclass(frozen=True, slots=True)
class Reading:
    """What scoring sees of a request.

    Args:
        user: the last user turn, shortened in the middle when long.
        user_chars: its length in characters before shortening.
        system: the first system or developer message, shortened.
        earlier: the user turn before the last one, shortened.
        earlier_chars: its length in characters before shortening.
        unanswered: no answer stands between that turn and the last one.
        fields: names of the top-level properties of a requested JSON schema (none beyond 64 of them).
        enums: how many of those are a closed choice.
        tools: names of the offered functions, joined by a space (of the first eight).
    """

    user: str = ""
    user_chars: int = 0
    system: str = ""
    earlier: str = ""
    earlier_chars: int = 0
    unanswered: bool = False
    fields: frozenset[str] = frozenset()
    enums: int = 0
    tools: str = ""


def clip(text: str, head: int, tail: int) -> str:
    """Keep the first `head` and the last `tail` characters of a longer text."""
    if len(text) <= head + tail:
        return text
    return text[:head] + "\n\n" + text[-tail:]


def read(body: Mapping[str, Any]) -> Reading:
    """Look at a decoded request body. Never raises."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return Reading()
    user, earlier, unanswered = _user_turns(messages)
    fields, enums = _schema(body.get("response_format"))
    user_text, user_chars = _text(user, USER_HEAD, USER_TAIL)
    earlier_text, earlier_chars = _text(earlier, EARLIER_HEAD, EARLIER_TAIL)
    return Reading(
        user=user_text,
        user_chars=user_chars,
        system=_text(_system(messages), SYSTEM_HEAD, SYSTEM_TAIL)[0],
        earlier=earlier_text,
        earlier_chars=earlier_chars,
        unanswered=unanswered,
        fields=fields,
        enums=enums,
        tools=_tools(body.get("tools")),
    )


def _user_turns(messages: list[Any]) -> tuple[Any, Any, bool]:
    """The last one, the one before, and whether nothing but them stands between."""
    found: list[Any] = []
    answered = False
    for message in messages[: -_LAST_MESSAGES - 1 : -1]:
        if isinstance(message, dict) and message.get("role") == "user":
            found.append(message.get("content"))
            if len(found) == 2:
                return found[0], found[1], not answered
        elif found:
            answered = True
    return (found[0] if found else None), None, False


def _system(messages: list[Any]) -> Any:
    for message in messages[:_FIRST_MESSAGES]:
        if isinstance(message, dict) and message.get("role") in ("system", "developer"):
            return message.get("content")
    return None


def _text(content: Any, head: int, tail: int) -> tuple[str, int]:
    if isinstance(content, str):
        if content[:_BLANK].isspace() or content[-_BLANK:].isspace():
            # What is blank must not push the rest out of sight.
            content = content.strip()
        return clip(content, head, tail), len(content)
    if not isinstance(content, list):
        return "", 0
    parts = content if len(content) <= 2 * _PARTS else content[:_PARTS] + content[-_PARTS:]
    texts: list[str] = []
    chars = 0
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(clip(text, head, tail))
            chars += len(text)
    return clip("\n\n".join(texts), head, tail), chars


def _schema(response_format: Any) -> tuple[frozenset[str], int]:
    node = response_format
    for key in ("json_schema", "schema", "properties"):
        node = node.get(key) if isinstance(node, dict) else None
    # A huge schema is not sampled: which part is seen would depend on the order of its keys.
    if not isinstance(node, dict) or len(node) > _FIELDS:
        return frozenset(), 0
    enums = sum(1 for value in node.values() if isinstance(value, dict) and "enum" in value)
    return frozenset(name[:64].lower() for name in node if isinstance(name, str)), enums


def _tools(tools: Any) -> str:
    names: list[str] = []
    for tool in tools[:8] if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str):
            names.append(name[:64].lower())
    return " ".join(names)
