"""An engine whose answers a test writes down, a token a word."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.fake_engine import FakeEngine, Script, _Running
from weighbridge.pool.engine import EngineCall

PROMPT_TOKENS = 7


@dataclass(frozen=True)
class Say:
    """One answer: its text, its tool calls as (name, arguments), why it ended, and how sure the model was."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str = "stop"
    logprob: float = -0.1

    @property
    def words(self) -> list[str]:
        return re.findall(r"\S*\s*", self.text)[:-1] or [""]


class Saying(FakeEngine):
    """Gives `answers` one after the other, and the last one for ever. Its script's delays, gates and faults hold."""

    def __init__(self, *answers: Say | str, road: str = "local-8b", script: Script | None = None) -> None:
        super().__init__(road, script=script)
        self._answers = [Say(answer) if isinstance(answer, str) else answer for answer in answers]

    async def complete(self, call: EngineCall) -> bytes:
        say = self._take()
        async for _ in self._words(call, say):
            pass
        message: dict[str, Any] = {"role": "assistant", "content": None if say.calls else say.text}
        if say.calls:
            message["tool_calls"] = _calls(say.calls)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": say.finish}
        usage = self._usage(call, call.meter.prompt, call.meter.completion)
        return json.dumps(self._frame(call, "chat.completion", 1, [choice], usage=usage)).encode()

    async def stream(self, call: EngineCall) -> AsyncGenerator[bytes, None]:
        say = self._take()
        yield self._event(call, {"role": "assistant", "content": ""})
        words = 0
        async for word in self._words(call, say):
            words += 1
            finish = say.finish if words == len(say.words) and not say.calls else None
            yield self._event(call, {"content": word}, finish)
        if say.calls:
            yield self._event(call, {"tool_calls": _calls(say.calls)}, say.finish)

    def _take(self) -> Say:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    async def _words(self, call: EngineCall, say: Say) -> AsyncGenerator[str, None]:
        self._require_alive()
        if self.script.fail_with is not None:
            raise self.script.fail_with
        self.calls.append(call)
        call.meter.prompt += PROMPT_TOKENS
        running = self._running[call.request_id] = _Running()
        try:
            await self._pause(running, self.script.first_token_s, self.script.first_gate)
            for n, word in enumerate(say.words):
                if n:
                    await self._pause(running, self.script.token_s, self.script.token_gate)
                call.meter.completion += 1
                self._made += 1
                if call.confidence is not None:
                    call.confidence.total += say.logprob
                    call.confidence.tokens += 1
                yield word
        finally:
            del self._running[call.request_id]
            await asyncio.sleep(0)

    def _event(self, call: EngineCall, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        frame = self._frame(call, "chat.completion.chunk", 1, [choice])
        return b"data: " + json.dumps(frame).encode() + b"\n\n"


def _calls(calls: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {
            "index": n,
            "id": f"call-{n}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for n, (name, arguments) in enumerate(calls)
    ]
