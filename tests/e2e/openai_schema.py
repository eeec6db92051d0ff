"""OpenAI's published schema, as the types of its own package, held strictly against what comes over the wire."""

from __future__ import annotations

import time
from typing import Any

from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

FRESH_S = 600


def checked(document: dict[str, Any]) -> ChatCompletion:
    """A whole chat answer."""
    answer = ChatCompletion.model_validate(document, strict=True)
    _frame(answer, "chatcmpl-")
    assert answer.usage is not None
    _adds_up(answer.usage)
    assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
    assert all(choice.message.role == "assistant" for choice in answer.choices)
    return answer


def checked_stream(events: list[Any], *, usage: bool) -> list[ChatCompletionChunk]:
    """The chunks of a stream: one id for all, a role once a choice, one end each, and usage for those who asked."""
    assert events[-1] == "[DONE]"
    documents = events[:-1]
    chunks = [ChatCompletionChunk.model_validate(document, strict=True) for document in documents]
    for chunk in chunks:
        _frame(chunk, "chatcmpl-")
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    if usage:
        last = chunks.pop()
        assert last.choices == [] and last.usage is not None
        _adds_up(last.usage)
    else:
        assert all(document.get("usage") is None for document in documents)
    assert all(chunk.choices for chunk in chunks)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    for index in {choice.index for choice in choices}:
        own = [choice for choice in choices if choice.index == index]
        assert own[0].delta.role == "assistant"
        assert [choice.finish_reason is not None for choice in own] == [False] * (len(own) - 1) + [True]
    return chunks


def checked_text(document: dict[str, Any]) -> Completion:
    """A text completion, whole or a chunk."""
    answer = Completion.model_validate(document, strict=True)
    _frame(answer, "cmpl-")
    if answer.usage is not None:
        _adds_up(answer.usage)
    return answer


def checked_error(document: dict[str, Any]) -> dict[str, Any]:
    """An error object: all four fields, and nothing beside it."""
    assert set(document) == {"error"}
    error: dict[str, Any] = document["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and error["message"] and isinstance(error["type"], str)
    assert all(error[name] is None or isinstance(error[name], str) for name in ("param", "code"))
    return error


def said(chunks: list[ChatCompletionChunk], index: int = 0) -> str:
    return "".join(
        choice.delta.content or "" for chunk in chunks for choice in chunk.choices if choice.index == index
    )


def _frame(answer: Any, prefix: str) -> None:
    assert answer.id.startswith(prefix) and len(answer.id) > len(prefix)
    assert abs(time.time() - answer.created) < FRESH_S
    assert answer.model
    fingerprint = answer.system_fingerprint
    assert fingerprint is None or (isinstance(fingerprint, str) and fingerprint)


def _adds_up(usage: Any) -> None:
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
