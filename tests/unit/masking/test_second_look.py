"""The last look at the bytes: what it must see, what it must let pass."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.masking.fakes import Children
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking import second_look
from weighbridge.masking.body import INSTRUCTION
from weighbridge.masking.entities import Span, gaps, merge
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.folding import fold
from weighbridge.masking.layers.patterns import PATTERNS
from weighbridge.masking.masker import Masker
from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.second_look import found, remains

CLOCK = SystemClock()
TELLING = [
    "010-1234-5678",
    "call 0101234567 now",
    "번호는 ０１０１２３４５６７８입니다",
    "a@b",
    "kim＠corp",
    "kim [at] naver.com",
    "min.su 골뱅이 naver.com",
    "kim=40naver.com",
    "postgres://u:pw@host/db",
    "https://intra/x",
    "www.corp.kr",
    "12가 3456",
    "1990년 3월 5일생",
    "born 3rd of March 1990",
    "1990-03-05",
    "900305-1******",
    "M1234567",
    "ｗｗｗ.corp.kr",
    "１２가 ３４５６",
    "12\u200b가 3456",
]
HARMLESS = [
    "",
    "안녕하세요. 2024년 매출은 1,234,567원입니다.",
    "at [1] and (at 5)",
    "10:30:45 to 11:30",
    "2019-2023",
    "[NUM_ABCDEFGH][EMAIL_2345ABCD] [PHONE_ZZZZZZZZ]",
    "[NUM_AB2345CD]2345 [NUM_ABCD2345]",
    INSTRUCTION,
    "1920x1080",
    "call_me 123456",
]


def body(content: Any, **more: Any) -> bytes:
    document = {"model": "m-2024-08-06", "messages": [{"role": "user", "content": content}], **more}
    return json.dumps(document, ensure_ascii=False).encode()


def look(raw: bytes) -> bool:
    return found(raw, ours=("m-2024-08-06",))


@pytest.mark.parametrize("text", TELLING)
def test_a_value_is_seen_wherever_it_stands(text: str) -> None:
    assert look(body(text))
    assert look(body(f"[NUM_ABCDEFGH] {text} [NUM_ABCDEFGH]"))
    assert look(body([{"type": "text", "text": "x"}, {"type": "text", "text": text}]))
    assert look(body("x", tools=[{"function": {"parameters": {"enum": [text]}}}]))
    assert look(body("x", tools=[{"function": {"parameters": {text: {}}}}]))
    assert look(body("x", response_format={"schema": {"a": {"b": [[text]]}}}))
    assert look(body("x", stop=[text]))
    assert look(body(json.dumps({"a": text})))
    assert look(body(json.dumps([json.dumps({"a": [text]})])))
    assert look(body(json.dumps({text: 1})))
    assert (
        look(body("x", id=text)) and look(body("x", tool_call_id=text)) and look(body("x", temperature=text))
    )
    escaped = "".join(f"\\u{ord(char):04x}" for char in text)
    assert look(body('{"a": "' + escaped + '"}'))


@pytest.mark.parametrize("text", HARMLESS)
def test_what_tells_nothing_passes(text: str) -> None:
    assert not look(body(text))
    assert not look(body([{"type": "text", "text": text}], tools=[{text: text}]))
    assert not look(body(json.dumps({"a": text, text: 1})))


def test_numbers() -> None:
    for value in (1234567, -1234567, 1234567.5, 0.1234567, 10**30):
        assert look(body("x", n=value)), value
        assert look(body(json.dumps({"a": [value, "\\"]}))), value
    for value in (123456, 2**31 - 1, 10**9, 0.5, True, None):
        assert not look(body("x", n=value)), value
    assert not look(body("x", temperature=999.1234, top_p=0.3, presence_penalty=-1.5, frequency_penalty=1))
    for value in (1234567, 0.12345678, 1010.1234567):
        assert look(body("x", temperature=value)), value
    # Numbers of a list inside JSON are values of their own; in prose they are read as one.
    assert not look(body(json.dumps({"sizes": [1234, 5678], "a": '"'})))
    assert look(body("sizes: [1234,5678]"))


def test_a_placeholder_of_many_digits_is_none_of_ours() -> None:
    assert look(body("[NUM_23456723]"))
    assert look(body("[NUM_ABCDEFGH] [NUM_2345672A]"))


def test_our_own_strings_pass_in_their_own_place_only() -> None:
    assert found(body("x")) and not look(body("x"))
    assert look(body("m-2024-08-06"))
    ours = "call_" + "A2345672345672345672BCDE"
    message = {"role": "tool", "tool_call_id": ours, "content": "x"}
    assert not look(json.dumps({"messages": [message]}).encode())
    assert look(json.dumps({"messages": [{**message, "content": ours}]}).encode())
    assert look(json.dumps({"messages": [{**message, "tool_call_id": f"{ours}2"}]}).encode())


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no json",
        b"[]",
        b'"x"',
        b"1",
        b"{",
        b'{"a":"\xff"}',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_cannot_be_read_counts_as_a_find(raw: bytes) -> None:
    assert found(raw)


def by_patterns(text: str) -> list[Span]:
    """A detector that knows the structured rules and nothing else."""
    folded = fold(text)
    return merge(
        (*folded.original_span(*hit.span()), entity)
        for entity, _, expression in PATTERNS
        for hit in regex.finditer(expression, folded.text, FLAGS)
        if hit.group()
    )


FLAGS = regex.DOTALL | regex.MULTILINE | regex.IGNORECASE | regex.ASCII


async def masked(masker: Masker, content: str) -> MaskedRequest:
    call = {
        "type": "function",
        "id": "a1234567",
        "function": {"name": "f", "arguments": json.dumps({"a": content})},
    }
    return await masker.mask(
        {
            "messages": [
                {"role": "user", "content": content},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {
                    "role": "tool",
                    "tool_call_id": "a1234567",
                    "content": json.dumps({"b": [content, 1234, 5678]}),
                },
            ],
            "seed": 1234567890,
            "max_tokens": 123456,
            "temperature": 0.1 + 0.2,
        },
        request_id="r",
        upstream_model="m-2024-08-06",
        conversation="c",
        deadline=Deadline.after(CLOCK, 30),
    )


FRAGMENTS = st.sampled_from(
    [
        *TELLING,
        *HARMLESS,
        "1234",
        "567",
        "-",
        ".",
        " ",
        "년",
        "가",
        "@",
        "at",
        "[",
        "]",
        ",",
        "\n",
        "\\",
        '"',
        "{",
        "(",
        "o",
        "\u200b",
    ]
)


CONTENTS = st.lists(FRAGMENTS | st.text(max_size=3, alphabet="0123a-@. 가\\[{")).map("".join)


@settings(deadline=None, max_examples=150)
@given(CONTENTS)
async def test_what_masking_passes_the_second_look_passes(content: str) -> None:
    masker = Masker(
        MaskingSettings(layers=[], without_names="mask"), CLOCK, start_child=Children(by_patterns).start
    )
    await masker.start()
    try:
        request = await masked(masker, content)
    except MaskingRefused:
        return
    finally:
        await masker.close()
    assert not look(request.body)


@settings(deadline=None, max_examples=300)
@given(CONTENTS)
def test_once_what_remains_is_masked_nothing_remains(text: str) -> None:
    spans = remains(text)
    assert merge(spans) == spans
    assert not any(map(remains, gaps(text, spans)))
    assert bool(spans) is look(body(text.replace("[", "(").replace("{", "("))) or "[" in text or "{" in text


def test_what_a_cut_uncovers_is_masked_too() -> None:
    link = "www." + "a" * 253
    assert by_patterns(f"{link}www.corp.kr") == [(0, len(link), "URL")]
    assert remains(f"{link}www.corp.kr") == [(0, len(link), "URL"), (len(link), len(link) + 11, "URL")]
    # Where each cut uncovers the next one, the rest goes as a whole after a few.
    spans = remains(link * 20)
    assert (spans[0][0], spans[-1][1]) == (0, len(link) * 20) and len(spans) < 7


def test_hostile_bodies_take_linear_time() -> None:
    for unit in (
        ".......1a",
        "x1.y2.z",
        "010-123 a",
        "[NUM_",
        "[NUM_ABCDEFGH]1",
        "at] 1",
        '{"',
        "\\\\",
        "[1,",
    ):
        spent = []
        for size in (20_000, 100_000):
            raw = body((unit * size)[:size])
            begin = time.process_time()
            found(raw)
            spent.append(time.process_time() - begin)
        assert spent[1] < 15 * spent[0] + 0.05, unit
    deep = "1"
    for _ in range(14):
        deep = json.dumps([deep])
    begin = time.process_time()
    assert not look(body(deep))
    assert time.process_time() - begin < 1


def test_the_short_way_past_the_dearest_rule_is_taken() -> None:
    """The middle that lets the search be left out stands in the rule as it is written now."""
    assert [middle is not None for _, _, middle in second_look._RULES].count(True) == 1
