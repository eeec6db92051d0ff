"""Reading the answers of an OpenAI-compatible server: documents, streams, token counts, refusals."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from weighbridge.config.errors import ApiError, ContextLengthExceeded, InvalidRequest
from weighbridge.config.usage import TokenMeter
from weighbridge.pool.engine import Confidence, EngineOverloaded, EngineUnavailable

DONE: Final = b"[DONE]"
NOT_A_STREAM: Final = ("application/json", "text/html")

_BROKEN_OFF: Final = frozenset({"abort", "error"})
"""Finish reasons of an answer that was given up."""
_CONTENT: Final = (
    "content",
    "reasoning",
    "reasoning_content",
    "refusal",
    "tool_calls",
    "function_call",
)
_MOST_TOKENS: Final = 1 << 24
"""A larger count is nonsense, not usage."""

# A word from a program, not a sentence and not a number: nothing of the request can hide in it.
_PLAIN_WORD: Final = re.compile(r"[a-z](?:[a-z_]{0,62}[a-z])?")
_FULL: Final = frozenset({"engine_overloaded", "overloaded", "queue_full", "queue_lock_timeout"})
_VLLM_FULL: Final = "Service Unavailable"
"""vLLM's `type` when its own queue is full. An engine that failed is a `ServiceUnavailableError`."""
_TOO_LONG: Final = re.compile(r"maximum context length|longer than the maximum model length")
_NO_ROOM: Final = "must be at least 1, got 0"


class Broken(Exception):
    """What came is no answer."""


class Tally:
    """Writes what one call used onto a meter that may hold earlier work already.

    Args:
        window: the model's context window in tokens; a server that tells of more has told no counts.
        choices: how many answers were asked for.
    """

    def __init__(self, meter: TokenMeter, window: int = _MOST_TOKENS, choices: int = 1) -> None:
        self._meter = meter
        self._window = window
        self._most_made = window * choices
        self._before = (meter.prompt, meter.completion, meter.cached, meter.exact)

    def unknown(self) -> None:
        """The server has the request: from here it may make tokens that only its usage can tell."""
        self._meter.exact = False

    def nothing(self) -> None:
        """The server has done no work."""
        self._meter.prompt, self._meter.completion, self._meter.cached, self._meter.exact = self._before

    def one_more(self) -> None:
        """An event with content, which is one token at least."""
        self._meter.completion += 1

    def take(self, usage: Any, *, final: bool, completion: bool = True) -> bool:
        """Take over the server's counts.

        Args:
            final: nothing will be made after them.
            completion: whether its completion count holds for the whole call.

        Returns:
            Whether they are counts.
        """
        prompt, made = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        if prompt is None or made is None or prompt > self._window or made > self._most_made:
            return False
        meter, (old_prompt, old_made, old_cached, old_exact) = self._meter, self._before
        meter.prompt = old_prompt + prompt
        if completion:
            meter.completion = old_made + made
        cached = _count(usage.get("prompt_tokens_details"), "cached_tokens") or 0
        if cached or final:
            meter.cached = old_cached + min(cached, prompt)
        if final:
            meter.exact = old_exact
        return True


class Renamed:
    """The names an answer carries here: our id and our road."""

    def __init__(self, request_id: str, road: str) -> None:
        self._names = {"id": f"chatcmpl-{request_id}", "model": road}

    def encode(self, document: dict[str, Any]) -> bytes:
        document.update(self._names)
        return msgspec.json.encode(document)


class Sureness:
    """Reads how sure the model was, and keeps from the caller what only we have asked for.

    Args:
        confidence: gets the log-probabilities.
        shown: the caller has asked for them too.
    """

    def __init__(self, confidence: Confidence, shown: bool) -> None:
        self._confidence = confidence
        self._shown = shown

    def take(self, choice: dict[str, Any]) -> None:
        """Read a choice of a document or of a chunk; it holds what the caller may see afterwards."""
        logprobs = choice.get("logprobs")
        tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
        for token in tokens if isinstance(tokens, list) else ():
            value = token.get("logprob") if isinstance(token, dict) else None
            if isinstance(value, int | float):
                self._confidence.total += value
                self._confidence.tokens += 1
        if not self._shown and logprobs is not None:
            choice["logprobs"] = None


def _broken_off(reason: Any) -> bool:
    return reason is not None and (not isinstance(reason, str) or reason in _BROKEN_OFF)


def read_document(body: bytes, names: Renamed, tally: Tally, sureness: Sureness | None = None) -> bytes:
    """A whole answer under our names; its tokens are counted.

    Raises:
        Broken: it is not a finished answer.
    """
    document = decode(body)
    choices = document.get("choices")
    if document.get("error") is not None or not isinstance(choices, list) or not choices:
        raise Broken
    for choice in choices:
        if not isinstance(choice, dict) or _broken_off(choice.get("finish_reason")):
            raise Broken
        if sureness is not None:
            sureness.take(choice)
    tally.take(document.get("usage"), final=True)
    return names.encode(document)


