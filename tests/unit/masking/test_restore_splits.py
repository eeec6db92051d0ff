"""A streamed answer cut at every place, through the bytes of its events: always the unsplit result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

import pytest

from weighbridge.config.sse import SseParser
from weighbridge.masking.entities import TYPES
from weighbridge.masking.restore import StreamRestorer, restore_completion
from weighbridge.masking.vault import Mint, Vault, derive_key

ORIGINALS = ("010-1234-5678", 'https://a.kr/"x"\\n\n가', "김😀철수", "[x]", "\\")
MINT = Mint(derive_key(b"k", "placeholders", "c"))
PHONE, URL, PERSON, NUM, ID = (
    MINT.placeholder(entity, original)
    for entity, original in zip(("PHONE", "URL", "PERSON", "NUM", "ID"), ORIGINALS, strict=True)
)
TEXT = MINT.vault(json_answer=False)
JSON = MINT.vault(json_answer=True)
WIDE = "\uff3b" + NUM.lower()[1:-1].replace("_", " ") + "\uff3d"
MARKED = f"**\\{PHONE[:-1]}\\]**".replace("_", "\\_")

Key = tuple[int, str, int]
CHANNELS = ("content", "reasoning_content", "reasoning", "refusal", "tool", "function")


def delta_for(key: Key, text: str) -> dict[str, Any]:
    match key[1]:
        case "tool":
            return {"tool_calls": [{"index": key[2], "function": {"arguments": text}}]}
        case "function":
            return {"function_call": {"arguments": text}}
    return {key[1]: text}


def event(key: Key, text: str, reason: str | None = None) -> bytes:
    choice = {"index": key[0], "delta": delta_for(key, text), "finish_reason": reason}
    return json.dumps({"id": "x", "choices": [choice]}, ensure_ascii=False).encode()


def end(*indexes: int) -> bytes:
    choices = [{"index": index, "delta": {}, "finish_reason": "stop"} for index in indexes]
    return json.dumps({"id": "x", "choices": choices}).encode()


def read(events: list[bytes]) -> dict[Key, str]:
    """What a client adds up, channel by channel."""
    told: dict[Key, str] = {}
    for each in events:
        for choice in json.loads(each)["choices"]:
            delta = choice["delta"]
            parts = [((choice["index"], name, 0), delta[name]) for name in CHANNELS if name in delta]
            parts += [
                ((choice["index"], "tool", call["index"]), call["function"]["arguments"])
                for call in delta.get("tool_calls", [])
            ]
            if "function_call" in delta:
                parts.append(((choice["index"], "function", 0), delta["function_call"]["arguments"]))
            for key, text in parts:
                told[key] = told.get(key, "") + text
    return told


def streamed(vault: Vault, events: list[bytes], indexes: tuple[int, ...] = (0,)) -> dict[Key, str]:
    stream = StreamRestorer(vault)
    out = [made for each in events for made in stream.feed(each)]
    out += stream.feed(end(*indexes))
    assert stream.finish() == []
    return {key: text for key, text in read(out).items() if text}


def whole(vault: Vault, key: Key, text: str) -> str:
    """The unsplit result, by the way of whole answers."""
    message = {"role": "assistant", **delta_for(key, text)}
    document = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()
    made = json.loads(restore_completion(vault, document))["choices"][0]["message"]
    match key[1]:
        case "tool":
            return str(made["tool_calls"][0]["function"]["arguments"])
        case "function":
            return str(made["function_call"]["arguments"])
    return str(made[key[1]])


def inside_json(text: str, **more: Any) -> str:
    return json.dumps({"to": text, "n": 1}, ensure_ascii=False, **more)


PROSE = (
    f"가{PHONE}나",
    f"{URL}{PERSON}",
    f"[[{NUM}] [PHONE_ZZZZZZZZ] [PHO",
    f"see [1]{ID}\\{NUM}",
    f"{WIDE} {MARKED}",
    f"```\n{PERSON.lower()}\n```😀",
)
ARGUMENTS = (
    *map(inside_json, PROSE),
    json.dumps({"a": f"{URL}\\{ID}"}),
    json.dumps({"a": f"\u3010{URL[1:-1]}\u3011"}),
    inside_json(PERSON).replace("[", r"\u005b").replace("]", r"\u005d").replace("_", r"\u005F"),
    inside_json(PHONE).replace("_", r"\_"),
    inside_json(inside_json(NUM)),
)
CASES: list[tuple[Vault, Key, str]] = [
    *((TEXT, (0, name, 0), text) for name in CHANNELS[:4] for text in PROSE),
    *((JSON, (0, "content", 0), text) for text in ARGUMENTS),
    *((TEXT, (0, name, at), text) for name, at in (("tool", 3), ("function", 0)) for text in ARGUMENTS),
]
IDS = [f"{'json-' if vault is JSON else ''}{key[1]}-{at}" for at, (vault, key, _) in enumerate(CASES)]


@pytest.mark.parametrize(("vault", "key", "text"), CASES, ids=IDS)
def test_every_split_and_every_pair_of_splits(vault: Vault, key: Key, text: str) -> None:
    wanted = whole(vault, key, text)
    assert wanted != text
    cuts = [(at,) for at in range(len(text) + 1)]
    pairs = list(combinations(range(1, len(text)), 2)) if len(text) < 60 else []
    for cut in (*cuts, *pairs, tuple(range(len(text)))):
        edges = (0, *cut, len(text))
        pieces = [text[first:last] for first, last in pairwise(edges)]
        assert streamed(vault, [event(key, piece) for piece in pieces]) == {key: wanted}


@pytest.mark.parametrize("entity", TYPES)
def test_every_split_of_a_placeholder_of_every_type(entity: str) -> None:
    mint = Mint(derive_key(b"k", "placeholders", "c"))
    text = f"x{mint.placeholder(entity, ORIGINALS[1])}y"
    for key, vault in (((0, "content", 0), mint.vault(False)), ((0, "tool", 0), mint.vault(False))):
        wanted = json.dumps(ORIGINALS[1], ensure_ascii=False)[1:-1] if key[1] == "tool" else ORIGINALS[1]
        for first, last in combinations(range(len(text) + 1), 2):
            pieces = (text[:first], text[first:last], text[last:])
            assert streamed(vault, [event(key, piece) for piece in pieces]) == {key: f"x{wanted}y"}


@pytest.mark.parametrize("finish", [False, True])
def test_a_split_before_the_last_piece_of_a_choice(finish: bool) -> None:
    key = (0, "content", 0)
    for text in PROSE:
        for at in range(len(text) + 1):
            stream = StreamRestorer(TEXT)
            out = stream.feed(event(key, text[:at]))
            out += stream.feed(event(key, text[at:], "stop" if finish else None)) + stream.finish()
            assert read(out)[key] == whole(TEXT, key, text)


def interleaved(texts: dict[Key, str], size: int) -> Iterator[bytes]:
    """Pieces of every channel in turn."""
    for at in range(0, max(map(len, texts.values())), size):
        for key, text in texts.items():
            if text[at : at + size]:
                yield event(key, text[at : at + size])


@pytest.mark.parametrize("size", range(1, 30))
def test_choices_and_tools_in_turn(size: int) -> None:
    texts: dict[Key, str] = {}
    for index in range(3):
        for at, name in enumerate(CHANNELS[:4]):
            texts[index, name, 0] = PROSE[(index + at) % len(PROSE)]
        for call in range(2):
            texts[index, "tool", call] = ARGUMENTS[(index * 2 + call) % len(ARGUMENTS)]
    told = streamed(TEXT, list(interleaved(texts, size)), (0, 1, 2))
    assert told == {key: whole(TEXT, (0, *key[1:]), text) for key, text in texts.items()}


def test_choices_and_tools_in_one_event() -> None:
    """All choices and both calls move on in every event, cut at the same place."""
    text, arguments = PROSE[0], ARGUMENTS[0]
    for at in range(1, len(text)):
        pieces = []
        for part in (slice(0, at), slice(at, None)):
            calls = [{"index": call, "function": {"arguments": arguments[part]}} for call in (0, 1)]
            delta = {"content": text[part], "tool_calls": calls}
            choices = [{"index": index, "delta": delta, "finish_reason": None} for index in (0, 1)]
            pieces.append(json.dumps({"id": "x", "choices": choices}).encode())
        keys: list[Key] = [
            (index, *rest) for index in (0, 1) for rest in (("content", 0), ("tool", 0), ("tool", 1))
        ]
        assert streamed(TEXT, pieces, (0, 1)) == {
            key: whole(TEXT, (0, *key[1:]), text if key[1] == "content" else arguments) for key in keys
        }


@pytest.mark.parametrize("ascii_only", [False, True])
def test_events_cut_at_every_byte(ascii_only: bool) -> None:
    """Inside UTF-8 too: the parser puts events together before a character is read."""
    texts: dict[Key, str] = {(0, "content", 0): f"{PROSE[0]}😀{WIDE}", (0, "tool", 0): ARGUMENTS[1]}
    body = b""
    for each in interleaved(texts, 5):
        body += b"data: " + json.dumps(json.loads(each), ensure_ascii=ascii_only).encode() + b"\n\n"
    wanted = {key: whole(TEXT, key, text) for key, text in texts.items()}
    for at in range(len(body) + 1):
        parser = SseParser(1 << 20)
        assert streamed(TEXT, parser.feed(body[:at]) + parser.feed(body[at:])) == wanted
    parser = SseParser(1 << 20)
    single = [made for at in range(len(body)) for made in parser.feed(body[at : at + 1])]
    assert streamed(TEXT, single) == wanted


def test_an_event_without_choices_between_two_pieces_does_not_break_them() -> None:
    stream = StreamRestorer(TEXT)
    key = (0, "content", 0)
    beat = b'{"id":"x","choices":[]}'
    assert stream.feed(beat) == [beat]
    assert stream.feed(event(key, PHONE[:6])) == []
    assert stream.feed(beat) == [beat]
    assert read(stream.feed(event(key, PHONE[6:]))) == {key: ORIGINALS[0]}


def test_the_first_text_waits_for_nothing_but_a_placeholder() -> None:
    """Time to first token: an event goes out at once unless all of its text may be in a placeholder."""
    key = (0, "content", 0)
    for text in ("안녕", "Hi", "1[", "[1] and", "[ ] task", "x \\", "{", "[PHONY", "[EMAIL_"):
        assert len(StreamRestorer(TEXT).feed(event(key, text))) == 1, text
    for size in range(1, len(PHONE)):
        stream, events = (
            StreamRestorer(TEXT),
            [event(key, PHONE[at : at + size]) for at in range(0, len(PHONE), size)],
        )
        out = [stream.feed(each) for each in events]
        assert [len(made) for made in out] == [0] * (len(events) - 1) + [1]


def test_what_goes_past_unread_is_what_reading_would_send() -> None:
    """The short way for events that cannot begin a placeholder, against the long one."""
    for text in ('a "b" \n', "가😀", "\\", "x\\[", "[", "\uff3b", "\u3010", "\t{}", ""):
        for name in CHANNELS:
            for ascii_only in (False, True):
                for separators in ((",", ":"), (", ", ": ")):
                    given = json.loads(event((0, name, 0), text + PHONE[1:]))
                    raw = json.dumps(given, ensure_ascii=ascii_only, separators=separators).encode()
                    stream = StreamRestorer(TEXT)
                    made = read([*stream.feed(raw), *stream.finish()])
                    assert made == {(0, name, 0): whole(TEXT, (0, name, 0), text + PHONE[1:])}
