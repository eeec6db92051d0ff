"""The `openai` client beyond plain calls: async, the stream helpers, `parse` and tools, unmodified on real vLLM."""

from __future__ import annotations

import asyncio
import json

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel, Field

from tests.e2e.conftest import API_KEY, Served

pytestmark = pytest.mark.engine
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello to the team."}]


class Weather(BaseModel):
    city: str = Field(max_length=12)
    hot: bool


class GetWeather(BaseModel):
    """The weather in a city."""

    city: str = Field(max_length=12)


def a_client(served: Served) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{served.process.url}/v1", api_key=API_KEY, timeout=120, max_retries=0)


async def test_async_calls_side_by_side(served: Served) -> None:
    async with a_client(served) as client:

        async def one(stream: bool) -> str:
            if not stream:
                answer = await client.chat.completions.create(
                    model="local-8b", messages=HELLO, max_tokens=8, temperature=0
                )
                return answer.choices[0].message.content or ""
            chunks = await client.chat.completions.create(
                model="local-8b", messages=HELLO, max_tokens=8, temperature=0, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

        texts = await asyncio.gather(*(one(n % 2 == 0) for n in range(4)))
        assert len(set(texts)) == 1 and texts[0]
        assert (await anext(aiter(client.models.list()))).id == "auto"


async def test_the_stream_helper_gathers_the_same_answer(served: Served) -> None:
    async with (
        a_client(served) as client,
        client.chat.completions.stream(
            model="local-8b",
            messages=HELLO,
            max_tokens=40,
            stream_options={"include_usage": True},
            extra_body={"structured_outputs": {"choice": ["Hello, all of you."]}},
        ) as stream,
    ):
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert "content.delta" in kinds and final.choices[0].message.content == "Hello, all of you."
    assert final.usage and final.usage.completion_tokens <= 40


async def test_an_async_caller_who_leaves_is_recorded(served: Served) -> None:
    async with a_client(served) as client:
        stream = await client.chat.completions.create(
            model="local-8b", messages=HELLO, max_tokens=400, stream=True, extra_body={"ignore_eos": True}
        )
        request_id = stream.response.headers["x-weighbridge-request-id"]
        async for _ in stream:
            break
        await stream.close()
    async with asyncio.timeout(10):
        while not (
            found := [row for row in served.rows() if row["request_id"] == request_id and row["outcome"]]
        ):
            await asyncio.sleep(0.05)
    assert found[0]["outcome"] == "client_aborted"


def test_parse_gives_an_object(served: Served) -> None:
    answer = served.openai.chat.completions.parse(
        model="local-8b",
        messages=[{"role": "user", "content": "Is it hot in Seoul in July?"}],
        response_format=Weather,
        max_tokens=80,
        temperature=0,
    )
    assert isinstance(answer.choices[0].message.parsed, Weather)


def test_parse_gives_the_arguments_of_a_tool(served: Served) -> None:
    answer = served.openai.chat.completions.parse(
        model="local-8b",
        messages=[{"role": "user", "content": "What is the weather in Paris?"}],
        tools=[openai.pydantic_function_tool(GetWeather)],
        tool_choice="required",
        max_tokens=80,
        temperature=0,
    )
    calls = answer.choices[0].message.tool_calls
    assert calls and isinstance(calls[0].function.parsed_arguments, GetWeather)


def test_a_tools_answer_goes_back(served: Served) -> None:
    messages: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "What is the weather in Paris?"}
    ]
    tool = openai.pydantic_function_tool(GetWeather)
    first = served.openai.chat.completions.create(
        model="local-8b",
        messages=messages,
        tools=[tool],
        tool_choice={"type": "function", "function": {"name": "GetWeather"}},
        max_tokens=60,
        temperature=0,
    )
    message = first.choices[0].message
    assert message.tool_calls and message.tool_calls[0].type == "function"
    json.loads(message.tool_calls[0].function.arguments)
    messages += [
        message.model_dump(exclude_none=True),  # type: ignore[list-item]
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "18 degrees"},
    ]
    second = served.openai.chat.completions.create(
        model="local-8b", messages=messages, tools=[tool], tool_choice="none", max_tokens=8
    )
    assert second.choices[0].finish_reason in ("stop", "length")
