"""A tenant's own values, in every spelling, and lists that change or break."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.known_values import KnownLists, KnownValues
from weighbridge.masking.lists import BadList
from weighbridge.masking.term_index import TermIndex

VALUES = KnownValues(
    [
        ("KNOWN", "홍길동"),
        ("PERSON", "John Smith"),
        ("KNOWN", "이수"),
        ("KNOWN", "Ann"),
        ("ORG", "프로젝트 한빛"),
        ("ACCOUNT", "AB-1234-99"),
        ("KNOWN", "Łukasz"),
        ("KNOWN", "C++"),
    ]
)


def found(text: str) -> list[tuple[str, str]]:
    return [(text[start:end], entity) for start, end, entity in VALUES.find(text)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("홍길동", "홍길동"),
        ("고객 홍길동은 오늘", "홍길동"),
        ("고객홍길동님께서", "홍길동"),
        ("홍 길 동", "홍 길 동"),
        ("담당: 홍\n길동입니다", "홍\n길동"),
        ("홍\u200b길\u200b동", "홍\u200b길\u200b동"),
        ("홍-길-동", "홍-길-동"),
        ("홍길 동에게", "홍길 동"),
        ("q=%ED%99%8D%EA%B8%B8%EB%8F%99&x", "%ED%99%8D%EA%B8%B8%EB%8F%99"),
        ("\\ud64d\\uae38\\ub3d9", "\\ud64d\\uae38\\ub3d9"),
        ("%25ED%2599%258D%25EA%25B8%25B8%25EB%258F%2599", "%25ED%2599%258D%25EA%25B8%25B8%25EB%258F%2599"),
        ("john smith", "john smith"),
        ("JOHN SMITH's", "JOHN SMITH"),
        ("Ｊｏｈｎ　Ｓｍｉｔｈ", "Ｊｏｈｎ　Ｓｍｉｔｈ"),
        ("JohnSmith", "JohnSmith"),
        ("john_smith_2024.pdf", "john_smith"),
        ("John\nSmith", "John\nSmith"),
        ("J o h n S m i t h", "J o h n S m i t h"),
        ("John Smith씨는", "John Smith"),
        ("이수가 왔다", "이수"),
        ("이\n수가 왔다", "이\n수"),
        ("이―수한테 물었다", "이―수"),
        ("이 수는", "이 수"),
        ("\u110b\u1175\u1109\u116e님", "\u110b\u1175\u1109\u116e"),
        ("홍 길동으로", "홍 길동"),
        ("see Ann today", "Ann"),
        ("프로젝트 한빛을", "프로젝트 한빛"),
        ("프로젝트한빛", "프로젝트한빛"),
        ("ab-1234-99", "ab-1234-99"),
        ("AB 1234 99", "AB 1234 99"),
        ("AB123499", "AB123499"),
        ("łukasz", "łukasz"),
        ("in C++, say", "C++"),
    ],
)
def test_a_value_is_found(text: str, value: str) -> None:
    assert [hit for hit, _ in found(text)] == [value]
    assert [hit for hit, _ in found(f"①가나 {text} 다라")] == [value]


@pytest.mark.parametrize(
    "text",
    [
        "annual",
        "channel Anna",
        "아이수",
        "아이 수",
        "이 수많은",
        "John Smithson",
        "xJohn Smith",
        "AB-1234-990",
        "소홍 길동네",
        "홍 그리고 길동",
        "홍      길      동",
        "동길홍",
        "",
    ],
)
def test_a_piece_of_another_word_is_none(text: str) -> None:
    assert found(text) == []


def test_types_and_overlaps() -> None:
    assert found("John Smith와 홍길동, AB-1234-99") == [
        ("John Smith", "PERSON"),
        ("홍길동", "KNOWN"),
        ("AB-1234-99", "ACCOUNT"),
    ]
    both = KnownValues([("NAME", "홍길동"), ("KNOWN", "홍길동 과장")])
    assert both.find("홍길동 과장") == [(0, 6, "KNOWN")]
    assert KnownValues().find("홍길동") == []


@settings(deadline=None)
@given(
    st.lists(
        st.text(st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3), min_size=3, max_size=4),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["", " ", "\u200b", "\n", "-"]),
    st.sampled_from(["", "은", "에게", "님께서", "입니다"]),
)
def test_any_name_in_any_spelling(names: list[str], between: str, particle: str) -> None:
    values = KnownValues([("KNOWN", name) for name in names])
    for name in names:
        written = between.join(name)
        text = f"오늘 {written}{particle} 왔다"
        covered = {at for start, end, _ in values.find(text) for at in range(start, end)}
        assert set(range(3, 3 + len(written))) <= covered


@settings(deadline=None)
@given(st.text(max_size=60))
def test_spans_lie_in_the_text_and_hold_a_value(text: str) -> None:
    for start, end, _ in VALUES.find(text + " 홍①길동 홍길동"):
        assert 0 <= start < end <= len(text) + 10


def test_a_term_begins_where_a_character_does() -> None:
    index = TermIndex[str]()
    index.add("ĀĀ", "x")
    assert list(index.find("\x01\x01a")) == []
    assert list(index.find("aĀĀ")) == [(1, 3, "x")]


def names(count: int) -> list[str]:
    chance = random.Random(5)
    made: set[str] = set()
    while len(made) < count:
        made.add("".join(chr(chance.randrange(0xAC00, 0xD7A4)) for _ in range(3)))
    return sorted(made)


def test_fifty_thousand_names_are_fast(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("\n".join(names(50_000)), "utf-8")
    begun = time.process_time()
    values = KnownValues.load(path)
    assert time.process_time() - begun < 4
    text = "오늘 회의에서는 내년 예산과 인력 계획을 논의하고 담당자를 정하기로 했다. " * 22
    values.find(text)
    begun = time.process_time()
    for _ in range(20):
        values.find(text[:900])
    assert (time.process_time() - begun) / 20 < 0.003


@pytest.mark.parametrize("piece", ["홍 ", "홍길", "%ED", "john ", "ann", "이수", "\\u1", "홍길동"])
def test_hostile_text_costs_linear_time(piece: str) -> None:
    def cost(length: int) -> float:
        begun = time.process_time()
        VALUES.find(piece * (length // len(piece)))
        return time.process_time() - begun

    cost(2_000)
    assert cost(100_000) < max(12 * cost(20_000), 0.2)


@pytest.mark.parametrize(
    ("content", "line", "problem"),
    [
        ("좋은이름\n김\n", 2, "shorter than 2"),
        ("좋은이름\n--\n", 2, "shorter than 2"),
        ("좋은이름\nNOTHING\t비밀값\n", 2, "unknown entity type"),
        ("좋은이름\nPERSON\t-\n", 2, "shorter than 2"),
        ("좋은이름\nPERSON\t\n", 2, "shorter than 2"),
        ("a" * 201, 1, "longer than 200"),
        ("a" * 2_000, 1, "longer than 1000"),
    ],
)
def test_a_bad_line_is_named_without_its_value(tmp_path: Path, content: str, line: int, problem: str) -> None:
    path = tmp_path / "list.txt"
    path.write_text(content, "utf-8")
    with pytest.raises(BadList, match=problem) as caught:
        KnownValues.load(path)
    assert caught.value.line == line
    assert f"list.txt:{line}" in str(caught.value)
    assert "비밀값" not in str(caught.value) and "aaa" not in str(caught.value)


def test_a_file_that_is_no_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadList, match=r"none: cannot be read"):
        KnownValues.load(tmp_path / "none")
    path = tmp_path / "list.txt"
    path.write_bytes("좋은이름\n".encode() + "홍길동".encode("cp949"))
    with pytest.raises(BadList, match=r":2: is not UTF-8"):
        KnownValues.load(path)
    monkeypatch.setattr("weighbridge.masking.lists.MAX_BYTES", 10)
    with pytest.raises(BadList, match=r"is larger than 10 bytes"):
        KnownValues.load(path)
    monkeypatch.setattr("weighbridge.masking.lists.MAX_BYTES", 1_000)
    monkeypatch.setattr("weighbridge.masking.known_values.MAX_VALUES", 1)
    path.write_text("하나값\n둘값\n", "utf-8")
    with pytest.raises(BadList, match=r":2: is one of more than 1"):
        KnownValues.load(path)


def test_comments_empty_lines_and_types(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("\ufeff# 고객\r\n\r\n 홍길동 \r\nPERSON\tJohn Smith\nORG\t 한빛 \n", "utf-8")
    values = KnownValues.load(path)
    assert values.count == 3
    assert values.find("홍길동, John Smith, 한빛") == [(0, 3, "KNOWN"), (5, 15, "PERSON"), (17, 19, "ORG")]


class Clock:
    """Time that a test moves."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall_ns(self) -> int:
        return 0