class StreamReader:
    """Follows a stream of chunks: counts, renames, and knows whether the answer is whole.

    Args:
        body: what was asked for by the caller.
    """

    def __init__(
        self, body: dict[str, Any], names: Renamed, tally: Tally, sureness: Sureness | None = None
    ) -> None:
        options = body.get("stream_options")
        asked = options if isinstance(options, dict) else {}
        self._usage_wanted = bool(asked.get("include_usage"))
        self._every_usage_wanted = self._usage_wanted and bool(asked.get("continuous_usage_stats"))
        n = body.get("n")
        self._choices = n if isinstance(n, int) and n > 0 else 1
        self._names = names
        self._tally = tally
        self._sureness = sureness
        self._counted = False
        self.done = False
        """`[DONE]` has come."""
        self._seen: set[int] = set()
        self._finished: set[int] = set()

    def take_all(self, events: Iterable[bytes]) -> tuple[bytes, Broken | None]:
        """Read the data of events that came at once, up to `[DONE]`, which sets `done`.

        Returns:
            The events to hand on in one piece, and what was wrong with the one after them.
        """
        made: list[bytes] = []
        fault: Broken | None = None
        try:
            for event in events:
                if event.strip() == DONE:
                    self.done = True
                    break
                shown = self.take(event)
                if shown is not None:
                    made.append(shown)
        except Broken as exc:
            fault = exc
        return made[0] if len(made) == 1 else b"".join(made), fault

    def take(self, event: bytes) -> bytes | None:
        """Read the data of one event; gives the event to hand on, if it is the caller's to see.

        Raises:
            Broken: it is an error, or nothing known.
        """
        chunk = decode(event)
        choices = chunk.get("choices")
        if chunk.get("error") is not None or not isinstance(choices, list | None):
            raise Broken
        if not choices:
            return self._take_usage(chunk)
        content = False
        for choice in choices:
            content = self._take_choice(choice) or content
        # vLLM counts for one choice at a time.
        if self._tally.take(chunk.get("usage"), final=False, completion=self._choices == 1):
            self._counted = self._choices == 1
        if content and not self._counted:
            self._tally.one_more()
        if not self._every_usage_wanted:
            chunk.pop("usage", None)
        return self._event(chunk)

    @property
    def whole(self) -> bool:
        """Whether every choice that came has ended; with `[DONE]` that is a whole answer."""
        return bool(self._seen) and self._seen == self._finished

    @property
    def finished(self) -> bool:
        """Whether every choice that was asked for has ended; that is a whole answer without `[DONE]` too."""
        return len(self._finished) >= self._choices

    def _take_usage(self, chunk: dict[str, Any]) -> bytes | None:
        if self._tally.take(chunk.get("usage"), final=True):
            return self._event(chunk) if self._usage_wanted else None
        if "choices" not in chunk:
            # Neither content nor usage: some servers report a failure in a shape of their own.
            raise Broken
        return None

    def _take_choice(self, choice: Any) -> bool:
        """Whether the choice has content."""
        if not isinstance(choice, dict) or not isinstance(choice.get("index", 0), int):
            raise Broken
        index, reason, delta = choice.get("index", 0), choice.get("finish_reason"), choice.get("delta")
        if _broken_off(reason):
            raise Broken
        self._seen.add(index)
        if reason is not None:
            self._finished.add(index)
        if self._sureness is not None:
            self._sureness.take(choice)
        if not isinstance(delta, dict):
            return False
        return bool(delta.get("content")) or any([delta.get(name) for name in _CONTENT])

    def _event(self, chunk: dict[str, Any]) -> bytes:
        return b"data: " + self._names.encode(chunk) + b"\n\n"


def refusal(status: int, body: bytes, sent: dict[str, Any], window: int) -> ApiError:
    """What the caller is told about a status other than 200. The server's own sentence is dropped: it may quote.

    Args:
        body: of the answer.
        sent: the request, to tell a limit of the caller's from one the server made of it.
        window: the tier's context window in tokens.
    """
    error = _error(body)
    code, param = _plain(error.get("code")), _plain(error.get("param"))
    if status == 429 or (status == 503 and (code in _FULL or error.get("type") == _VLLM_FULL)):
        return EngineOverloaded()
    if status not in (400, 413, 422) or code in ("model_not_found", "invalid_model"):
        return EngineUnavailable()
    if code == "context_length_exceeded" or _too_long(error, param, sent):
        return ContextLengthExceeded(None, window)
    if status == 413:
        return InvalidRequest(
            "The request is too large for the server of this model.", code=code, param=param
        )
    if param is None:
        return InvalidRequest("The request is not valid for this model.", code=code)
    return InvalidRequest(f"The value of {param} is not valid for this model.", code=code, param=param)


def decode(body: bytes) -> dict[str, Any]:
    """Raises: Broken: not a JSON object."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Broken
    return value


def _error(body: bytes) -> dict[str, Any]:
    try:
        error = decode(body).get("error")
    except Broken:
        error = None
    return error if isinstance(error, dict) else {}


def _too_long(error: dict[str, Any], param: str | None, sent: dict[str, Any]) -> bool:
    """vLLM gives no word for a prompt that is too long, only a sentence and the name of what was measured."""
    message = error.get("message")
    if param in ("input_tokens", "input_text"):
        return True
    if not isinstance(message, str):
        return False
    asked = sent.get("max_completion_tokens") or sent.get("max_tokens")
    if param in ("max_tokens", "max_completion_tokens"):
        # It had cut the limit down to what the prompt leaves over: nothing.
        return _NO_ROOM in message and (asked is None or (isinstance(asked, int) and asked >= 1))
    return param is None and _TOO_LONG.search(message) is not None


def _plain(word: Any) -> str | None:
    return word if isinstance(word, str) and _PLAIN_WORD.fullmatch(word) else None


def _count(counts: Any, name: str) -> int | None:
    value = counts.get(name) if isinstance(counts, dict) else None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_TOKENS:
        return None
    return value
