"""How a continuation is put to vLLM, whose objects are stood in for by shape."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from weighbridge.pool.engine import Trail
from weighbridge.pool.seam import Seam

PROMPT = {"type": "token", "prompt_token_ids": [90, 91], "cache_salt": "s"}


class Detokenizer:
    """Tokens are letters by their code; 0 has no text of its own."""

    def __init__(self, prompt: list[int], params: Any) -> None:
        assert prompt == [90, 91]
        self.stop = params.stop
        self.output_text = ""
        self.output_token_ids: list[int] = []

    def update(self, ids: list[int], ended: bool) -> str | None:
        assert not ended
        self.output_token_ids += ids
        self.output_text += "".join(chr(token) for token in ids if token)
        for stop in self.stop:
            if stop in self.output_text:
                self.output_text = self.output_text[: self.output_text.index(stop)]
                return str(stop)
        return None

    def get_next_output_text(self, finished: bool, delta: bool) -> str:
        assert delta
        held_back = 0 if finished or not self.stop else max(map(len, self.stop)) - 1
        return self.output_text[: len(self.output_text) - held_back]


class Params(SimpleNamespace):
    def clone(self) -> Params:
        return copy.deepcopy(self)


def seam(trail: Trail, **fields: Any) -> Seam:
    params = Params(
        **{"stop": [], "logprobs": None, "structured_outputs": None, "max_tokens": 9, "min_tokens": 0}
        | fields
    )
    before = copy.deepcopy(params)
    prompt = copy.deepcopy(PROMPT)
    made = Seam(Detokenizer, prompt, params, trail)
    assert (prompt, params) == (PROMPT, before), "neither is changed"
    return made


def ids(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def test_vllm_gets_the_trail_as_prompt_and_is_asked_for_the_rest() -> None:
    made = seam(Trail(token_ids=ids("abc")), min_tokens=5)
    assert made.prompt == {**PROMPT, "prompt_token_ids": [90, 91, *ids("abc")]}
    assert (made.params.max_tokens, made.params.min_tokens) == (6, 2)
    assert (made.text, made.token_ids, made.finish_reason) == ("abc", ids("abc"), None)
    assert seam(Trail(token_ids=ids("abc")), min_tokens=2, max_tokens=None).params.max_tokens is None
    assert seam(Trail(token_ids=ids("abc")), min_tokens=2).params.min_tokens == 0


def test_the_request_looks_as_it_did() -> None:
    made = seam(Trail(token_ids=ids("abcdef")))
    logprobs: list[Any] = []
    state = SimpleNamespace(
        detokenizer=None,
        prompt_token_ids=[90, 91, *ids("abcdef")],
        prompt_len=8,
        sent_tokens_offset=0,
        logprobs_processor=SimpleNamespace(logprobs=logprobs),
    )
    made.join(state)
    assert state.detokenizer.output_token_ids == ids("abcdef")
    assert state.prompt_token_ids == [90, 91]
    assert (state.prompt_len, state.sent_tokens_offset) == (8, 6)
    assert [next(iter(entry)) for entry in logprobs] == ids("cdef")
    state.logprobs_processor.logprobs = None
    made.join(state)
    assert state.logprobs_processor.logprobs is None


def test_nothing_is_left_to_make() -> None:
    made = seam(Trail(token_ids=ids("abc")), max_tokens=3)
    assert (made.finish_reason, made.stop, made.text) == ("length", None, "abc")
    made = seam(Trail(token_ids=ids("abXY")), stop=["XY", "longer than that"])
    assert (made.finish_reason, made.stop, made.text) == ("stop", "XY", "ab")
    assert seam(Trail(token_ids=ids("abX")), stop=["XY"]).text == "ab", "half a stop text is held back"


@pytest.mark.parametrize(("chars", "kept"), [(0, ""), (2, "ab"), (3, "abc"), (5, "abc<t"), (9, "abc<t")])
def test_what_nobody_has_seen_of_a_tool_call_is_made_again(chars: int, kept: str) -> None:
    trail = Trail(token_ids=ids("abc<t"), text_chars=chars)
    made = seam(trail, structured_outputs="grammar")
    assert made.token_ids == trail.token_ids == ids(kept)
    assert made.params.max_tokens == 9 - len(kept)


def test_tokens_without_text_stay() -> None:
    trail = Trail(token_ids=[97, 0, 0, 98], text_chars=1)
    seam(trail, structured_outputs="grammar")
    assert trail.token_ids == [97, 0, 0]


@pytest.mark.parametrize(
    "fields", [{"structured_outputs": None}, {"structured_outputs": "grammar", "logprobs": 1}]
)
def test_nothing_is_made_again_without_a_grammar_or_where_tokens_were_shown(fields: dict[str, Any]) -> None:
    trail = Trail(token_ids=ids("abc"), text_chars=1)
    assert seam(trail, **fields).token_ids == trail.token_ids == ids("abc")
