"""A chat answer as a text completion: documents, chunks and errors, against OpenAI's own types."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion

from weighbridge.gateway.completions_answer import Translator, param_of


def token(text: str, logprob: float = -0.5, *, raw: bytes | None = None, top: Any = ()) -> dict[str, Any]:
    return {
        "token": text,
        "logprob": logprob,
        "bytes": list(text.encode() if raw is None else raw),
        "top_logprobs": [{"token": other, "logprob": lp, "bytes": None} for other, lp in top],
    }


def choice(text: str | None, reason: str | None, index: int = 0, **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {"index": index, "message": message, "logprobs": None, "finish_reason": reason, **more}


def document(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    frame = {"id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "local-8b"}
    return {**frame, "choices": list(choices), "usage": usage, **more}


def delta(index: int = 0, *, reason: str | None = None, **said: Any) -> dict[str, Any]:
    return {"index": index, "delta": said, "logprobs": None, "finish_reason": reason}


def chunk(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "local-8b"}
    return {**frame, "choices": list(choices), **more}


def test_a_document_is_a_completion_of_openais() -> None:
    given_ = document(choice("hello", "stop", stop_reason=None), choice("world", "length", 1), extra=[1])
    before = copy.deepcopy(given_)
    made = Translator().document(given_)
    assert given_ == before
    answer = Completion.model_validate(made, strict=True)
    assert (answer.id, answer.object, answer.created, answer.model) == (
        "cmpl-1",
        "text_completion",
        7,
        "local-8b",
    )
    assert [(one.index, one.text, one.finish_reason) for one in answer.choices] == [
        (0, "hello", "stop"),
        (1, "world", "length"),
    ]
    assert answer.usage and answer.usage.total_tokens == 5
    assert made["extra"] == [1]
    assert made["choices"][0]["stop_reason"] is None
    assert "message" not in made["choices"][0]


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "stop"),
        (None, None),
    ],
)
def test_it_ends_with_a_reason_a_completion_knows(reason: str | None, told: str | None) -> None:
    assert Translator().document(document(choice("a", reason)))["choices"][0]["finish_reason"] == told


def test_a_refusal_is_the_text_and_nothing_is_no_text() -> None:
    refused = choice(None, "stop")
    refused["message"]["refusal"] = "No."
    made = Translator().document(document(refused, choice(None, "stop", 1)))
    assert [one["text"] for one in made["choices"]] == ["No.", ""]


def test_logprobs_have_the_legacy_shape() -> None:
    tokens = [
        token(" a", -0.1, top=[(" a", -0.1), (" b", -2.0), (" b", -3.0)]),
        token("한", -0.2, top=[("둘", -0.15)]),
        token("c", -0.3),
    ]
    made = Translator().document(document(choice(" a한c", "stop", logprobs={"content": tokens})))
    logprobs = Completion.model_validate(made, strict=True).choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == [" a", "한", "c"]
    assert logprobs.token_logprobs == [-0.1, -0.2, -0.3]
    assert logprobs.text_offset == [0, 2, 3]
    assert logprobs.top_logprobs == [{" a": -0.1, " b": -2.0}, {"둘": -0.15, "한": -0.2}, {"c": -0.3}]


def test_offsets_go_on_from_chunk_to_chunk_for_each_choice() -> None:
    translator, offsets = Translator(), {0: [], 1: []}
    for index, text in ((0, "ab"), (1, "가"), (0, "cde"), (1, "나"), (1, "x")):
        one = delta(index, content=text)
        one["logprobs"] = {"content": [token(text)]}
        made = translator.chunk(chunk(one))
        assert made is not None
        offsets[index] += made["choices"][0]["logprobs"]["text_offset"]
    assert offsets == {0: [0, 2], 1: [0, 1, 2]}


def test_a_token_that_goes_on_with_a_character_begins_where_it_does() -> None:
    pieces = [token("\ufffd", raw=bytes([byte])) for byte in "글".encode()]
    given_ = choice("글!", "stop", logprobs={"content": [*pieces, token("!")]})
    made = Translator().document(document(given_))
    assert made["choices"][0]["logprobs"]["text_offset"] == [0, 0, 0, 1]


def test_a_role_alone_is_no_chunk() -> None:
    assert Translator().chunk(chunk(delta(role="assistant", content=""))) is None
    assert Translator().chunk(chunk(delta(role="assistant", content=""), delta(1, role="assistant"))) is None
    made = Translator().chunk(chunk(delta(role="assistant", content=""), delta(1, content="x")))
    assert made is not None
    assert [one["index"] for one in made["choices"]] == [1]


def test_an_empty_end_is_a_chunk() -> None:
    made = Translator().chunk(chunk(delta(reason="length")))
    assert made is not None
    assert Completion.model_validate(made, strict=True).choices[0].finish_reason == "length"
    assert made["choices"][0]["text"] == ""


def test_usage_without_choices_is_kept() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    made = Translator().chunk(chunk(usage=usage))
    assert made is not None
    assert (made["choices"], made["usage"], made["object"]) == ([], usage, "text_completion")


@pytest.mark.parametrize(
    ("param", "told"),
    [
        ("messages", "prompt"),
        ("messages[0]", "prompt"),
        ("top_logprobs", "logprobs"),
        ("stop", "stop"),
        (None, None),
    ],
)
def test_errors_name_the_callers_field(param: str | None, told: str | None) -> None:
    assert param_of(param) == told
    event = {"error": {"message": "m", "type": "t", "param": param, "code": "c"}}
    assert Translator().chunk(event) == {"error": {"message": "m", "type": "t", "param": told, "code": "c"}}


TEXTS = st.text(
    st.characters(codec="utf-8") | st.sampled_from(["한", "글", "ᄒ", "ᅡ", "ᆫ", "🙂", "👩", "\u200d"]),
    min_size=1,
    max_size=6,
)


@given(st.lists(st.tuples(st.integers(0, 2), TEXTS), max_size=12))
def test_no_text_is_lost_on_the_way(pieces: list[tuple[int, str]]) -> None:
    translator, said = Translator(), {0: "", 1: "", 2: ""}
    for index, text in pieces:
        made = translator.chunk(chunk(delta(index, content=text)))
        assert made is not None
        for one in made["choices"]:
            said[one["index"]] += one["text"]
    assert said == {n: "".join(text for index, text in pieces if index == n) for n in range(3)}


@given(st.lists(TEXTS, min_size=1, max_size=6), st.data())
def test_offsets_are_those_of_the_text(texts: list[str], data: st.DataObject) -> None:
    """However the bytes of a text are dealt out over tokens, an offset is where its character begins."""
    whole = "".join(texts).encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole)), max_size=8)) | {0, len(whole)})
    pieces = [whole[begin:end] for begin, end in itertools.pairwise(cuts)]
    tokens = [token(piece.decode("utf-8", "replace"), raw=piece) for piece in pieces]
    made = Translator().document(document(choice("".join(texts), "stop", logprobs={"content": tokens})))
    begins = [len(whole[:cut].decode("utf-8", "ignore")) for cut in cuts[:-1]]
    assert made["choices"][0]["logprobs"]["text_offset"] == begins


FIELDS = "choices index delta content refusal finish_reason logprobs token logprob bytes top_logprobs usage error param"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 300) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS.split()), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["choices", "id", "usage", "error"]), JSON), JSON, JSON)
def test_no_providers_answer_makes_it_fail(answer: dict[str, Any], said: Any, logprobs: Any) -> None:
    odd = {
        **delta(),
        "delta": said,
        "logprobs": {"content": [logprobs]},
        "index": said,
        "finish_reason": logprobs,
    }
    translator = Translator()
    translator.chunk(answer)
    translator.document(answer)
    translator.chunk(chunk(odd))