def write(path: Path, content: str, at: int) -> None:
    path.write_text(content, "utf-8")
    os.utime(path, ns=(at, at))


def at_once(job: Callable[[], None]) -> None:
    job()


def one(lists: KnownLists, tenant: str, text: str) -> list[tuple[int, int, str]]:
    (spans,) = lists.find(tenant, [text])
    return spans


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    write(tmp_path / "default", "홍길동\n", 1)
    write(tmp_path / "acme", "PERSON\tJohn Smith\n", 1)
    return {"default": tmp_path / "default", "acme": tmp_path / "acme"}


def test_a_tenant_has_its_own_list_and_the_default_one(files: dict[str, Path]) -> None:
    lists = KnownLists(files, Clock())
    texts = ["홍길동 John Smith", "", "그 홍길동"]
    assert lists.find("acme", texts) == [[(0, 3, "KNOWN"), (4, 14, "PERSON")], [], [(2, 5, "KNOWN")]]
    assert lists.find("other", texts) == [[(0, 3, "KNOWN")], [], [(2, 5, "KNOWN")]]
    assert lists.find("default", texts) == lists.find("other", texts)
    assert KnownLists({}, Clock()).find("acme", texts) == [[], [], []]


def test_a_changed_file_is_read_again_within_a_second(files: dict[str, Path]) -> None:
    clock = Clock()
    lists = KnownLists(files, clock, start=at_once)
    assert one(lists, "acme", "김철수") == []
    write(files["acme"], "김철수\n", 2)
    clock.now += 0.9
    assert one(lists, "acme", "김철수") == []
    clock.now += 0.2
    assert one(lists, "acme", "김철수") == [(0, 3, "KNOWN")]
    assert one(lists, "acme", "John Smith") == []


