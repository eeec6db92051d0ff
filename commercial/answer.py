"""Reading the commercial API's answers: errors, whole documents, streams, and the token counts in them."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from weighbridge.commercial.errors import UpstreamFailed
from weighbridge.commercial.refusal_codes import known_word
from weighbridge.config.usage import TokenMeter

DONE = b"[DONE]"
_LONGEST_WAIT_S = 3600.0


# What servers send as an event that is none, to keep a connection open. It has no room for content.
_WORD = re.compile(rb"[A-Za-z _.:-]{0,64}")

_MOST_TOKENS = 1 << 24
"""No model reads or writes so many; a larger count is nonsense, not usage, and would be billed and held to be saved."""


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
    type: Any = None


class _Refusal(msgspec.Struct):
    error: _Problem | None = None


_chunks = msgspec.json.Decoder(_Chunk)
_documents = msgspec.json.Decoder(_Document)
_refusals = msgspec.json.Decoder(_Refusal)


def error_code(body: bytes | None) -> str | None:
    """The `error.code` of an error document or else its `error.type`: the first that is a word we know."""
    try:
        refusal = _refusals.decode(body or b"")
    except (msgspec.MsgspecError, RecursionError):
        return None
    return None if refusal.error is None else known_word(refusal.error.code, refusal.error.type)


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
    """Follows a stream of chunks: counts, and knows whether the answer has begun and whether it is whole.

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
        self._half = b""
        self.begun = False
        """Whether content has come."""
        self.counted = False
        """Whether the chunk of the provider's own count has come, which is the last one."""

    def take(self, event: bytes) -> bytes | None:
        """Read one event.

        What is no chunk is mended where nothing of the answer can be lost by it: a chunk that came in two events is
        put together, and a bare word is passed over.

        Returns:
            The chunk; None where this event is none, or is the first half of one.

        Raises:
            UpstreamFailed: malformed, or status for an error event.
        """
        whole = self._half + event
        try:
            chunk = _chunks.decode(whole)
        except RecursionError:
            raise UpstreamFailed("malformed") from None
        except msgspec.MsgspecError as exc:
            if self._half or not self._passes(event, str(exc)):
                raise UpstreamFailed("malformed") from None
            return None
        self._half = b""
        if chunk.error is not None:
            raise UpstreamFailed("status")
        if chunk.choices is msgspec.UNSET and chunk.usage is None:
            # Neither content nor usage: some servers report a failure in a shape of their own.
            raise UpstreamFailed("status")
        choices = chunk.choices or []
        self._seen.update(choice.index or 0 for choice in choices)
        self._finished.update(choice.index or 0 for choice in choices if choice.finish_reason is not None)
        has_content = any(map(_has_content, choices))
        self.begun = self.begun or has_content or bool(self._finished)
        if isinstance(chunk.usage, dict) and chunk.usage:
            _count(chunk.usage, self._meter)
            self.counted = self.counted or (not choices and self.finished)
        elif has_content:
            self._meter.completion += 1
            self._meter.exact = False
        # Data that came in several lines: outside of strings, where JSON allows none, a line end is a blank.
        return whole.replace(b"\n", b" ") if b"\n" in whole else whole

    def _passes(self, event: bytes, why: str) -> bool:
        """Whether an event that is no JSON does no harm. Its first half is kept for the next one."""
        if "truncated" in why and event.lstrip().startswith(b"{"):
            self._half = event
            return True
        return _WORD.fullmatch(event) is not None

    @property
    def whole(self) -> bool:
        """Whether every choice that came has ended; with `[DONE]` that is a whole answer."""
        return not self._half and bool(self._seen) and self._seen == self._finished

    @property
    def finished(self) -> bool:
        """Whether every choice that was asked for has ended; that is a whole answer without `[DONE]` too."""
        return not self._half and len(self._finished) >= self._choices


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
