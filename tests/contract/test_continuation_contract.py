"""An answer cut anywhere and continued is the undisturbed one: on the fake engine, and on vLLM in float32."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.continuing import TOOLS, USAGE, cut, cuts, same, whole_answer
from tests.support.engine_lab import (
    WINDOW,
    Answer,
    Lab,
    both,
    chat,
    complete,
    new_call,
    parse,
    play,
    until,
    vllm_only,
)
from tests.support.fake_engine import FakeEngine, Script
from weighbridge.config.errors import ApiError
from weighbridge.pool.continuation import continuable
from weighbridge.pool.engine import Engine, EngineCall, EngineUnavailable, Trail

# -- what is handed over is in the trail


@both
def test_the_trail_holds_what_was_handed_over_and_no_more(lab: Lab) -> None:
    async def main(engine: Engine) -> None:
        trail = Trail()
        answer = Answer(new_call(chat(max_tokens=10, **USAGE), trail=trail))
        async for event in engine.stream(answer.call):
            assert trail.created > 0, "it is filled before the event is handed over"
            answer.documents.append(parse(event))
            assert trail.text_chars == len(answer.text())
            assert len(trail.token_ids) >= min(len(answer.documents) - 1, 10)
            assert len(trail.token_ids) <= answer.meter.completion
        usage = answer.usage()
        assert usage is not None and trail.prompt_tokens == usage["prompt_tokens"] == answer.meter.prompt
        assert trail.created == answer.documents[0]["created"]
        assert not trail.lost

    lab.run(main)


@both
def test_a_call_that_is_refused_leaves_its_trail_empty(lab: Lab) -> None:
    trail = Trail()

    async def main(engine: Engine) -> None:
        with pytest.raises(ApiError):
            await play(engine, new_call(chat(temperature=3.5), trail=trail))

    lab.run(main)
    assert trail == Trail()


@both
def test_answers_with_several_choices_have_no_trail(lab: Lab) -> None:
    body = chat(n=2, temperature=1.0, max_tokens=4)
    trail = Trail()

    async def main(engine: Engine) -> None:
        answer = await play(engine, new_call(body, trail=trail))
        assert answer.meter.completion == 8
        with pytest.raises(RuntimeError):
            await play(engine, new_call(body, trail=Trail(token_ids=[1], text_chars=2, created=3)))
        assert engine.load().unfinished == 0

    lab.run(main)
    assert not continuable(body)
    assert trail == Trail(lost=True)


# -- the answer is the undisturbed one


BODIES = {
    "plain": {},
    "sampled with a repetition penalty": {"repetition_penalty": 1.3},
    # Its end is what the model likes best as soon as it may.
    "at least so many tokens": {"min_tokens": 6, "ignore_eos": False, "logit_bias": {"2": 100}},
    "with tools that it could call": TOOLS,
    "usage with every event": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "with logprobs": {"logprobs": True, "top_logprobs": 2},
    "with logprobs and tools": {"logprobs": True, "top_logprobs": 1, **TOOLS},
}


@both
@pytest.mark.parametrize("fields", BODIES.values(), ids=BODIES)
def test_a_continued_answer_is_the_undisturbed_one(lab: Lab, fields: dict[str, Any]) -> None:
    body = chat(**{"max_tokens": 9, **USAGE, **fields})

    async def main(engine: Engine) -> None:
        undisturbed = await play(engine, new_call(body, trail=Trail()))
        for events in cuts(engine, undisturbed):
            same(await cut(engine, body, events), undisturbed)

    lab.run(main)


@both
def test_the_events_of_a_continuation_bear_the_time_of_the_first_one(lab: Lab) -> None:
    async def main(engine: Engine) -> None:
        trail = Trail()
        first = await play(engine, new_call(chat(**USAGE), trail=trail), events=3)
        trail.created = 1_600_000_000
        rest = await play(engine, new_call(chat(**USAGE), name=first.call.request_id, trail=trail))
        assert {document["created"] for document in rest.documents} == {1_600_000_000}
        assert rest.usage() is not None and trail.created == 1_600_000_000

    lab.run(main)


@both
def test_an_answer_survives_two_cuts(lab: Lab) -> None:
    body = chat(max_tokens=9, **USAGE)

    async def main(engine: Engine) -> None:
        undisturbed = await play(engine, new_call(body))
        for at in ((1, 1), (1, 3), (3, 1), (2, 2, 2), (1, 1, 1, 1)):
            same(await cut(engine, body, *at), undisturbed)

    lab.run(main)


@both
def test_a_stop_text_over_the_seam_ends_the_answer(lab: Lab) -> None:
    async def main(engine: Engine) -> None:
        text = (await complete(engine, chat(max_tokens=20))).text()
        # Long enough to lie over every cut but the first ones.
        body = chat(max_tokens=20, stop=[text[10:34], "never in it"], **USAGE)
        undisturbed = await play(engine, new_call(body))
        assert undisturbed.text() == text[: text.index(text[10:34])]
        assert undisturbed.reasons() == {0: "stop"}
        for events in cuts(engine, undisturbed):
            same(await cut(engine, body, events), undisturbed)

    lab.run(main)


@both
def test_a_seam_inside_a_character(lab: Lab) -> None:
    async def main(engine: Engine) -> None:
        body = await split_characters(engine)
        undisturbed = await play(engine, new_call(body))
        pieces = [c["delta"].get("content") for d in undisturbed.documents for c in d["choices"]]
        assert not all(pieces[1:-1]), "no character was split"
        assert undisturbed.text().strip().isprintable() and not undisturbed.text().isascii()
        for events in cuts(engine, undisturbed):
            same(await cut(engine, body, events), undisturbed)

    lab.run(main)


async def split_characters(engine: Engine) -> dict[str, Any]:
    """A body whose answer has characters of several tokens."""
    if isinstance(engine, FakeEngine):
        return chat("Say something in Korean.", max_tokens=30, logprobs=True, **USAGE)
    tokenizer: Any = engine._loaded.engine.renderer.tokenizer  # type: ignore[attr-defined]
    allowed = tokenizer.encode("안녕하세요 🙂 감사합니다 🎉", add_special_tokens=False)
    return chat(
        "안녕하세요 🙂 라고 말해줘.",
        max_tokens=14,
        logprobs=True,
        top_logprobs=1,
        allowed_token_ids=sorted(set(allowed)),
        repetition_penalty=1.2,
        **USAGE,
    )


@both
def test_a_cut_where_nothing_is_left_to_make(lab: Lab) -> None:
    body = chat(max_tokens=6, **USAGE)

    async def main(engine: Engine) -> None:
        trail = Trail()
        undisturbed = await play(engine, new_call(body, trail=trail))
        text = undisturbed.text()
        made = engine.load().made
        # As if the end had not gone out: all tokens are there, of their text the last part is not.
        again = dataclasses.replace(trail, token_ids=list(trail.token_ids), text_chars=len(text) - 3)
        rest = await play(engine, new_call(body, name=undisturbed.call.request_id, trail=again))
        assert rest.text() == text[-3:]
        assert whole_answer(rest)["roles"] == 0
        assert rest.reasons() == {0: "length"}
        assert whole_answer(rest)["usage"] == whole_answer(undisturbed)["usage"]
        assert engine.load().made == made and engine.load().unfinished == 0
        assert (rest.meter.prompt, rest.meter.completion) == (0, 0)
        assert again.text_chars == len(text) and again.token_ids == trail.token_ids

    lab.run(main)


@both
def test_the_window_ends_a_continued_answer_where_it_would_have(lab: Lab) -> None:
    body = chat("river " * 300, max_tokens=WINDOW, **USAGE)

    async def main(engine: Engine) -> None:
        words = 300
        while await engine.count_tokens(chat("river " * words)) < WINDOW - 12:
            words += 1
        body.update(chat("river " * words, max_tokens=WINDOW, **USAGE))
        undisturbed = await play(engine, new_call(body))
        usage = undisturbed.usage()
        assert usage is not None and usage["total_tokens"] == WINDOW
        for events in (2, max(cuts(engine, undisturbed))):
            same(await cut(engine, body, events), undisturbed)

    lab.run(main)


@both
def test_each_engine_counts_what_it_did_and_the_client_is_told_once(lab: Lab) -> None:
    body = chat(max_tokens=12, **USAGE)

    async def main(engine: Engine) -> None:
        before = engine.load().made
        trail = Trail()
        first = await play(engine, new_call(body, trail=trail), events=5)
        handed_over = len(trail.token_ids)
        assert handed_over >= 4
        rest = await play(engine, new_call(body, name=first.call.request_id, trail=trail))
        assert rest.meter.prompt == first.meter.prompt + handed_over
        assert rest.meter.completion == 12 - handed_over
        assert first.meter.completion >= handed_over
        usage = rest.usage()
        assert usage is not None
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (first.meter.prompt, 12)
        assert engine.load().made >= before + 12

    lab.run(main)


# -- the fake alone: every cut of every answer, and its death


def run_fake(work: Any) -> None:
    async def main() -> None:
        engine = FakeEngine(max_model_len=WINDOW)
        await engine.start()
        await work(engine)

    asyncio.run(main())


@st.composite
def answers(draw: st.DrawFn) -> dict[str, Any]:
    """Bodies; `stop` may have numbers, which stand for pieces of the answer."""
    return {
        "text": draw(st.text(max_size=12)),
        "max_tokens": draw(st.integers(1, 24)),
        "stops": draw(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), max_size=2)),
        "fields": draw(st.sampled_from([{}, {"logprobs": True}, {"seed": 3}, {"temperature": 1.0}])),
    }


@settings(max_examples=40, deadline=None)
@given(answers(), st.integers(0, 10_000))
def test_every_cut_of_the_fake_engines_answers(drawn: dict[str, Any], other: int) -> None:
    async def work(engine: Engine) -> None:
        body = chat(drawn["text"], max_tokens=drawn["max_tokens"], **USAGE, **drawn["fields"])
        text = (await complete(engine, body)).text()
        stops = [text[at : at + length] for at, length in drawn["stops"]]
        if any(stops):
            body["stop"] = [stop for stop in stops if stop]
        undisturbed = await play(engine, new_call(body))
        for events in (every := cuts(engine, undisturbed)):
            parts = await cut(engine, body, events)
            same(parts, undisturbed)
            left = max(every) - events
            if left:
                same(await cut(engine, body, events, 1 + other % left), undisturbed)

    run_fake(work)


@pytest.mark.parametrize("die_after", [0, 1, 4, 11])
def test_a_fake_engine_dies_after_so_many_tokens_and_another_goes_on(die_after: int) -> None:
    async def work(_: Engine) -> None:
        body = chat(max_tokens=12, **USAGE)
        first, second = FakeEngine(script=Script(die_after=die_after)), FakeEngine()
        second.created = 1_800_000_000
        undisturbed = await play(second, new_call(body))
        trail = Trail()
        call = new_call(body, trail=trail)
        death = asyncio.ensure_future(first.died())
        before = Answer(call)
        with pytest.raises(EngineUnavailable):
            async for event in first.stream(call):
                before.documents.append(parse(event))
        await death
        assert not first.alive
        assert len(trail.token_ids) == die_after == call.meter.completion == first.load().made
        rest = await play(second, new_call(body, name=call.request_id, trail=trail))
        if die_after:
            same([before, rest], undisturbed)
        else:
            assert before.documents == [] and rest.documents[0]["choices"][0]["delta"]["role"]

    run_fake(work)


# -- vLLM alone


@pytest.fixture
def without_parser(vllm_lab: Lab) -> Iterator[Lab]:
    """The shared engine with a chat layer that has no tool parser."""
    from weighbridge.pool.vllm_compat import build_chat

    engine: Any = vllm_lab.engine
    loaded = engine._loaded
    folder = loaded.engine.model_config.model
    engine._loaded = dataclasses.replace(loaded, chat=build_chat(loaded.engine, "local-8b", folder, None))
    yield vllm_lab
    engine._loaded = loaded


@pytest.mark.engine
def test_a_continued_answer_of_a_tier_without_tools(without_parser: Lab) -> None:
    async def main(engine: Engine) -> None:
        text = (await complete(engine, chat(max_tokens=16))).text()
        for fields in ({}, {"stop": [text[12:30]]}, {"logprobs": True}):
            body = chat(max_tokens=12, **USAGE, **fields)
            undisturbed = await play(engine, new_call(body))
            for events in cuts(engine, undisturbed):
                same(await cut(engine, body, events), undisturbed)

    without_parser.run(main)


@vllm_only
def test_several_tokens_an_event(lab: Lab) -> None:
    body = chat(max_tokens=14, stream_interval=4, **USAGE)

    async def main(engine: Engine) -> None:
        undisturbed = await play(engine, new_call(body))
        assert len(undisturbed.documents) < 8
        for events in cuts(engine, undisturbed):
            same(await cut(engine, body, events), undisturbed)

    lab.run(main)


@vllm_only
def test_a_continuation_that_is_aborted_is_counted_by_its_own_tokens(lab: Lab) -> None:
    body = chat(max_tokens=300)

    async def main(engine: Engine) -> EngineCall:
        trail = Trail()
        first = new_call(body, trail=trail)
        await play(engine, first, events=31)
        call = new_call(body, name=first.request_id, trail=trail)
        stream = engine.stream(call)
        await anext(aiter(stream))
        await until(lambda: call.meter.completion >= 1)
        await stream.aclose()  # type: ignore[attr-defined]
        assert engine.load().unfinished == 0
        return call

    call = lab.run(main)
    assert 1 <= call.meter.completion < 30
