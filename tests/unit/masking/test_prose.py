"""Where a name could stand, and where there is nothing but code and numbers."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.prose import languages_of


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("Please call me back tomorrow.", "en"),
        ("John Smith", "en"),
        ("Mr. Smith", "en"),
        ("J. Smith", "en"),
        ("John\nSmith", "en"),
        ("Ｊｏｈｎ　Ｓｍｉｔｈ", "en"),
        ("Müller Straße", "en"),
        ('{"name": "John Smith"}', "en"),
        ("x = 1  # ask John about the mean", "en"),
        ("print('Hello John, how are you')", "en"),
        ("홍길동입니다", "ko"),
        ("홍길동님", "ko"),
        ("김철수에게", "ko"),
        ("담당자 홍길동", "ko"),
        ("홍 길 동", "ko"),
        ("이름: 홍길동", "ko"),
        ("Dear Kim, 안녕하세요 please call me", "en ko"),
        ("홍길동 과장에게 John Smith 씨가", "en ko"),
    ],
)
def test_prose(text: str, languages: str) -> None:
    assert languages_of(text) == set(languages.split())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12345",
        "3.14, 2.72 | 10:30",
        "hello",
        "이름",
        "3시 5분",
        "user_name",
        "getUserName()",
        '{"a": 1, "b": [1, 2], "total": 3}',
        '{"id": null, "ok": true, "first": "John"}',
        "def main():\n    return x",
        "for i in range(10):\n    total += values[i]",
        "public static void main(String[] args) { int x = 0; }",
        "const foo = await bar(baz);",
        "x = y + z",
        "\\frac{a}{b} + \\sqrt{c}",
        "https://example.com/a/b?c=d",
        "a b c",
        "金哲洙",
    ],
)
def test_no_prose(text: str) -> None:
    assert languages_of(text) == set()


@settings(deadline=None)
@given(st.text(st.sampled_from("abc ABC.\n,'가나다_(1"), max_size=60), st.text(max_size=20))
def test_prose_stays_prose_whatever_follows(text: str, more: str) -> None:
    assert languages_of(text) <= languages_of(f"{text}\n\n{more}") | languages_of(text)
    assert "ko" in languages_of(f"{more} 홍길동입니다 감사합니다")
    assert "en" in languages_of(f"{more}\n\nMy name follows hereafter, gentlemen assembled")


@pytest.mark.parametrize("piece", ["a", "a ", "ab ", "ab\n", "a.", "가", "가 ", "return ", "a, ", "a'"])
def test_hostile_text_costs_linear_time(piece: str) -> None:
    def cost(length: int) -> float:
        text = piece * (length // len(piece))
        begun = time.process_time()
        languages_of(text)
        return time.process_time() - begun

    cost(2_000)
    assert cost(100_000) < max(12 * cost(20_000), 0.2)
