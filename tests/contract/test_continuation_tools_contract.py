"""Continuing answers that call tools: up to the first call, and not after it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.continuing import TOOLS, USAGE, cut, whole_answer
from tests.support.engine_lab import Answer, Lab, both, chat, new_call, parse, play, vllm_only
from tests.support.fake_engine import FakeEngine
from weighbridge.pool.continuation import continuable
from weighbridge.pool.engine import Engine, Trail


@both
def test_a_tool_call_that_has_begun_is_no_text_to_go_on_with(lab: Lab) -> None:
    body = chat("Weather in Paris?", max_tokens=60, **TOOLS)

    async def main(engine: Engine) -> None:
        if isinstance(engine, FakeEngine):
            engine.script.tool_call_after = 3
        else:
            body.update(call_of_a_tool())
        assert continuable(body)
        trail = Trail()
        called = False
        call = new_call(body, trail=trail)
        answer = Answer(call)
        async for event in engine.stream(call):
            answer.documents.append(document := parse(event))
            called = called or any(choice["delta"].get("tool_calls") for choice in document["choices"])
            assert trail.lost == called
        assert called
        with pytest.raises(RuntimeError):
            await play(engine, new_call(body, trail=trail))

    lab.run(main)


def call_of_a_tool(before: str = "") -> dict[str, Any]:
    """Fields that make the small model call a tool, with a text before."""
    call = before + '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
    history = [
        message
        for city in ("Rome", "Oslo", "Bern", "Bonn")
        for message in (
            {"role": "user", "content": f"Weather in {city}?"},
            {"role": "assistant", "content": call},
        )
    ]
    return {"messages": [*history, {"role": "user", "content": "Weather in Paris?"}]}


@vllm_only
@pytest.mark.parametrize("interval", [1, 3, 5])
def test_a_tool_call_that_nobody_has_seen_yet_is_made_again(lab: Lab, interval: int) -> None:
    # Left to itself the model would do as before, without arguments: it is the grammar that asks for a city.
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}},
        "required": ["city"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    body = chat(max_tokens=60, ignore_eos=False, tools=[tool], stream_interval=interval, **USAGE)
    body |= call_of_a_tool("I will look.\n")

    async def main(engine: Engine) -> None:
        undisturbed = await play(engine, new_call(body))
        ((_, arguments),) = tool_calls([undisturbed])
        assert "city" in json.loads(arguments) and undisturbed.text()
        first_call = next(
            at
            for at, document in enumerate(undisturbed.documents)
            if document["choices"] and document["choices"][0]["delta"].get("tool_calls")
        )
        # The last of these events may hold the beginning of the call, which the parser keeps to itself.
        for events in range(max(1, first_call - 2), first_call + 1):
            parts = await cut(engine, body, events)
            got, wanted = whole_answer(*parts), whole_answer(undisturbed)
            assert tool_calls(parts) == tool_calls([undisturbed])
            assert (got["text"], got["reasons"], got["usage"]) == (
                wanted["text"],
                ["tool_calls"],
                wanted["usage"],
            )

    lab.run(main)


def tool_calls(parts: list[Answer]) -> list[tuple[str, str]]:
    """Name and arguments of each call in an answer."""
    found: dict[int, list[str]] = {}
    for part in parts:
        for document in part.documents:
            for choice in document["choices"]:
                for call in choice["delta"].get("tool_calls") or ():
                    name, arguments = found.setdefault(call["index"], ["", ""])
                    function = call["function"]
                    found[call["index"]] = [
                        name + (function.get("name") or ""),
                        arguments + (function.get("arguments") or ""),
                    ]
    return [(name, arguments) for name, arguments in found.values()]
