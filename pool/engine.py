"""The port between the pool and whatever makes tokens.

Its implementations share a contract test: `pool.vllm_engine.VllmEngine`, `pool.http_engine.HttpEngine` as far as a
model on another machine allows, and, in the tests alone, the fake engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from weighbridge.config.errors import ApiError
from weighbridge.config.usage import TokenMeter


@dataclass(slots=True)
class Trail:
    """A streamed answer as far as it was handed over: what another engine of the same model needs to go on with it.

    The engine adds to it before it hands an event over, and only for a call that has one choice.
    """

    token_ids: list[int] = field(default_factory=list)
    """Ids of the answer's tokens so far; always ids, since text may be cut into other tokens the second time."""
    text_chars: int = 0
    """Characters of their text that were handed over. The last tokens may hold more: half a character, or what could be
    the beginning of a stop text."""
    prompt_tokens: int = 0
    """Tokens of the prompt alone."""
    created: int = 0
    """The `created` of the answer's events, seconds since 1970."""
    dropped: int = 0
    """Tokens that engines have taken off its end again, to make them anew."""
    lost: bool = False
    """Set by an engine when the answer cannot be continued from token ids: a tool call has begun, say."""


@dataclass(slots=True)
class Confidence:
    """How sure a model was of an answer. Written by the engine while the answer is made, like a meter."""

    total: float = 0.0
    """Sum of the natural log-probabilities of the answer's tokens, over all choices."""
    tokens: int = 0
    """How many tokens that is of."""

    @property
    def mean(self) -> float | None:
        """None while there is no token."""
        return self.total / self.tokens if self.tokens else None


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One request to an engine.

    Args:
        request_id: the id made at admission; the engine works under it too.
        body: an OpenAI chat-completions body, unknown fields included; `model` is replaced by the engine.
            Engines do not change it.
        meter: counts prompt, cached and completion tokens as they are made, over all choices.
        adapter: name of the LoRA adapter to answer with, one of the engine's; None is the model itself.
        trail: only for `stream`. An empty one is filled. One that is not empty makes the call a continuation: the
            stream begins with the next token, gives no event for the role, and ends as the whole answer would
            (`max_tokens` counts the tokens of the trail, usage is that of the whole answer). The meter gets what this
            engine did: the prompt with the trail's tokens, and the new tokens.
        confidence: where somebody asks how sure the model is; it costs the engine some work for every token, and what
            the caller sees of the answer stays the same. Not for a continuation.
        traceparent: the W3C header for an engine elsewhere; empty for none.
    """

    request_id: str
    body: dict[str, Any]
    meter: TokenMeter
    adapter: str | None = None
    trail: Trail | None = None
    confidence: Confidence | None = None
    traceparent: bytes = b""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What the engine itself counts at this moment (exact, local; not scraped)."""

    unfinished: int
    queued_tokens: int
    made: int = 0
    """Tokens handed over since the engine was started: where it stands still with work at hand, nothing moves."""


class EngineUnavailable(ApiError):
    """The engine is dead, closed or not there; another backend may serve."""

    def __init__(self, message: str = "The local model is not available at the moment.") -> None:
        super().__init__(503, message, type="server_error", code="engine_unavailable", retry_after_s=5)


class EngineStartFailed(Exception):
    """The engine did not come up. `str()` is one line without request text."""


class EngineOverloaded(ApiError):
    """The engine's own second wall refused the request; treated like a queue-lock timeout."""

    def __init__(self) -> None:
        super().__init__(
            429,
            "The local model is full.",
            type="rate_limit_error",
            code="engine_overloaded",
            retry_after_s=1,
        )


class Engine(Protocol):
    """One model held in memory. Cancelling a call or closing its iterator frees the engine at once."""

    @property
    def max_model_len(self) -> int:
        """The window in tokens, prompt and answer together."""
        ...

    @property
    def kv_tokens(self) -> int | None:
        """Tokens the engine's KV cache holds, once it is started; None where that is not known."""
        ...

    @property
    def alive(self) -> bool:
        """False once the engine has died or was closed. True before it is started; says nothing about hanging."""
        ...

    async def start(self) -> None:
        """Load the model. May take minutes; does not block the event loop. Cancelled, it leaves nothing running.

        Raises:
            ConfigError: the settings, the model folder or the installation are wrong.
            EngineStartFailed: the engine did not come up.
        """
        ...

    async def died(self) -> None:
        """Return once the engine has died by itself after it was started; `close` is no death. May be cancelled."""
        ...

    async def warm(self) -> None:
        """Run the features whose first call compiles something (plain, logprobs, JSON schema)."""
        ...

    async def count_tokens(self, body: dict[str, Any]) -> int:
        """Prompt tokens of `body` after the chat template.

        Raises:
            ContextLengthExceeded: the prompt alone does not fit the window.
            InvalidRequest: the body cannot be rendered.
        """
        ...

    async def complete(self, call: EngineCall) -> bytes:
        """The whole answer as one `chat.completion` JSON document.

        Raises:
            InvalidRequest, EngineOverloaded, EngineUnavailable.
        """
        ...

    def stream(self, call: EngineCall) -> AsyncIterator[bytes]:
        """The answer as complete Server-Sent Events, each `data: {...}\\n\\n`, without the final `[DONE]`; those that
        came at once come in one piece.

        The iterator ends normally only when the engine finished the answer; everything else raises. An error
        is never yielded as an event. `EngineUnavailable` after some events may be answered by another engine with the
        call's trail.
        """
        ...

    async def abort(self, request_id: str) -> None:
        """Stop the work for `request_id`; unknown ids are ignored."""
        ...

    def load(self) -> EngineLoad: ...

    async def probe(self, timeout_s: float) -> bool:
        """True when the engine's core answers within `timeout_s`; finds a core that hangs."""
        ...

    async def close(self, grace_s: float) -> None:
        """Abort what is in flight, then end every child process. Idempotent."""
        ...
