"""An engine for tests behind the `Engine` port: no model, no process, every delay and every fault scripted.

The next token is a hash of the prompt and the tokens before it, so the same prompt always gets the same answer,
whatever runs beside it and wherever it is continued.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.support.fake_tokens import VOCABULARY, Text, make_ids
from weighbridge.config.errors import ApiError, ContextLengthExceeded, InvalidRequest
from weighbridge.pool.continuation import continues, usable_trail
from weighbridge.pool.engine import (
    EngineCall,
    EngineLoad,
    EngineOverloaded,
    EngineStartFailed,
    EngineUnavailable,
    Trail,
)
from weighbridge.pool.engine_body import for_engine

DEFAULT_TOKENS = 16
LOGPROB = -0.5
"""Of every token."""


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
    """Die once one call has made so many tokens itself and handed them over; 0 dies before the first."""
    tool_call_after: int | None = None
    """Where the body has tools, begin a call of the first one after so many tokens of a streamed answer; the others
    are its arguments."""
    overloaded: bool = False
    fail_with: Exception | None = None
    """Raised for every call, before its first token."""


@dataclass
class _Running:
    aborted: asyncio.Event = field(default_factory=asyncio.Event)
    queued_tokens: int = 0


class _Made(NamedTuple):
    """One token of one choice, and the text that may go out with it."""

    choice: int
    token: int | None
    """None where no token was left to make."""
    text: str
    reason: str | None
    count: int
    """Tokens of the choice so far, this one included."""


class FakeEngine:
    """One call makes its tokens choice by choice, one at a time.

    Args:
        road: comes back as the answers' `model`.
        max_model_len: the window, in tokens of four characters of the rendered messages.
        kv_tokens: what it says of its KV cache.
        adapters: names it answers under as well, each in its own words.
    """

    def __init__(
        self,
        road: str = "local-8b",
        *,
        max_model_len: int = 2048,
        script: Script | None = None,
        kv_tokens: int | None = None,
        adapters: Collection[str] = (),
    ) -> None:
        self.road = road
        self.max_model_len = max_model_len
        self.kv_tokens = kv_tokens
        self.adapters = adapters
        self.script = script or Script()
        self.created = 1_700_000_000
        """What its answers say of when they were made."""
        self.started = False
        self.warmed = False
        self.closed = False
        self.calls: list[EngineCall] = []
        """Every call that was taken, in order."""
        self._death = asyncio.Event()
        self._made = 0
        self._running: dict[str, _Running] = {}
        self._seen: set[str] = set()

    @property
    def alive(self) -> bool:
        return not self.closed and not self._death.is_set()

    def kill(self) -> None:
        """Die now: every call fails."""
        self._death.set()
        for running in self._running.values():
            running.aborted.set()

    async def died(self) -> None:
        await self._death.wait()

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
        body = for_engine(
            call.body, model=self._model(call.adapter), request_id=call.request_id, stream=False
        )
        texts: dict[int, str] = {}
        reasons: dict[int, str] = {}
        tokens: dict[int, list[int]] = {}
        async with aclosing(self._make(call, body, None)) as made:
            async for one in made:
                texts[one.choice] = texts.get(one.choice, "") + one.text
                if one.token is not None:
                    tokens.setdefault(one.choice, []).append(one.token)
                if one.reason is not None:
                    reasons[one.choice] = one.reason
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": texts[index]},
                "logprobs": _logprobs(tokens[index]) if body.get("logprobs") else None,
                "finish_reason": reasons[index],
            }
            for index in sorted(reasons)
        ]
        usage = self._usage(call, call.meter.prompt, call.meter.completion)
        return _json(self._frame(call, "chat.completion", self.created, choices, usage=usage))

    async def stream(self, call: EngineCall) -> AsyncGenerator[bytes, None]:
        body = for_engine(call.body, model=self._model(call.adapter), request_id=call.request_id, stream=True)
        trail = usable_trail(call)
        going_on = continues(trail)
        if trail is None:
            trail = Trail()
        created = trail.created or self.created
        began: set[int] = {0} if going_on else set()
        counts: dict[int, int] = {}

        def event(index: int, delta: dict[str, Any], reason: str | None, logprobs: Any = None) -> bytes:
            choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
            return _sse(self._frame(call, "chat.completion.chunk", created, [choice]))

        async with aclosing(self._make(call, body, trail)) as made:
            async for one in made:
                trail.created = created
                if one.choice not in began:
                    began.add(one.choice)
                    yield event(one.choice, {"role": "assistant", "content": ""}, None)
                counts[one.choice] = one.count
                new = [] if one.token is None else [one.token]
                called = self._calls_tool(body, one.count)
                delta = _tool_call(body, one.text) if called else {"content": one.text}
                trail.token_ids += new
                trail.text_chars += 0 if called else len(one.text)
                trail.lost = trail.lost or called
                reason = "tool_calls" if called and one.reason == "stop" else one.reason
                yield event(one.choice, delta, reason, _logprobs(new) if body.get("logprobs") else None)
        options = body.get("stream_options")
        if isinstance(options, dict) and options.get("include_usage"):
            usage = self._usage(call, trail.prompt_tokens, sum(counts.values()))
            yield _sse(self._frame(call, "chat.completion.chunk", created, [], usage=usage))

    async def abort(self, request_id: str) -> None:
        running = self._running.get(request_id)
        if running is not None:
            running.aborted.set()

    def load(self) -> EngineLoad:
        queued = sum(running.queued_tokens for running in self._running.values())
        return EngineLoad(len(self._running), queued, self._made)

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
        self, call: EngineCall, body: dict[str, Any], trail: Trail | None
    ) -> AsyncGenerator[_Made, None]:
        """Tokens of an answer; those of a `trail` were made before."""
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
        before: list[int] = []
        text = Text(stops)
        if trail is not None:
            trail.prompt_tokens = _tokens(prompt)
            before = list(trail.token_ids)
            text = Text(stops, trail.text_chars)
            for token in before:
                text.add(token)
            if text.stopped or len(before) >= limit:
                reason = "stop" if text.stopped else "length"
                yield _Made(0, None, text.release(whole=True), reason, len(before))
                return
        running = self._running[call.request_id] = _Running(queued_tokens=_tokens(prompt) + len(before))
        call.meter.prompt += _tokens(prompt) + len(before)
        made = 0
        try:
            await self._pause(running, self.script.first_token_s, self.script.first_gate)
            running.queued_tokens = 0
            # Whole blocks of a prompt that was seen before are cached, as a prefix cache has them.
            if prompt in self._seen:
                call.meter.cached += _tokens(prompt) // 16 * 16
            self._seen.add(prompt)
            for choice in range(n):
                if choice:
                    text = Text(stops)
                ids = make_ids(f"{prompt}|{body.get('seed')}|{choice}", before)
                for count, token in enumerate(ids, start=len(before) + 1):
                    if made:
                        await self._pause(running, self.script.token_s, self.script.token_gate)
                    self._die_when_told(made)
                    call.meter.completion += 1
                    if call.confidence is not None:
                        call.confidence.total += LOGPROB
                        call.confidence.tokens += 1
                    self._made += 1
                    made += 1
                    text.add(token)
                    reason = "stop" if text.stopped else "length" if count == limit else None
                    yield _Made(choice, token, text.release(whole=reason is not None), reason, count)
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

    def _model(self, adapter: str | None) -> str:
        if adapter is None:
            return self.road
        if adapter not in self.adapters:
            raise ApiError(
                404, "There is no such adapter.", type="invalid_request_error", code="model_not_found"
            )
        return adapter

    def _prompt(self, body: dict[str, Any]) -> str:
        adapter = [] if body["model"] == self.road else [body["model"]]
        return json.dumps([body["messages"], body.get("tools"), *adapter], ensure_ascii=False)

    def _calls_tool(self, body: dict[str, Any], count: int) -> bool:
        after = self.script.tool_call_after
        return after is not None and count > after and bool(body.get("tools"))

    # -- wire format

    def _frame(
        self, call: EngineCall, kind: str, created: int, choices: list[Any], **more: Any
    ) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{call.request_id}",
            "object": kind,
            "created": created,
            "model": self._model(call.adapter),
            "choices": choices,
            **more,
        }

    def _usage(self, call: EngineCall, prompt: int, completion: int) -> dict[str, Any]:
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": call.meter.cached},
        }


def _tool_call(body: dict[str, Any], arguments: str) -> dict[str, Any]:
    function = {"name": body["tools"][0]["function"]["name"], "arguments": arguments}
    return {"tool_calls": [{"index": 0, "id": "call-0", "type": "function", "function": function}]}


def _tokens(text: str) -> int:
    return max(1, len(text) // 4)


def _logprobs(tokens: list[int]) -> dict[str, Any]:
    return {
        "content": [
            {
                "token": VOCABULARY[token].decode("utf-8", "replace"),
                "logprob": LOGPROB,
                "bytes": list(VOCABULARY[token]),
                "top_logprobs": [],
            }
            for token in tokens
        ]
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _sse(value: Any) -> bytes:
    return b"data: " + _json(value) + b"\n\n"