def test_reading_again_keeps_nobody_waiting(files: dict[str, Path]) -> None:
    clock = Clock()
    jobs: list[Callable[[], None]] = []
    lists = KnownLists(files, clock, start=jobs.append)
    write(files["acme"], "김철수\n", 2)
    for _ in range(3):
        clock.now += 2
        assert one(lists, "acme", "김철수 John Smith") == [(4, 14, "PERSON")]
    assert len(jobs) == 1
    jobs.pop()()
    assert one(lists, "acme", "김철수 John Smith") == [(0, 3, "KNOWN")]
    write(files["acme"], "이영희\n", 3)
    clock.now += 2
    one(lists, "acme", "x")
    assert len(jobs) == 1


def test_a_thread_reads_it(files: dict[str, Path]) -> None:
    clock = Clock()
    lists = KnownLists(files, clock)
    write(files["acme"], "김철수\n", 2)
    clock.now += 2
    before = set(threading.enumerate())
    one(lists, "acme", "x")
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert one(lists, "acme", "김철수") == [(0, 3, "KNOWN")]


def test_an_unchanged_file_is_not_read_again(files: dict[str, Path]) -> None:
    clock = Clock()
    lists = KnownLists(files, clock, start=lambda job: pytest.fail("read again"))
    for _ in range(3):
        clock.now += 5
        assert one(lists, "acme", "홍길동") == [(0, 3, "KNOWN")]


def test_a_broken_list_stops_its_tenant_until_it_is_mended(
    files: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    lists = KnownLists(files, clock, start=at_once)
    write(files["acme"], "좋은이름\n김\n", 2)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            clock.now += 2
            with pytest.raises(MaskingRefused) as caught:
                lists.find("acme", ["John Smith"])
            assert caught.value.reason == "known_values"
    assert caplog.text.count("nothing it counts for leaves") == 1
    assert "좋은이름" not in caplog.text
    assert one(lists, "other", "홍길동") == [(0, 3, "KNOWN")]
    assert lists.problems() == {"acme": f"{files['acme']}:2: has a value shorter than 2 characters"}
    files["acme"].unlink()
    clock.now += 2
    with pytest.raises(MaskingRefused):
        lists.find("acme", ["x"])
    assert "cannot be read" in lists.problems()["acme"]
    write(files["acme"], "PERSON\tJohn Smith\n", 1)
    clock.now += 2
    assert one(lists, "acme", "John Smith") == [(0, 10, "PERSON")]
    assert lists.problems() == {}


def test_a_list_that_vanishes_stops_its_tenant(files: dict[str, Path]) -> None:
    clock = Clock()
    lists = KnownLists(files, clock, start=at_once)
    files["acme"].unlink()
    clock.now += 2
    with pytest.raises(MaskingRefused):
        lists.find("acme", ["John Smith"])


def test_a_default_list_that_was_never_there_stops_everybody(files: dict[str, Path]) -> None:
    clock = Clock()
    files["default"].unlink()
    lists = KnownLists(files, clock, start=at_once)
    for tenant in ("acme", "other"):
        with pytest.raises(MaskingRefused):
            lists.find(tenant, ["x"])
    write(files["default"], "홍길동\n", 1)
    clock.now += 1
    assert one(lists, "other", "홍길동") == [(0, 3, "KNOWN")]


def test_a_fault_of_ours_stops_the_tenant(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path, data: bytes) -> KnownValues:
        raise RuntimeError("홍길동")

    monkeypatch.setattr(KnownValues, "parse", broken)
    lists = KnownLists(files, Clock(), start=at_once)
    with pytest.raises(MaskingRefused):
        lists.find("acme", ["x"])
    assert lists.problems()["acme"].endswith("cannot be used (RuntimeError)")
