"""Reading the commercial API's answers: errors, whole documents, streams, and the token counts in them."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from weighbridge.commercial.errors import UpstreamFailed
from weighbridge.config.usage import TokenMeter

DONE = b"[DONE]"
_LONGEST_WAIT_S = 3600.0
# A word from a program, not a sentence and not a number: nothing of the request can hide in it.
_PLAIN_CODE = re.compile(r"[a-z][a-z_]{1,62}[a-z]")


_MOST_TOKENS = 1 << 40
"""A larger count is nonsense, not usage."""


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Delta | None = None
    finish_reason: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | msgspec.UnsetType | None = msgspec.UNSET
    usage: Any = None
    error: Any = None


class _Document(msgspec.Struct):
    choices: list[msgspec.Raw] | None = None
    usage: Any = None
    error: Any = None


class _Problem(msgspec.Struct):
    code: Any = None


class _Refusal(msgspec.Struct):
    error: _Problem | None = None


_chunks = msgspec.json.Decoder(_Chunk)
_documents = msgspec.json.Decoder(_Document)
_refusals = msgspec.json.Decoder(_Refusal)


def error_code(body: bytes | None) -> str | None:
    """The `error.code` of an error document, if it is a plain word."""
    try:
        refusal = _refusals.decode(body or b"")
    except msgspec.MsgspecError:
        return None
    code = None if refusal.error is None else refusal.error.code
    return code if isinstance(code, str) and _PLAIN_CODE.fullmatch(code) else None


def retry_after(value: str, now_s: float) -> float | None:
    """Seconds in a `Retry-After` header, given as such or as a date; None when it holds neither.

    Args:
        value: the header's value.
        now_s: seconds since 1970, UTC.
    """
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now_s
        except (TypeError, ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), _LONGEST_WAIT_S) if seconds == seconds else None


def read_document(body: bytes | None, meter: TokenMeter) -> bytes:
    """Check a whole answer and count its tokens.

    Raises:
        UpstreamFailed: malformed (too long, no JSON, no choices), or status for an error in place of an answer.
    """
    try:
        document = _documents.decode(body or b"")
    except (msgspec.MsgspecError, RecursionError):
        document = _Document()
    if document.error is not None:
        raise UpstreamFailed("status")
    if not body or not document.choices:
        raise UpstreamFailed("malformed")
    _count(document.usage, meter)
    return body


class StreamReading:
    """Follows a stream of chunks: counts, and knows whether the answer is whole.

    Until usage comes, each event with content counts as one token and the meter is not exact.

    Args:
        choices: how many choices were asked for.
        meter: written as events come.
    """

    def __init__(self, choices: int, meter: TokenMeter) -> None:
        self._choices = choices
        self._meter = meter
        self._seen: set[int] = set()
        self._finished: set[int] = set()

    def take(self, event: bytes) -> None:
        """Read one event.

        Raises:
            UpstreamFailed: malformed, or status for an error event.
        """
        try:
            chunk = _chunks.decode(event)
        except (msgspec.MsgspecError, RecursionError):
            chunk = None
        if chunk is None:
            raise UpstreamFailed("malformed")
        if chunk.error is not None:
            raise UpstreamFailed("status")
        if chunk.choices is msgspec.UNSET and chunk.usage is None:
            # Neither content nor usage: some servers report a failure in a shape of their own.
            raise UpstreamFailed("status")
        choices = chunk.choices or []
        self._seen.update(choice.index or 0 for choice in choices)
        self._finished.update(choice.index or 0 for choice in choices if choice.finish_reason is not None)
        if isinstance(chunk.usage, dict) and chunk.usage:
            _count(chunk.usage, self._meter)
        elif any(map(_has_content, choices)):
            self._meter.completion += 1
            self._meter.exact = False

    @property
    def whole(self) -> bool:
        """Whether every choice that came has ended; with `[DONE]` that is a whole answer."""
        return bool(self._seen) and self._seen == self._finished

    @property
    def finished(self) -> bool:
        """Whether every choice that was asked for has ended; that is a whole answer without `[DONE]` too."""
        return len(self._finished) >= self._choices


def _has_content(choice: _Choice) -> bool:
    delta = choice.delta
    return delta is not None and bool(
        delta.content
        or delta.reasoning_content
        or delta.reasoning
        or delta.refusal
        or delta.tool_calls
        or delta.function_call
    )


def _count(usage: Any, meter: TokenMeter) -> None:
    """Take over the provider's counts, if they are counts."""
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    prompt = _tokens(usage, "prompt_tokens")
    completion = _tokens(usage, "completion_tokens")
    if prompt is None or completion is None:
        meter.exact = False
        return
    meter.prompt, meter.completion = prompt, completion
    meter.cached = min(_tokens(details, "cached_tokens") or 0, prompt)
    meter.exact = True


def _tokens(counts: Any, name: str) -> int | None:
    value = counts.get(name) if isinstance(counts, dict) else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_TOKENS:
        return None
    return value
