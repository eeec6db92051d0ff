"""The small questions to a server of a tier: which models it has, whether it lives, how many tokens a prompt is."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from weighbridge.pool.engine import EngineStartFailed
from weighbridge.pool.http_answer import Broken, decode
from weighbridge.pool.http_exchange import Exchange, ExchangeLost, ask

log = logging.getLogger("weighbridge.pool")

_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_MODELS_S: Final = 10.0
_TOKENIZE_S: Final = 5.0
"""Seconds for a count; a request waits for it."""
_LONGEST_TOKEN_BYTES: Final = 128
"""Bytes of text in the longest tokens of today's vocabularies."""
_TOKENIZED: Final = (
    "messages",
    "tools",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
)
"""What of a request decides about its prompt, under the names of vLLM's `/tokenize`."""
_NOT_OFFERED: Final = frozenset({401, 403, 404, 405, 501})


class _Counted(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0, le=1 << 32)]


_counted: Final = msgspec.json.Decoder(_Counted).decode


class Questions:
    """Asks one server.

    Args:
        road: the tier's name.
        url: its base URL, with `/v1`.
        model: the model that is wanted of it.
        exchange: makes an exchange for one question.
    """

    def __init__(self, road: str, url: str, model: str, exchange: Callable[[], Exchange]) -> None:
        self._road = road
        self._url = url
        self._model = model
        self._exchange = exchange
        base = url.removesuffix("/v1")
        # vLLM, this gateway, and whatever else speaks the protocol.
        self._health = [f"{base}/health", f"{base}/health/live", f"{url}/models"]
        self._tokenize: str | None = f"{base}/tokenize"
        self.window: int | None = None
        """The model's context window in tokens as the server states it; None where it does not."""

    async def until_ready(self, closed: asyncio.Event, window: int) -> None:
        """Wait until the server has our model; it may be booting.

        Args:
            closed: set when the wait is over for good.
            window: tokens it should take; where it says that it takes fewer, the log does too.

        Raises:
            EngineStartFailed: `closed` was set, or what is missing will not come by waiting.
        """
        pause_s, told = _FIRST_PAUSE_S, ""
        while (why := await self.why_not_ready()) is not None:
            if why != told:
                log.info("%s: waiting for %s: %s", self._road, self._url, why)
                told = why
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await closed.wait()
            if closed.is_set():
                raise EngineStartFailed("closed while it was loading")
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        if self.window is not None and self.window < window:
            log.warning(
                "%s: %s serves %d tokens, fewer than tiers.%s.max_model_len (%d)",
                self._road,
                self._url,
                self.window,
                self._road,
                window,
            )

    async def why_not_ready(self) -> str | None:
        """None once the server has our model; else what is missing as yet, in words.

        Raises:
            EngineStartFailed: what is missing will not come by waiting.
        """
        try:
            status, body = await ask(self._exchange(), "GET", f"{self._url}/models", None, _MODELS_S)
        except ExchangeLost as lost:
            if lost.kind == "address":
                raise EngineStartFailed(
                    f"tiers.{self._road}.endpoints: the host of {self._url} leads outside the private network; name it "
                    f"in tiers.{self._road}.trusted_endpoints if it may get raw text"
                ) from None
            return f"no answer ({lost.kind})"
        if status in (401, 403):
            raise EngineStartFailed(
                f"{self._url} refuses our key (HTTP {status}): tiers.{self._road}.endpoint_api_key_file"
            )
        if 300 <= status < 400:
            raise EngineStartFailed(
                f"{self._url} answers with a redirect, which is not followed: tiers.{self._road}.endpoints"
            )
        if status != 200:
            return f"/models answers HTTP {status}"
        return self._why_not_among(body)

    def _why_not_among(self, body: bytes) -> str | None:
        try:
            listed = decode(body).get("data")
        except Broken:
            return "/models answers with something else"
        named = {
            entry["id"]: entry
            for entry in (listed if isinstance(listed, list) else ())
            if isinstance(entry, dict) and isinstance(entry.get("id"), str)
        }
        if not named:
            return None
        entry = named.get(self._model)
        if entry is None:
            raise EngineStartFailed(
                f"{self._url} has no model {self._model}: tiers.{self._road}.endpoint_model must be one of its names"
            )
        about = entry.get("weighbridge")
        about = about if isinstance(about, dict) else {}
        window = entry.get("max_model_len", about.get("max_model_len"))
        self.window = window if isinstance(window, int) else None
        return f"its {self._model} is not ready yet" if about.get("ready") is False else None

    async def healthy(self, limit_s: float) -> bool:
        """Whether it answers 200 at the address of its health within `limit_s` seconds.

        Raises:
            ExchangeLost: no answer.
        """
        for address in tuple(self._health):
            status, _ = await ask(self._exchange(), "GET", address, None, limit_s)
            if status == 200:
                self._health.remove(address)
                self._health.insert(0, address)
                return True
            if status not in (404, 405):
                return False
        return False

    async def prompt_tokens(self, prepared: dict[str, Any]) -> int | None:
        """Tokens of the prompt, counted by the server; None where it does not count. A server that has no such address
        is not asked again."""
        if self._tokenize is None:
            return None
        question = {name: prepared[name] for name in _TOKENIZED if prepared.get(name) is not None}
        body = msgspec.json.encode({"model": prepared["model"], **question})
        try:
            status, answer = await ask(self._exchange(), "POST", self._tokenize, body, _TOKENIZE_S)
            if status in _NOT_OFFERED:
                self._tokenize = None
            # The answer holds every token's id as well, which nobody needs.
            count = _counted(answer).count if status == 200 else None
        except (ExchangeLost, Broken, msgspec.MsgspecError, ValueError):
            return None
        return count


def fewest_tokens(messages: list[Any]) -> int:
    """A bound from below on the prompt's tokens, from the length of its text: what fits a window is never over it.

    Blanks are left out, since templates trim and tokens hold many of them, and so is what the assistant said, of which
    templates drop parts. So this finds only what is far too long; the server itself refuses the rest.
    """
    size = 0
    for message in messages:
        if not isinstance(message, dict) or message.get("role") == "assistant":
            continue
        content = message.get("content")
        for part in content if isinstance(content, list) else (content,):
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                size += sum(len(word.encode("utf-8", "ignore")) for word in text.split())
    return max(1, -(-size // _LONGEST_TOKEN_BYTES))
