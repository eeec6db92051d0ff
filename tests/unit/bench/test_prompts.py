"""The prompts of the goodput benchmark."""

from __future__ import annotations

import json

from bench.lib import prompts


def texts(turn: int, count: int = 40) -> list[str]:
    made = prompts.bodies(turn, count, model="local-8b", tokens=64)
    return [json.loads(body)["messages"][0]["content"] for body in made]


def test_the_same_turn_has_the_same_prompts() -> None:
    assert texts(3) == texts(3)


def test_no_prompt_begins_like_another_of_any_turn() -> None:
    beginnings = [" ".join(text.split()[:8]) for turn in range(-1, 20) for text in texts(turn)]
    assert len(set(beginnings)) == len(beginnings)


def test_every_turn_has_the_same_mixed_lengths() -> None:
    lengths = [sorted(len(text.split()) for text in texts(turn)) for turn in range(3)]
    assert lengths[0] == lengths[1] == lengths[2]
    assert (lengths[0][0], lengths[0][-1]) == (prompts.SHORTEST, prompts.LONGEST)
    assert len(texts(0, 1)) == 1


def test_an_answer_has_as_many_tokens_as_asked_for_and_says_so() -> None:
    body = json.loads(prompts.bodies(0, 1, model="local-8b", tokens=17)[0])
    assert body["max_tokens"] == 17 and body["ignore_eos"] and body["temperature"] == 0
    assert body["stream"] and body["stream_options"] == {"include_usage": True}
