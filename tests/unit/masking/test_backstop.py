"""The second look."""

from __future__ import annotations

import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking import backstop
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


@pytest.mark.parametrize("alphabet", ["0123456789", "01 ,.-", "1,  x", "1+( ", "1①,::~x", "12345,678 -.x()+"])
@pytest.mark.parametrize("window", [70, 100, 129])
def test_searching_in_pieces_finds_what_searching_at_once_does(
    alphabet: str, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backstop, "_WINDOW", window)
    rng = random.Random(window)
    for _ in range(500):
        text = "".join(rng.choices(alphabet, k=rng.randrange(600)))
        assert list(backstop._runs(text)) == [run.span() for run in backstop._RUN.finditer(text)]


@pytest.mark.parametrize("unit", ["word ", "111111x", "1", "1-", "1 1 1 1 1 1    "])
def test_no_search_holds_the_interpreter_for_long(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A search is one piece of work for the interpreter: what is counted is how far each may look.
    reach: list[int] = []

    class Noting:
        def __init__(self, pattern: re.Pattern[str]) -> None:
            self._pattern = pattern

        def search(self, text: str, start: int, end: int) -> re.Match[str] | None:
            reach.append(end - start)
            return self._pattern.search(text, start, end)

        def match(self, text: str, start: int, end: int) -> re.Match[str] | None:
            reach.append(end - start)
            return self._pattern.match(text, start, end)

    for name in ("_RUN", "_MORE"):
        monkeypatch.setattr(backstop, name, Noting(getattr(backstop, name)))
    list(backstop._runs((unit * 200_000)[:200_000]))
    assert max(reach) <= 20_000
