"""Cutting a streamed answer, going on with it, and telling whether the client has the undisturbed one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.engine_lab import Answer, new_call, play
from tests.support.fake_engine import FakeEngine
from weighbridge.pool.engine import Engine, Trail

USAGE = {"stream_options": {"include_usage": True}}
TOOLS = {"tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]}


def whole_answer(*parts: Answer) -> dict[str, Any]:
    """What the client has of an answer that came in parts."""
    documents = [document for part in parts for document in part.documents]
    choices = [choice for document in documents for choice in document["choices"]]
    usages = [
        document["usage"] for document in documents if document.get("usage") and not document["choices"]
    ]
    assert len(usages) <= 1, "usage came twice"
    return {
        "text": "".join(choice["delta"].get("content") or "" for choice in choices),
        "roles": sum(1 for choice in choices if choice["delta"].get("role")),
        "reasons": [choice["finish_reason"] for choice in choices if choice["finish_reason"]],
        "stop_reasons": [choice["stop_reason"] for choice in choices if choice.get("stop_reason")],
        "logprobs": [
            (token["token"], token["bytes"], round(token["logprob"], 3))
            for choice in choices
            for token in (choice.get("logprobs") or {}).get("content") or ()
        ],
        # What was cached is each engine's own.
        "usage": [{key: value for key, value in usage.items() if "details" not in key} for usage in usages],
        "frame": {
            (document["id"], document["created"], document["model"], document["object"])
            for document in documents
        },
    }


async def cut(engine: Engine, body: dict[str, Any], *at: int, adapter: str | None = None) -> list[Answer]:
    """The answer in parts: the first `at[0]` events, the next `at[1]` and so on, and the rest."""
    trail = Trail()
    first = new_call(body, adapter=adapter, trail=trail)
    parts = [await play(engine, first, events=at[0])]
    for events in (*at[1:], None):
        if parts[-1].reasons():
            break  # vLLM had two tokens ready at once, so there were fewer events this time
        call = new_call(body, name=first.request_id, adapter=adapter, trail=trail)
        parts.append(await play(engine, call, events=events))
        # The parts' events are of the same second only as a rule; the continuation's are the first one's.
        assert {document["created"] for document in parts[-1].documents} <= {trail.created}
    return parts


def cuts(engine: Engine, answer: Answer) -> Iterable[int]:
    """Events after which an answer is cut: each but the last ones, since nothing is left once its end is out.

    vLLM takes its time, so there the cuts lie apart.
    """
    last = next(
        at
        for at, document in enumerate(answer.documents)
        if document["choices"] and document["choices"][0]["finish_reason"]
    )
    return range(1, last + 1) if isinstance(engine, FakeEngine) else sorted({*range(2, last, 3), 1, last})


def same(parts: list[Answer], undisturbed: Answer) -> None:
    got, wanted = whole_answer(*parts), whole_answer(undisturbed)
    ((_, _, *frame),) = wanted.pop("frame")
    ((name, _, *got_frame),) = got.pop("frame")
    assert got == wanted
    assert got_frame == frame and name == f"chatcmpl-{parts[0].call.request_id}"
