"""Asks the gateway through the `litellm` SDK and prints what came as one JSON document. A program of its own: the
package changes much in the process that imports it."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import litellm

HELLO = "Say hello to the team."
GIVEN: dict[str, Any] = {
    "model": "openai/local-8b",
    "api_base": os.environ["GATEWAY_URL"],
    "api_key": os.environ["GATEWAY_KEY"],
    "messages": [{"role": "user", "content": HELLO}],
    "max_tokens": 12,
    "temperature": 0,
    "max_retries": 0,
}


def said(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def streamed() -> str:
    stream = await litellm.acompletion(**GIVEN, stream=True)
    return said([chunk async for chunk in stream])


def refused(**changes: Any) -> str:
    try:
        litellm.completion(**(GIVEN | changes))
    except Exception as exc:
        return type(exc).__name__
    return "nothing"


def main() -> None:
    litellm.suppress_debug_info = True
    answer = litellm.completion(**GIVEN)
    chunks = list(litellm.completion(**GIVEN, stream=True, stream_options={"include_usage": True}))
    text_given = {name: value for name, value in GIVEN.items() if name != "messages"}
    text_given |= {"model": "text-completion-openai/local-8b", "prompt": HELLO}
    told = {
        "id": answer.id,
        "text": answer.choices[0].message.content,
        "tokens": answer.usage.completion_tokens,
        "streamed": said(chunks),
        "streamed_tokens": chunks[-1].usage.completion_tokens,
        "streamed_async": asyncio.run(streamed()),
        "completion": litellm.text_completion(**text_given).choices[0].text,
        "errors": [
            refused(model="openai/gpt-nine"),
            refused(temperature=99),
            refused(api_key="wrong"),
        ],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
