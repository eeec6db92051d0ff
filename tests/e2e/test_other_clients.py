"""Clients of other people, unmodified on real vLLM: `langchain-openai` and the `litellm` SDK.

A model of 135M parameters says little that is worth asserting: what is held here is the protocol.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, Field, SecretStr

from tests.e2e.conftest import API_KEY, Served

# The package would ask the network for a list of prices while it is imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

pytestmark = pytest.mark.engine
HELLO = "Say hello to the team."


class Weather(BaseModel):
    """The weather in a city."""

    city: str = Field(max_length=12)
    hot: bool


def langchain(served: Served, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model="local-8b",
        base_url=f"{served.process.url}/v1",
        api_key=SecretStr(API_KEY),
        max_retries=0,
        temperature=0,
        **{"max_tokens": 16, **more},
    )


def test_langchain_invokes(served: Served) -> None:
    answer = langchain(served).invoke([SystemMessage("Answer shortly."), HumanMessage(HELLO)])
    assert answer.content and answer.response_metadata["model_name"] == "local-8b"
    assert answer.usage_metadata and 0 < answer.usage_metadata["output_tokens"] <= 16
    assert answer.response_metadata["finish_reason"] in ("stop", "length")


def test_langchain_streams_with_usage(served: Served) -> None:
    whole: AIMessageChunk | None = None
    for chunk in langchain(served, stream_usage=True).stream(HELLO):
        assert isinstance(chunk, AIMessageChunk)
        whole = chunk if whole is None else whole + chunk
    assert whole is not None and whole.content
    assert whole.usage_metadata and whole.usage_metadata["output_tokens"] <= 16
    assert whole.content == langchain(served).invoke(HELLO).content


async def test_langchain_works_async(served: Served) -> None:
    model = langchain(served)
    plain, streamed = await asyncio.gather(model.ainvoke(HELLO), _gathered(model))
    assert plain.content == streamed


async def _gathered(model: ChatOpenAI) -> str:
    return "".join([str(chunk.content) async for chunk in model.astream(HELLO)])


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_gets_structured_output(served: Served, method: Any) -> None:
    model = langchain(served, max_tokens=80).with_structured_output(Weather, method=method)
    assert isinstance(model.invoke("Is it hot in Seoul in July?"), Weather)


def test_langchain_calls_tools_and_sends_their_answers(served: Served) -> None:
    model = langchain(served, max_tokens=80)
    called = model.bind_tools([Weather], tool_choice="Weather").invoke("Is it hot in Seoul in July?")
    (call,) = called.tool_calls
    assert call["name"] == "Weather" and set(call["args"]) == {"city", "hot"}
    after = model.invoke(
        [HumanMessage("Is it hot?"), called, ToolMessage("31 degrees", tool_call_id=call["id"])]
    )
    assert after.response_metadata["finish_reason"] in ("stop", "length")


def test_langchains_text_completions(served: Served) -> None:
    model = OpenAI(
        model="local-8b",
        base_url=f"{served.process.url}/v1",
        api_key=SecretStr(API_KEY),
        max_retries=0,
        temperature=0,
        max_tokens=8,
    )
    assert model.invoke(HELLO) == "".join(model.stream(HELLO)) != ""


def test_the_litellm_sdk_is_served(served: Served) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "GATEWAY_URL": f"{served.process.url}/v1",
        "GATEWAY_KEY": API_KEY,
        # It would ask the network for a list of prices.
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("litellm_client.py"))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["id"].startswith("chatcmpl-")
    assert told["text"] == told["streamed"] == told["streamed_async"] != ""
    assert told["tokens"] == told["streamed_tokens"] <= 12
    assert told["completion"]
    assert told["errors"] == ["NotFoundError", "BadRequestError", "AuthenticationError"]
