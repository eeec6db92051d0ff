"""Going on with a streamed answer on another engine: which answers can be, and what was handed over of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weighbridge.pool.engine import EngineCall, Trail

if TYPE_CHECKING:
    from weighbridge.pool.metering import Track

_STATEFUL: Final = (
    # The engine would count the tokens so far as prompt, where these look at the answer alone.
    "presence_penalty",
    "frequency_penalty",
    "bad_words",
    "repetition_detection",
    "vllm_xargs",
    # Grammars begin at the answer's first token.
    "structured_outputs",
    # Would be sent once more.
    "echo",
)
_STATEFUL_AT_ZERO: Final = ("thinking_token_budget", "prompt_logprobs")
_CREATED: Final = b'"created":'


def continuable(body: dict[str, Any]) -> bool:
    """Whether a streamed answer to this body can be continued from the ids of its tokens, exactly.

    Exactly: the continuation is drawn as the rest of the answer would have been. With tools it holds until the first
    tool call begins; the engine then marks the trail as lost.
    """
    if body.get("n") not in (None, 1):
        return False
    response_format = body.get("response_format")
    if response_format is not None and not (
        isinstance(response_format, dict) and response_format.get("type") == "text"
    ):
        return False
    if body.get("tool_choice") not in (None, "auto", "none"):
        return False
    if any(body.get(field) is not None for field in _STATEFUL_AT_ZERO):
        return False
    return not any(
        value and (field in _STATEFUL or field.startswith("guided_")) for field, value in body.items()
    )


def continues(trail: Trail | None) -> bool:
    """Whether events of this answer were handed over before, if only the one with the role."""
    return trail is not None and bool(trail.token_ids or trail.created)


def usable_trail(call: EngineCall) -> Trail | None:
    """The trail to keep while a call is streamed. None where none can be kept; one that is there is marked as lost.

    Raises:
        RuntimeError: the call is a continuation of an answer that has none.
    """
    trail = call.trail
    if trail is None or (not trail.lost and continuable(call.body)):
        return trail
    if continues(trail):
        raise RuntimeError("this answer cannot be continued")
    trail.lost = True
    return None


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    created: int
    choices: list[_Choice]


_decode = msgspec.json.Decoder(_Event).decode


class Handover:
    """The last look at a stream's events: keeps the trail, and takes out of a continuation what the client has.

    Args:
        track: the call's, with its trail. The chat layer makes a continuation's events anew from the first one on;
            those of `replaying` are what was handed over before, and perhaps a bit of text more.
    """

    __slots__ = ("_continues", "_skip", "_track", "_trail")

    def __init__(self, trail: Trail, track: Track) -> None:
        self._trail = trail
        self._track = track
        self._continues = continues(trail)
        self._skip = trail.text_chars
        """Characters of the text to come that the client has already."""

    def hand_over(self, event: bytes) -> bytes | None:
        """The event as it may go out now, None where the client has all of it."""
        trail = self._trail
        seen = _decode(event[6:])
        if not trail.created:
            trail.created = seen.created
        delta = seen.choices[0].delta if seen.choices else None
        if self._continues:
            cut = self._cut(event, delta)
            if cut is None:
                return None
            event = self._dated(cut, seen.created)
        if delta is None:
            return event
        if delta.role is None and not self._track.replaying:
            trail.token_ids += self._track.unsent
            self._track.unsent.clear()
        if delta.content:
            trail.text_chars += len(delta.content)
        if delta.tool_calls:
            trail.lost = True
        return event

    def _cut(self, event: bytes, delta: _Delta | None) -> bytes | None:
        """Take out of an event, and its `delta`, what was handed over before."""
        if delta is None:
            return event
        if delta.role is not None:
            return None
        replaying = self._track.replaying
        known = min(self._skip, len(delta.content or ""))
        if not known and not replaying:
            return event
        self._skip -= known
        document = json.loads(event[6:])
        choice = document["choices"][0]
        if known:
            delta.content = choice["delta"]["content"] = choice["delta"]["content"][known:]
        if replaying:
            if not (delta.content or delta.tool_calls or choice["finish_reason"]):
                return None
            # Those of tokens that were handed over.
            if choice.get("logprobs") is not None:
                choice["logprobs"] = None
            choice.pop("token_ids", None)
        return b"data: " + json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"

    def _dated(self, event: bytes, created: int) -> bytes:
        """The event with the time of the answer's first one."""
        if created == self._trail.created:
            return event
        return event.replace(b"%b%d," % (_CREATED, created), b"%b%d," % (_CREATED, self._trail.created), 1)
