"""LoRA adapters, and what an engine says of itself: on the fake engine and on vLLM."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.continuing import USAGE, cut, same
from tests.support.engine_lab import ADAPTER, WINDOW, Answer, Lab, both, chat, complete, new_call, play
from weighbridge.config.errors import ApiError
from weighbridge.pool.engine import Engine


@both
def test_an_adapter_answers_under_its_name_and_in_its_words(lab: Lab) -> None:
    body = chat(max_tokens=9, **USAGE)

    async def main(engine: Engine) -> None:
        base = await complete(engine, body)
        adapted = await complete(engine, body, ADAPTER)
        assert adapted.documents[0]["model"] == ADAPTER and base.documents[0]["model"] == "local-8b"
        assert adapted.text() != base.text()
        side_by_side = await asyncio.gather(complete(engine, body), complete(engine, body, ADAPTER))
        assert [answer.text() for answer in side_by_side] == [base.text(), adapted.text()]
        streamed = await play(engine, new_call(body, adapter=ADAPTER))
        assert streamed.text() == adapted.text()
        same(await cut(engine, body, 4, adapter=ADAPTER), streamed)

    lab.run(main)


@both
def test_an_adapter_that_is_not_there(lab: Lab) -> None:
    async def main(engine: Engine) -> None:
        for adapter in ("nobody", "local-8b"):
            for way in (complete, play_adapter):
                with pytest.raises(ApiError) as caught:
                    await way(engine, chat(), adapter)
                assert (caught.value.status, caught.value.code) == (404, "model_not_found")
                assert adapter not in caught.value.message
        assert engine.load().unfinished == 0

    lab.run(main)


async def play_adapter(engine: Engine, body: dict[str, Any], adapter: str) -> Answer:
    return await play(engine, new_call(body, adapter=adapter))


# -- what an engine says of itself


@both
def test_an_engine_knows_its_cache_and_counts_its_tokens(lab: Lab) -> None:
    async def main(engine: Engine) -> None:
        assert engine.kv_tokens is not None and engine.kv_tokens >= WINDOW
        before = engine.load().made
        await complete(engine, chat(max_tokens=7))
        await play(engine, new_call(chat(max_tokens=5)))
        assert engine.load().made == before + 12
        death = asyncio.ensure_future(engine.died())
        await asyncio.sleep(0)
        assert not death.done()
        death.cancel()

    lab.run(main)
