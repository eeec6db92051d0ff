"""An engine for tests behind the `Engine` port: no model, no process, every delay and every fault scripted.

The next token is a hash of all before it, so the same prompt always gets the same answer, whatever runs beside it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from weighbridge.config.errors import ContextLengthExceeded, InvalidRequest
from weighbridge.pool.engine import (
    EngineCall,
    EngineLoad,
    EngineOverloaded,
    EngineStartFailed,
    EngineUnavailable,
)
from weighbridge.pool.engine_body import for_engine

WORDS = (
    "ab",
    "oak",
    "river",
    "stone",
    "one",
    "two",
    "blue",
    "가람",
    "나무",
    "late",
    "soft",
    "iron",
    "day",
    "sky",
    "to",
    "it",
)
"""Tokens; each stands in the text after a blank."""

DEFAULT_TOKENS = 16


@dataclass
class Script:
    """How a `FakeEngine` behaves; may be changed while it runs.

    Delays are seconds of the event loop. A gate, where there is one, is waited for as well.
    """

    start_s: float = 0.0
    start_error: Exception | None = None
    first_token_s: float = 0.0
    token_s: float = 0.0
    first_gate: asyncio.Event | None = None
    token_gate: asyncio.Semaphore | None = None
    """Acquired once before every token after the first."""
    hang: bool = False
    """Make no more tokens and answer no probe."""
    die_after: int | None = None
    """Die once a call has made so many tokens; 0 dies before the first."""
    overloaded: bool = False
    fail_with: Exception | None = None
    """Raised for every call, before its first token."""


@dataclass
class _Running:
    aborted: asyncio.Event = field(default_factory=asyncio.Event)
    queued_tokens: int = 0


class FakeEngine:
    """One call makes its tokens choice by choice, one at a time.

    Args:
        road: comes back as the answers' `model`.
        max_model_len: the window, in tokens of four characters of the rendered messages.
    """

    def __init__(
        self, road: str = "local-8b", *, max_model_len: int = 2048, script: Script | None = None
    ) -> None:
        self.road = road
        self.max_model_len = max_model_len
        self.script = script or Script()
        self.started = False
        self.warmed = False
        self.closed = False
        self.died = asyncio.Event()
        self.calls: list[EngineCall] = []
        """Every call that was taken, in order."""
        self._running: dict[str, _Running] = {}
        self._seen: set[str] = set()

    @property
    def alive(self) -> bool:
        return not self.closed and not self.died.is_set()

    def kill(self) -> None:
        """Die now: every call fails."""
        self.died.set()
        for running in self._running.values():
            running.aborted.set()

    async def start(self) -> None:
        await asyncio.sleep(self.script.start_s)
        if self.script.start_error is not None:
            raise self.script.start_error
        if self.closed:
            raise EngineStartFailed("closed while it was loading")
        self.started = True

    async def warm(self) -> None:
        self.warmed = True

    async def count_tokens(self, body: dict[str, Any]) -> int:
        self._require_alive()
        prompt = self._prompt(for_engine(body, model=self.road, request_id="count", stream=False))
        if _tokens(prompt) >= self.max_model_len:
            raise ContextLengthExceeded(_tokens(prompt), self.max_model_len)
        return _tokens(prompt)

    async def complete(self, call: EngineCall) -> bytes:
        body = for_engine(call.body, model=self.road, request_id=call.request_id, stream=False)
        texts: dict[int, str] = {}
        reasons: dict[int, str] = {}
        tokens: dict[int, list[str]] = {}
        async with aclosing(self._make(call, body)) as made:
            async for index, text, reason in made:
                texts[index] = texts.get(index, "") + text
                if text:
                    tokens.setdefault(index, []).append(text)
                if reason is not None:
                    reasons[index] = reason
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": texts.get(index, "")},
                "logprobs": _logprobs(tokens.get(index, [])) if body.get("logprobs") else None,
                "finish_reason": reasons[index],
            }
            for index in sorted(reasons)
        ]
        return _json(self._frame(call, "chat.completion", choices, usage=self._usage(call)))

    async def stream(self, call: EngineCall) -> AsyncGenerator[bytes, None]:
        body = for_engine(call.body, model=self.road, request_id=call.request_id, stream=True)
        began: set[int] = set()
        async with aclosing(self._make(call, body)) as made:
            async for index, text, reason in made:
                if index not in began:
                    began.add(index)
                    yield self._event(call, index, {"role": "assistant", "content": ""}, None)
                if text or reason:
                    yield self._event(call, index, {"content": text} if text else {}, reason)
        options = body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            yield _sse(self._frame(call, "chat.completion.chunk", [], usage=self._usage(call)))

    async def abort(self, request_id: str) -> None:
        running = self._running.get(request_id)
        if running is not None:
            running.aborted.set()

    def load(self) -> EngineLoad:
        return EngineLoad(
            len(self._running), sum(running.queued_tokens for running in self._running.values())
        )

    async def probe(self, timeout_s: float) -> bool:
        if self.script.hang:
            await asyncio.sleep(timeout_s)
            return False
        return self.alive and self.started

    async def close(self, grace_s: float) -> None:
        self.closed = True
        for running in self._running.values():
            running.aborted.set()
        while self._running:
            await asyncio.sleep(0)

    # -- making tokens

    async def _make(
        self, call: EngineCall, body: dict[str, Any]
    ) -> AsyncGenerator[tuple[int, str, str | None], None]:
        """Tuples of choice, text and, with the last text of a choice, its finish reason."""
        self._require_alive()
        n, limit, stops = self._checked(body)
        prompt = self._prompt(body)
        if _tokens(prompt) >= self.max_model_len:
            raise ContextLengthExceeded(_tokens(prompt), self.max_model_len)
        if self.script.overloaded:
            raise EngineOverloaded
        if self.script.fail_with is not None:
            raise self.script.fail_with
        limit = min(limit, self.max_model_len - _tokens(prompt))
        self.calls.append(call)
        running = self._running[call.request_id] = _Running(queued_tokens=_tokens(prompt))
        call.meter.prompt += _tokens(prompt)
        made = 0
        try:
            await self._pause(running, self.script.first_token_s, self.script.first_gate)
            running.queued_tokens = 0
            # Whole blocks of a prompt that was seen before are cached, as a prefix cache has them.
            if prompt in self._seen:
                call.meter.cached += _tokens(prompt) // 16 * 16
            self._seen.add(prompt)
            held_back = max((len(stop) for stop in stops), default=1) - 1
            for choice in range(n):
                text, sent = "", 0
                for count, word in enumerate(_words(f"{prompt}|{body.get('seed')}|{choice}"), start=1):
                    if made:
                        await self._pause(running, self.script.token_s, self.script.token_gate)
                    self._die_when_told(made)
                    call.meter.completion += 1
                    made += 1
                    text += word
                    cut = min((at for stop in stops if (at := text.find(stop)) >= 0), default=None)
                    reason = "stop" if cut is not None else "length" if count == limit else None
                    # A stop text may be spread over tokens, so as much as could be its beginning stays here.
                    until = cut if cut is not None else len(text) - (0 if reason else held_back)
                    yield choice, text[sent:until], reason
                    sent = max(sent, until)
                    if reason is not None:
                        break
        finally:
            del self._running[call.request_id]

    async def _pause(
        self, running: _Running, seconds: float, gate: asyncio.Event | asyncio.Semaphore | None
    ) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            if isinstance(gate, asyncio.Event):
                await gate.wait()
            elif gate is not None:
                await gate.acquire()
            if self.script.hang:
                await asyncio.Event().wait()

        waiting = asyncio.ensure_future(wait())
        aborted = asyncio.ensure_future(running.aborted.wait())
        try:
            await asyncio.wait((waiting, aborted), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            aborted.cancel()
        if running.aborted.is_set():
            raise EngineUnavailable("The local model stopped before the answer was complete.")

    def _die_when_told(self, made: int) -> None:
        if self.script.die_after is not None and made >= self.script.die_after:
            self.kill()
        self._require_alive()

    def _require_alive(self) -> None:
        if not self.alive:
            raise EngineUnavailable

    def _checked(self, body: dict[str, Any]) -> tuple[int, int, list[str]]:
        n = body.get("n") or 1
        temperature = body.get("temperature")
        if n > 1 and temperature == 0:
            raise InvalidRequest("n must be 1 when using greedy sampling.", param="n")
        if temperature is not None and not 0 <= temperature <= 2:
            raise InvalidRequest("temperature must be in [0, 2].", param="temperature")
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or DEFAULT_TOKENS
        if limit > self.max_model_len:
            raise InvalidRequest("max_tokens is larger than the window.", param="max_tokens")
        stop = body.get("stop") or []
        return n, limit, [stop] if isinstance(stop, str) else stop

    def _prompt(self, body: dict[str, Any]) -> str:
        return json.dumps([body["messages"], body.get("tools")], ensure_ascii=False)

    # -- wire format

    def _event(self, call: EngineCall, index: int, delta: dict[str, Any], reason: str | None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _sse(self._frame(call, "chat.completion.chunk", [choice]))

    def _frame(self, call: EngineCall, kind: str, choices: list[Any], **more: Any) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{call.request_id}",
            "object": kind,
            "created": 1_700_000_000,
            "model": self.road,
            "choices": choices,
            **more,
        }

    def _usage(self, call: EngineCall) -> dict[str, Any]:
        meter = call.meter
        return {
            "prompt_tokens": meter.prompt,
            "completion_tokens": meter.completion,
            "total_tokens": meter.prompt + meter.completion,
            "prompt_tokens_details": {"cached_tokens": meter.cached},
        }


def _words(prefix: str) -> Iterator[str]:
    state = prefix.encode()
    while True:
        state = hashlib.sha256(state).digest()
        yield " " + WORDS[state[0] % len(WORDS)]


def _tokens(text: str) -> int:
    return max(1, len(text) // 4)


def _logprobs(tokens: list[str]) -> dict[str, Any]:
    return {
        "content": [
            {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": []}
            for token in tokens
        ]
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _sse(value: Any) -> bytes:
    return b"data: " + _json(value) + b"\n\n"
