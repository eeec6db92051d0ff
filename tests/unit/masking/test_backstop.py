"""The second look."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.backstop import leftovers


def _found(text: str) -> list[tuple[str, str]]:
    return [(text[start:end], entity) for start, end, entity in leftovers(text)]


@pytest.mark.parametrize(
    "value",
    [
        "1234567",
        "010-1234-5678",
        "0 1 0 1 2 3 4",
        "123.456.7890",
        "(02) 123-4567",
        "+1-984-182-0190",
        "１２３４５６７",
        "12\u200b34\u200b567",
        "①②③④⑤⑥⑦",
        "123–4567",
        "AB1234567cd",
        "900101,1234567",
        "12 - 34 - 567",
    ],
)
def test_seven_digits_are_found_whatever_separates_them(value: str) -> None:
    assert _found(f"값은 {value}입니다") == [(value, "NUM")]


@pytest.mark.parametrize(
    "harmless",
    [
        "123456",
        "1,234,567",
        "12,345,678.90",
        "2019-2023",
        "(2019-2023)",
        "(1,234,567)",
        "2019–2023",
        "[1, 2, 3, 4, 5, 6, 7, 8]",
        "1\n2\n3\n4\n5\n6\n7",
    ],
)
def test_amounts_years_and_lists_pass(harmless: str) -> None:
    assert _found(f"see {harmless} there") == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("mail hong@corp now", "hong@corp"),
        ("메일:홍길동@회사.한국, 끝", "홍길동@회사.한국"),
        ("<hong＠corp.kr>", "hong＠corp.kr"),
        ("@", "@"),
        ("a@@b", "a@@b"),
    ],
)
def test_every_at_sign_is_found(text: str, value: str) -> None:
    assert (value, "EMAIL") in _found(text)


@settings(deadline=None)
@given(
    st.text(),
    st.text("0123456789", min_size=7, max_size=20),
    st.sampled_from(["", "-", " ", ".", " - ", "\u200b", "/", "–"]),
    st.text(),
)
def test_no_planted_number_is_left(before: str, digits: str, separator: str, after: str) -> None:
    text = before + "x" + separator.join(digits) + "x" + after
    start = len(before) + 1
    end = start + len(separator.join(digits))
    years = len(digits) == 8 and separator in ("", "-")
    covered = {place for first, last, _ in leftovers(text) for place in range(first, last)}
    assert years or all(place in covered for place in range(start, end))


@settings(deadline=None)
@given(st.text())
def test_a_second_look_at_the_rest_finds_nothing(text: str) -> None:
    rest = []
    last = 0
    for start, end, _ in leftovers(text):
        rest.append(text[last:start])
        last = end
    rest.append(text[last:])
    assert all(leftovers(piece) == [] for piece in rest)


@pytest.mark.parametrize("piece", ["@", "1-", "1 ", "1", "a@", "123456 a", "1,"])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    before = time.process_time()
    leftovers(text)
    assert time.process_time() - before < 3
