"""A request body as vLLM's chat layer gets it: a copy, with our names in it and the dangerous parts refused."""

from __future__ import annotations

import sys
from typing import Any, Final

from weighbridge.config.errors import InvalidRequest
from weighbridge.config.offload import BODIES, is_small

MAX_CHOICES: Final = 128
"""OpenAI's own limit for `n`."""

_NOT_OFFERED: Final = (
    # Many engine calls for one request, whose tokens could not be told from each other's.
    "use_beam_search",
    # Between the halves of a split engine; a caller could slip the model another prompt than the messages hold.
    "kv_transfer_params",
    "ec_transfer_params",
)
INLINE_NODES: Final = 2_000
"""Values of a body up to which it is worked on in the event loop; copying takes half a millisecond or less."""
_TEXT_PARTS: Final = frozenset({"text", "refusal", "input_text", "output_text", "thinking"})


async def prepare(body: dict[str, Any], *, model: str, request_id: str, stream: bool) -> dict[str, Any]:
    """`for_engine` for the event loop: in a thread where the body holds so much that other streams would feel it.

    The body must not change meanwhile.

    Raises:
        InvalidRequest: as `for_engine`.
    """
    # A string is not copied, however long.
    if is_small(body, nodes=INLINE_NODES, chars=sys.maxsize):
        return for_engine(body, model=model, request_id=request_id, stream=stream)
    return await BODIES.run(for_engine, body, model=model, request_id=request_id, stream=stream)


def for_engine(body: dict[str, Any], *, model: str, request_id: str, stream: bool) -> dict[str, Any]:
    """A copy of `body` for the engine, which changes what it gets. Unknown fields are kept.

    Every tool becomes `strict`: without it vLLM lets a model answer with arguments that do not fit the tool's schema.

    Args:
        model: the road's name; comes back as `model` in the answer.
        request_id: ours; a caller's own would let two requests meet under one id.

    Raises:
        InvalidRequest: the body asks for what is not offered here.
    """
    _check(body)
    copy: dict[str, Any] = _copied(body)
    copy.update(model=model, request_id=request_id, stream=stream)
    if not stream:
        copy.pop("stream_options", None)
    _make_strict(copy.get("tools"))
    return copy


def for_wire(body: dict[str, Any], *, model: str, stream: bool) -> dict[str, Any]:
    """`for_engine` for an engine elsewhere: what is only written down need not be copied, and is the body's own.

    Our id is left out: servers that do not know the field would refuse it.

    Raises:
        InvalidRequest: as `for_engine`.
    """
    _check(body)
    shared = dict(body)
    shared.pop("request_id", None)
    shared.update(model=model, stream=stream)
    if not stream:
        shared.pop("stream_options", None)
    if "tools" in shared:
        tools = shared["tools"] = _copied(shared["tools"])
        _make_strict(tools)
    return shared


def _check(body: dict[str, Any]) -> None:
    for field in _NOT_OFFERED:
        if body.get(field):
            raise InvalidRequest(f"{field} is not offered here.", param=field)
    kwargs = body.get("chat_template_kwargs")
    if body.get("chat_template") is not None or (isinstance(kwargs, dict) and "chat_template" in kwargs):
        raise InvalidRequest("A chat template of one's own is not accepted.", param="chat_template")
    n = body.get("n")
    if isinstance(n, int) and n > MAX_CHOICES:
        raise InvalidRequest(f"n must be at most {MAX_CHOICES}.", param="n")
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise InvalidRequest("messages must be a list with at least one message.", param="messages")
    _refuse_media(body["messages"])


def _refuse_media(messages: list[Any]) -> None:
    # Text alone: vLLM would fetch a picture's address from the network.
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, str):
                continue
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind in _TEXT_PARTS:
                continue
            raise InvalidRequest(
                "The local models take text only.", code="unsupported_content", param="messages"
            )


def _make_strict(tools: Any) -> None:
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, dict) else None
        if isinstance(function, dict):
            function["strict"] = True


def _copied(value: Any) -> Any:
    try:
        return _copy(value)
    except RecursionError:
        raise InvalidRequest("The request is nested too deeply.") from None


def _copy(value: Any) -> Any:
    """A deep copy of a JSON value; `copy.deepcopy` takes several times as long."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value
