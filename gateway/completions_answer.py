"""A chat answer as the legacy text completion that its caller asked for: documents, stream chunks and errors."""

from __future__ import annotations

import codecs
from typing import Annotated, Any, Final

import msgspec

OBJECT: Final = "text_completion"

_FINISH_REASONS: Final = ("stop", "length", "content_filter")
"""What a text completion may end with; a chat answer has others."""

_PARAMS: Final = {"messages": "prompt", "top_logprobs": "logprobs"}


class _Token(msgspec.Struct):
    """One token of a chat answer's `logprobs`."""

    token: str
    logprob: float
    bytes: list[Annotated[int, msgspec.Meta(ge=0, le=255)]] | None = None
    top_logprobs: list[_Token] | None = None


def param_of(param: str | None) -> str | None:
    """The caller's field behind a field of the chat body."""
    return _PARAMS.get(param.partition("[")[0], param) if isinstance(param, str) else None


class Translator:
    """Translates the one answer of a request. Keeps how far the text of each choice has come."""

    def __init__(self) -> None:
        self._offsets: dict[int, _Offsets] = {}

    def document(self, answer: dict[str, Any]) -> dict[str, Any]:
        """A whole answer."""
        return _around(answer, [self._choice(choice, "message") for choice in _choices(answer)])

    def chunk(self, chunk: dict[str, Any]) -> dict[str, Any] | None:
        """A chunk of a stream, or an error event; None where nothing is left of it, such as of a role."""
        error = chunk.get("error")
        if isinstance(error, dict):
            return {**chunk, "error": {**error, "param": param_of(error.get("param"))}}
        given = _choices(chunk)
        kept = [
            made
            for choice in given
            if (made := self._choice(choice, "delta"))["text"]
            or made["logprobs"]
            or made["finish_reason"] is not None
        ]
        return None if given and not kept else _around(chunk, kept)

    def _choice(self, choice: dict[str, Any], field: str) -> dict[str, Any]:
        said = choice.get(field)
        index, reason = choice.get("index"), choice.get("finish_reason")
        index = index if isinstance(index, int) else 0
        made = {
            "text": _text(said) if isinstance(said, dict) else "",
            "index": index,
            "logprobs": self._logprobs(index, choice.get("logprobs")),
            "finish_reason": None if reason is None else reason if reason in _FINISH_REASONS else "stop",
        }
        return made | {name: value for name, value in choice.items() if name not in made and name != field}

    def _logprobs(self, index: int, logprobs: Any) -> dict[str, Any] | None:
        try:
            tokens = msgspec.convert(logprobs["content"], list[_Token])
        except (LookupError, TypeError, msgspec.ValidationError):
            # None, or a provider's that are not what chat answers hold.
            return None
        offsets = self._offsets.setdefault(index, _Offsets())
        return {
            "text_offset": [offsets.next(token) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "tokens": [token.token for token in tokens],
            "top_logprobs": [_alternatives(token) for token in tokens],
        }


class _Offsets:
    """Where each token of a choice begins in its text, in characters. One that goes on with a character begins where
    that character does."""

    def __init__(self) -> None:
        self._at = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def next(self, token: _Token) -> int:
        at = self._at
        self._at += len(token.token if token.bytes is None else self._decoder.decode(bytes(token.bytes)))
        return at


def _alternatives(token: _Token) -> dict[str, float]:
    """Logprobs by text, the chosen token's among them; of two tokens with one text the likelier counts."""
    found: dict[str, float] = {}
    for other in token.top_logprobs or ():
        found.setdefault(other.token, other.logprob)
    found.setdefault(token.token, token.logprob)
    return found


def _text(said: dict[str, Any]) -> str:
    for field in ("content", "refusal"):
        text = said.get(field)
        if isinstance(text, str) and text:
            return text
    return ""


def _choices(answer: dict[str, Any]) -> list[dict[str, Any]]:
    choices = answer.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _around(answer: dict[str, Any], choices: list[dict[str, Any]]) -> dict[str, Any]:
    made = {**answer, "object": OBJECT, "choices": choices}
    name = answer.get("id")
    if isinstance(name, str):
        made["id"] = name.removeprefix("chat") if name.startswith("chatcmpl-") else name
    return made
