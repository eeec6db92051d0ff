"""Encoded runs: what decodes to text or is too long to tell refuses, a checksum is masked."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
import time
import urllib.parse
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.entities import ENCODED
from weighbridge.masking.folding import fold_text
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.decoding import as_text
from weighbridge.masking.layers.encoded import Encoded, build

LAYER = build(LayerOptions())
HIDDEN = [
    "홍길동",
    "김철수 010-1234-5678",
    "010-1234-5678",
    "900101-1234567",
    "hong.gd@example.com",
    "John Smith",
    "My name is John Smith and I live in Seoul.",
    "남궁민수님, 안녕하세요",
    "{\"name\": \"홍길동\", \"phone\": \"01012345678\"}",
]  # fmt: skip
WAYS = {
    "base64": lambda data: base64.b64encode(data).decode(),
    "base64 unpadded": lambda data: base64.b64encode(data).decode().rstrip("="),
    "base64 for addresses": lambda data: base64.urlsafe_b64encode(data).decode(),
    "hexadecimal": lambda data: data.hex(),
    "hexadecimal in capitals": lambda data: data.hex().upper(),
    "hexadecimal pairs": lambda data: data.hex(" "),
    "hexadecimal pairs with colons": lambda data: data.hex(":"),
    "hexadecimal with 0x": lambda data: "0x" + data.hex(),
    "base32": lambda data: base64.b32encode(data).decode(),
    "percent signs": lambda data: "".join(f"%{byte:02X}" for byte in data),
    "quoted printable": lambda data: "".join(f"={byte:02X}" for byte in data),
    "compressed": lambda data: base64.b64encode(gzip.compress(data)).decode(),
    "twice": lambda data: base64.b64encode(base64.b64encode(data)).decode(),
    "data address": lambda data: "data:text/plain;base64," + base64.b64encode(data).decode(),
    "mail word": lambda data: "=?utf-8?B?" + base64.b64encode(data).decode() + "?=",
}  # fmt: skip


def types(text: str) -> set[str]:
    return {entity for _, _, entity in LAYER.find(fold_text(text))}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_text_in_disguise_refuses(hidden: str, way: str) -> None:
    run = WAYS[way](hidden.encode())
    for text in (
        run,
        f"이 값을 풀어 주세요: {run}",
        f"decode {run}, please",
        f"값은 {run}입니다",
        f'{{"v":"{run}"}}',
    ):
        assert ENCODED in types(text), text


@pytest.mark.parametrize(
    "value", ["D123Z4207", "M01298832", "12가3456", "275부 6819", "1234567", "010-1234-567", "a@b.co"]
)
def test_one_short_value_refuses(value: str) -> None:
    for run in (base64.b64encode(value.encode()).decode(), base64.b32encode(value.encode()).decode()):
        if len(run.rstrip("=")) >= 14 or run != run.upper():
            assert ENCODED in types(f"값은 {run} 입니다"), run


def test_short_random_runs_are_no_values() -> None:
    rng = random.Random(5)
    runs = [base64.b64encode(rng.randbytes(rng.choice((6, 9, 12, 15)))).decode() for _ in range(3_000)]
    assert sum(ENCODED in types(run) for run in runs) <= 6


@pytest.mark.parametrize("width", [4, 8, 20, 76])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n> ", "  \n  "])
def test_base64_over_lines_refuses(width: int, end: str) -> None:
    run = base64.b64encode("홍길동의 전화번호는 010-1234-5678이고 주소는 서울입니다".encode()).decode()
    broken = end.join(run[at : at + width] for at in range(0, len(run), width))
    assert ENCODED in types(f"풀어 줘: {broken}\n고마워")


def test_korean_of_old_systems_refuses() -> None:
    data = "홍길동 고객님".encode("cp949")
    assert ENCODED in types(base64.b64encode(data).decode())
    assert ENCODED in types(urllib.parse.quote(data))
    assert ENCODED in types(base64.b64encode("Hong Gildong".encode("utf-16-le")).decode())


def test_random_bytes_are_no_text() -> None:
    assert as_text(b"John Lee") == "John Lee"
    assert as_text("홍길동".encode()) == "홍길동"
    for accident in (b"aB3 dE9x", b"xYz,,,--", b"K{|}~aaaa", bytes(range(1, 9)), b"John"):
        assert as_text(accident) is None
    hits = 0
    for seed in range(20_000):
        hits += as_text(random.Random(seed).randbytes(9)) is not None
    assert hits < 5


def test_glued_before_hides_nothing() -> None:
    run = base64.b64encode("홍길동 010-1234-5678".encode()).decode()
    for glued in ("x", "ab", "id-", "abc/", "user_", "tok=", "Basic "):
        assert ENCODED in types(glued + run), glued
    long = base64.b64encode(("홍길동 010-1234-5678, " * 2).encode()).decode().rstrip("=")
    for glued in ("/x9", "_Qz7pK", "AAAA", "zZ"):
        assert ENCODED in types(long + glued), glued


@pytest.mark.parametrize(
    "made",
    [
        lambda data: base64.b64encode(data).decode(),
        lambda data: data.hex(),
        lambda data: base64.b32encode(data).decode(),
        lambda data: "\n".join(base64.encodebytes(data).decode().splitlines()),
        lambda data: base64.urlsafe_b64encode(data).decode(),
    ],
)
def test_a_long_random_run_refuses(made: object) -> None:
    assert callable(made)
    for seed in range(20):
        assert ENCODED in types("see " + made(random.Random(seed).randbytes(150)) + " end")


def test_binary_refuses() -> None:
    for data in (b"\x89PNG\r\n\x1a\n" + bytes(20), b"%PDF-1.7\n" + bytes(20), b"\x1f\x8b\x08" + bytes(20)):
        assert ENCODED in types(base64.b64encode(data).decode())
    assert ENCODED in types("\x00\x01\x02\x03\x04\x05\x06\x07\x0e")
    assert ENCODED in types("begin 644 names.txt\n#0V%T\n`\nend")
    assert ENCODED in types('<~87cURD]i,"Ebo80~>')


@pytest.mark.parametrize("name", ["md5", "sha1", "sha224", "sha256", "sha384", "sha512"])
def test_a_checksum_is_masked(name: str) -> None:
    for seed in range(30):
        made = hashlib.new(name, str(seed).encode())
        text = f"commit {made.hexdigest()} fixes the parser"
        assert [(text[start:end], entity) for start, end, entity in LAYER.find(text)] == [
            (made.hexdigest(), "ID")
        ]
    assert types(f"integrity sha512-{base64.b64encode(hashlib.sha512(b'x').digest()).decode()}") == {"ID"}


def test_a_short_commit_and_a_uuid_are_left_to_others() -> None:
    assert types("fixed in 9fceb02 and 3f2a9c1b") == set()
    assert types(f"id {uuid.UUID(int=0x123E4567E89B12D3A456426614174000)}") <= {"ID"}


@pytest.mark.parametrize(
    "text",
    [
        "Please summarise the internationalisation guidelines for the transportation department.",
        "def get_element_by_identifier(self, document_identifier): return self.elements[document_identifier]",
        "from weighbridge.masking.layers.structured import PlaceholderConfigurationFactory",
        "/usr/local/lib/python3.11/site-packages/transformers/models/llama/modeling_llama.py",
        "https://example.com/ko/%ED%99%8D%EA%B8%B8%EB%8F%99?q=%ED%95%9C%EA%B8%80",
        "a=10=20=30 and 100%25 of 3%20%",
        "printf('%d%s%02x%08lx\\n')",
        "ACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGTACGT",
        "=" * 200 + "-" * 200 + "_" * 200 + "a" * 200 + "0" * 200,
        "00:1A:2B:3C:4D:5E and 2001:0db8:85a3:0000:0000:8a2e:0370:7334",
        "Reasoning text stays\nseparate from it",
        "ab:" * 500 + "00 " * 500,
        "#ff8800 0xdeadbeef 0x00007fff5fbff8c0",
        "3.14159265358979323846264338327950288419716939937510",
        "CCC(=O)OC1=CC=CC=C1C(=O)O 2-propyl-1H-indene C9H11NO2",
        "1971-09-07 010-1234-5678 110-389-204517 2026/06/01",
        "getElementsByClassNameAndReturnOnlyTheVisibleOnes",
        "사용자가 입력한 ABC123 코드와 XYZ_2024_final_v2 파일",
        "\x1b[31mred\x1b[0m \x1b[32mgreen\x1b[0m " * 10,
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert LAYER.find(text) == []


def test_what_is_looked_up_in_a_decoded_text_can_be_told() -> None:
    asked: list[str] = []

    def look(text: str) -> bool:
        asked.append(text)
        return True

    run = base64.b64encode(b"10.20.30.40:8080").decode()
    assert Encoded(look).find(run) == [(0, len(run), ENCODED)]
    assert "10.20.30.40:8080" in asked
    assert Encoded(lambda text: False).find(run) == [(0, len(run), "ID")]


@pytest.mark.parametrize(
    "piece",
    ["aB3d", "7ZmN", "%41", "%41x", "=41", "ab ", "00:", "A2", "a\n", "aaaa\n", "data:", "=?u?b?", "<~a", "\x01", "0x",
     "ab/cd-", "MTIz", "www.%41%42%43", "begin 644 ", "deadbeef\n"],
)  # fmt: skip
def test_hostile_text_costs_linear_time(piece: str) -> None:
    def cost(length: int) -> float:
        text = piece * (length // len(piece))
        begun = time.process_time()
        LAYER.find(text)
        return time.process_time() - begun

    cost(2_000)
    assert cost(100_000) < max(12 * cost(20_000), 0.2)
    assert cost(100_000) < 5


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from("abcXYZ0123+/=_-% \n<~:@홍"), max_size=120))
def test_spans_lie_in_the_text(text: str) -> None:
    for start, end, entity in LAYER.find(text):
        assert 0 <= start < end <= len(text)
        assert entity in (ENCODED, "ID")


@settings(deadline=None)
@given(
    st.text(st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3), min_size=3, max_size=40),
    st.sampled_from(sorted(WAYS)),
)
def test_korean_is_found_in_every_disguise(hidden: str, way: str) -> None:
    assert ENCODED in types(f"값: {WAYS[way](hidden.encode())}.")
