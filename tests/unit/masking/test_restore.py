"""Putting values back, whole and in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.entities import LONGEST
from weighbridge.masking.restore import StreamRestorer, restore_completion
from weighbridge.masking.vault import Mint, Vault, derive_key

_MINT = Mint(derive_key(b"k", "placeholders", "c"))
PHONE = _MINT.placeholder("PHONE", "010-1234-5678")
QUOTED = _MINT.placeholder("URL", 'https://a.kr/"x"\\n\n가')
EMOJI = _MINT.placeholder("PERSON", "김😀철수")
VAULT = _MINT.vault(json_answer=False)
JSON_VAULT = _MINT.vault(json_answer=True)
ORIGINALS = {PHONE: "010-1234-5678", QUOTED: 'https://a.kr/"x"\\n\n가', EMOJI: "김😀철수"}
UNKNOWN = "[PHONE_ZZZZZZZZ]"

texts = st.lists(
    st.sampled_from(
        [*ORIGINALS, UNKNOWN, "[", "[[", "[PHO", "[PHONE_", PHONE[:-1], "]", "한글", "😀", "a b", "\n", ""]
    ),
    max_size=10,
).map("".join)


def restored(text: str, escaped: bool = False) -> str:
    for placeholder, original in ORIGINALS.items():
        text = text.replace(
            placeholder, json.dumps(original, ensure_ascii=False)[1:-1] if escaped else original
        )
    return text


def chunk(delta: dict[str, Any], index: int = 0, reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": reason, **more}
    return json.dumps({"id": "x", "model": "m", "choices": [choice]}).encode()


def usage_chunk() -> bytes:
    return json.dumps({"id": "x", "model": "m", "choices": [], "usage": {"prompt_tokens": 1}}).encode()


CHANNELS = ("content", "reasoning_content", "reasoning", "refusal")


class Reader:
    """A client that adds up what it gets and checks the order."""

    def __init__(self) -> None:
        self.text: dict[tuple[int, str, int], str] = {}
        self.finished: set[int] = set()
        self.reasons: list[str] = []
        self.usages = 0

    def read(self, events: list[bytes]) -> None:
        for event in events:
            document = json.loads(event)
            self.usages += document.get("usage") is not None
            assert document["id"] == "x"
            for choice in document["choices"]:
                index = choice["index"]
                assert index not in self.finished
                for name in CHANNELS:
                    self._add((index, name, 0), choice["delta"].get(name))
                for call in choice["delta"].get("tool_calls", []):
                    self._add((index, "tool", call["index"]), call["function"].get("arguments"))
                if choice.get("finish_reason"):
                    self.finished.add(index)
                    self.reasons.append(choice["finish_reason"])

    def _add(self, key: tuple[int, str, int], text: str | None) -> None:
        if text:
            self.text[key] = self.text.get(key, "") + text


def delta_for(key: tuple[int, str, int], text: str) -> dict[str, Any]:
    if key[1] == "tool":
        return {"tool_calls": [{"index": key[2], "function": {"arguments": text}}]}
    return {key[1]: text}


@settings(deadline=None)
@given(texts, st.booleans())
def test_every_split_point_gives_the_unsplit_text(text: str, as_json: bool) -> None:
    vault = JSON_VAULT if as_json else VAULT
    for key in ((0, "content", 0), (1, "reasoning_content", 0), (0, "tool", 2)):
        escaped = key[1] == "tool" or (as_json and key[1] == "content")
        for at in range(len(text) + 1):
            reader, stream = Reader(), StreamRestorer(vault)
            for piece in (text[:at], text[at:]):
                reader.read(stream.feed(chunk(delta_for(key, piece), key[0])))
            reader.read(stream.feed(chunk({}, key[0], "stop")))
            reader.read(stream.finish())
            assert reader.text.get(key, "") == restored(text, escaped)


@settings(deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                (0, "content", 0),
                (0, "reasoning_content", 0),
                (1, "content", 0),
                (0, "tool", 0),
                (0, "tool", 1),
                (1, "refusal", 0),
            ]
        ),
        texts,
    ),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_channels_and_choices_interleave_in_any_pieces(
    wanted: dict[Any, str], random: Any, ends: bool
) -> None:
    left = dict(wanted)
    reader, stream = Reader(), StreamRestorer(VAULT)
    while left:
        key = random.choice(sorted(left))
        size = random.randint(1, 6)
        piece, left[key] = left[key][:size], left[key][size:]
        if not left[key]:
            del left[key]
        reader.read(stream.feed(chunk(delta_for(key, piece), key[0])))
    if ends:
        for index in (0, 1):
            reader.read(stream.feed(chunk({}, index, "stop")))
        reader.read(stream.feed(usage_chunk()))
        assert stream.finish() == []
        assert (reader.finished, reader.usages) == ({0, 1}, 1)
    reader.read(stream.finish())
    for key, text in wanted.items():
        assert reader.text.get(key, "") == restored(text, escaped=key[1] == "tool")


@settings(deadline=None)
@given(texts)
def test_never_more_than_a_placeholder_is_held(text: str) -> None:
    reader, stream = Reader(), StreamRestorer(VAULT)
    for at, character in enumerate(text):
        reader.read(stream.feed(chunk({"content": character})))
        # What is out is the whole so far, but for a tail that could still be the start of a placeholder.
        sent, so_far = reader.text.get((0, "content", 0), ""), restored(text[: at + 1])
        assert so_far.startswith(sent)
        assert len(so_far) - len(sent) < LONGEST


def test_held_text_goes_out_before_the_finish_reason_and_before_usage() -> None:
    stream = StreamRestorer(VAULT)
    assert stream.feed(chunk({"content": "call [PHO"})) == [chunk_compact({"content": "call "})]
    first, second = stream.feed(chunk({}, reason="stop"))
    assert json.loads(first)["choices"] == [{"index": 0, "delta": {"content": "[PHO"}, "finish_reason": None}]
    assert json.loads(second)["choices"][0]["finish_reason"] == "stop"
    other = StreamRestorer(VAULT)
    other.feed(chunk({"content": "[PHO"}))
    first, second = other.feed(usage_chunk())
    assert json.loads(first)["choices"][0]["delta"] == {"content": "[PHO"}
    assert second == usage_chunk()


def chunk_compact(delta: dict[str, Any]) -> bytes:
    return json.dumps(json.loads(chunk(delta)), ensure_ascii=False, separators=(",", ":")).encode()


def test_text_in_the_finishing_chunk_comes_whole() -> None:
    stream = StreamRestorer(VAULT)
    stream.feed(chunk({"content": PHONE[:5]}))
    (event,) = stream.feed(chunk({"content": PHONE[5:] + " [PHO"}, reason="stop"))
    assert json.loads(event)["choices"][0]["delta"] == {"content": "010-1234-5678 [PHO"}


def test_a_chunk_that_is_all_held_is_left_out_unless_it_says_more() -> None:
    stream = StreamRestorer(VAULT)
    assert stream.feed(chunk({"content": PHONE[:5]})) == []
    (kept,) = stream.feed(chunk({"role": "assistant", "content": PHONE[5:8]}))
    assert json.loads(kept)["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    (kept,) = stream.feed(chunk({"content": PHONE[8:-1]}, logprobs={"content": [{"token": "x"}]}))
    assert json.loads(kept)["choices"][0]["logprobs"] == {"content": [{"token": "x"}]}
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "["}}
    (kept,) = stream.feed(chunk({"tool_calls": [call]}))
    assert json.loads(kept)["choices"][0]["delta"]["tool_calls"][0]["function"] == {
        "name": "f",
        "arguments": "",
    }


def test_an_event_without_placeholders_keeps_its_bytes() -> None:
    event = b'{ "choices" : [ {"delta": {"content": "\xed\x95\x9c\xea\xb8\x80 1.50e3"}, "index": 0} ] }'
    assert StreamRestorer(VAULT).feed(event) == [event]
    assert StreamRestorer(Vault({})).feed(b"anything") == [b"anything"]


def test_logprobs_stay_masked() -> None:
    logprobs = {"content": [{"token": PHONE, "logprob": -0.1}]}
    (event,) = StreamRestorer(VAULT).feed(chunk({"content": PHONE}, logprobs=logprobs))
    choice = json.loads(event)["choices"][0]
    assert choice["delta"]["content"] == "010-1234-5678"
    assert choice["logprobs"] == logprobs


@settings(deadline=None)
@given(texts)
def test_a_whole_answer(text: str) -> None:
    message = {
        "role": "assistant",
        "content": text,
        "reasoning_content": text,
        "refusal": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": text})}}
        ],
    }
    document = {
        "id": "x",
        "choices": [{"index": 0, "message": message, "logprobs": {"content": [{"token": text}]}}],
    }
    made = json.loads(restore_completion(VAULT, json.dumps(document).encode()))
    choice = made["choices"][0]
    assert choice["message"]["content"] == restored(text)
    assert choice["message"]["reasoning_content"] == restored(text)
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"a": restored(text)}
    assert choice["logprobs"] == {"content": [{"token": text}]}


@pytest.mark.parametrize("placeholder", list(ORIGINALS))
def test_an_answer_in_json_stays_json(placeholder: str) -> None:
    document = {"choices": [{"message": {"content": json.dumps({"v": placeholder})}}]}
    made = json.loads(restore_completion(JSON_VAULT, json.dumps(document).encode()))
    assert json.loads(made["choices"][0]["message"]["content"]) == {"v": ORIGINALS[placeholder]}


def test_other_shapes_of_answers() -> None:
    parts = {
        "choices": [
            {"message": {"content": [{"type": "text", "text": PHONE}], "function_call": {"arguments": PHONE}}}
        ]
    }
    made = json.loads(restore_completion(VAULT, json.dumps(parts).encode()))["choices"][0]["message"]
    assert made == {
        "content": [{"type": "text", "text": "010-1234-5678"}],
        "function_call": {"arguments": "010-1234-5678"},
    }
    for odd in (b"[]", b'{"choices":null}', b'{"choices":[{"message":null}]}', b'{"choices":[1]}'):
        assert json.loads(restore_completion(VAULT, odd)) == json.loads(odd)
        assert [json.loads(event) for event in StreamRestorer(VAULT).feed(odd)] == [json.loads(odd)]
    with pytest.raises(ValueError):
        restore_completion(VAULT, b"no json")
