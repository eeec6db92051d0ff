"""Which requests begin alike, told without a tokenizer: one worker's prefix cache then serves them all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

_CHARS: Final = 1_024
"""Characters of the prompt's beginning that are looked at."""
_MESSAGES: Final = 2
"""The system prompt and the first question: the part of a conversation that never changes."""
_PARTS: Final = 8
"""Content parts of a message that are looked at, so that a hundred thousand cost no more than a few."""


def affinity_of(body: Mapping[str, Any], tenant: str) -> bytes:
    """A digest of what the prompt begins with; equal for requests of one tenant that begin alike.

    Pure, bounded in time, and never raises, whatever the body holds.

    Args:
        body: a decoded chat-completions body. The caller's own `prompt_cache_key` goes before its messages.
        tenant: tenants share no digest, so none can aim its requests at another's worker.

    Returns:
        16 bytes; none where the request holds no text to go by.
    """
    key = body.get("prompt_cache_key")
    if isinstance(key, str) and key:
        return _digest(tenant, "key", key[:_CHARS])
    text = _beginning(body.get("messages"))
    return _digest(tenant, "text", text) if text else b""


def _digest(tenant: str, kind: str, text: str) -> bytes:
    # JSON may hold half a surrogate pair, which has no UTF-8.
    raw = f"{tenant}\0{kind}\0{text}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=16).digest()


def _beginning(messages: Any) -> str:
    if not isinstance(messages, list):
        return ""
    found = ""
    for message in messages[:_MESSAGES]:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            found += content[: _CHARS - len(found)]
        elif isinstance(content, list):
            for part in content[:_PARTS]:
                text = part.get("text") if isinstance(part, dict) else None
                if isinstance(text, str):
                    found += text[: _CHARS - len(found)]
        if len(found) >= _CHARS:
            break
    return found
