"""Blocked terms, in every spelling, and regular expressions on a leash."""

from __future__ import annotations

import threading
import time

import pytest

from weighbridge.masking.blocked import compile_blocked
from weighbridge.masking.rules import Blocked

TERMS = compile_blocked(["대외비", "CONFIDENTIAL", "Top Secret", "프로젝트 한빛", "Q3-Plan", "기밀"], [], 1.0)


def found(text: str) -> bool:
    return TERMS.found(["nothing here", text])


@pytest.mark.parametrize(
    "text",
    [
        "이 문서는 대외비입니다",
        "대외비",
        "사내대외비문서",
        "[대 외 비]",
        "대\u200b외\u200b비",
        "대\n외\n비 문서",
        "대·외·비로 분류",
        "대외\n비를 다룬",
        "%EB%8C%80%EC%99%B8%EB%B9%84",
        "\\ub300\\uc678\\ube44",
        "CONFIDENTIAL",
        "this is confidential.",
        "Ｃｏｎｆｉｄｅｎｔｉａｌ",
        "confidential_2024.pdf",
        "C O N F I D E N T I A L",
        "C.O.N.F.I.D.E.N.T.I.A.L",
        "confiden-\ntial",
        "CONFIDENTIAL자료",
        "&#67;ONFIDENTIAL",
        "top secret",
        "TOP-SECRET",
        "top  secret",
        "TopSecret",
        "top\nsecret",
        "프로젝트 한빛을",
        "프로젝트한빛",
        "q3plan",
        "Q3 plan",
    ],
)
def test_a_term_is_found(text: str) -> None:
    assert found(text)
    assert found(f"먼저 {text} 그리고")
    assert found(f"so {text}, then")


@pytest.mark.parametrize(
    "text",
    [
        "confidentiality matters",
        "unconfidential",
        "the stop secretary",
        "그 상대 외 비교 대상",
        "대외 비용을 줄인",
        "외국 기 밀림",
        "con fidential",
        "대외적으로 비밀",
        "Q3 planning",
        "",
    ],
)
def test_an_accident_is_none(text: str) -> None:
    assert not found(text)


def test_it_is_what_rules_ask_for() -> None:
    terms: Blocked = TERMS
    assert not terms.found([])


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"(?i)project-\d{3}", "see PROJECT-123"),
        (r"^SECRET:", "SECRET: x"),
        (r"\bINTERNAL ONLY\b", "ＩＮＴＥＲＮＡＬ ＯＮＬＹ"),
        (r"\bCONFIDENTIAL\b", "C O N F I D E N T I A L"),
        (r"\bCONFIDENTIAL\b", "CON\u200bFIDENTIAL"),
        (r"\bA-\d{4}\b", "id A%2D1234 x"),
        ("①", "표 ①"),
    ],
)
def test_a_pattern_is_found(pattern: str, text: str) -> None:
    assert compile_blocked([], [r"never\d", pattern], 1.0).found(["other", text])
    assert not compile_blocked([], [r"never\d"], 1.0).found(["other", text])


def test_a_search_that_takes_too_long_counts_as_found() -> None:
    slow = compile_blocked([], [r"^(?:a|aa)+$"], 0.05)
    begun = time.monotonic()
    assert slow.found(["a" * 5_000 + "b"])
    assert time.monotonic() - begun < 2
    assert not slow.found(["ab"])


def test_the_time_is_one_for_all_texts() -> None:
    class Slow:
        now = 0.0

        def monotonic(self) -> float:
            self.now += 0.3
            return self.now

        def wall_ns(self) -> int:
            return 0

    assert not compile_blocked([], ["never"], 10, clock=Slow()).found(["a"] * 4)
    assert compile_blocked([], ["never"], 1, clock=Slow()).found(["a"] * 4)


def test_other_threads_go_on_during_a_search() -> None:
    slow = compile_blocked([], [r"^(?:a|aa)+$"], 0.3)
    searching = threading.Thread(target=slow.found, args=(["a" * 5_000 + "b"],))
    searching.start()
    steps = 0
    while searching.is_alive():
        steps += 1
    searching.join()
    # A search that kept the interpreter would leave us a handful.
    assert steps > 1_000


@pytest.mark.parametrize(
    ("words", "patterns", "limit", "named"),
    [
        ([], ["ok", "(unclosed"], 1.0, "pattern 1 "),
        ([], ["a*"], 1.0, "pattern 0 "),
        ([], ["x" * 2_001], 1.0, "pattern 0 "),
        (["good", "-"], [], 1.0, "word 1 "),
        (["good"], [], 0.0, "time limit"),
    ],
)
def test_what_cannot_be_used_is_named_by_number(
    words: list[str], patterns: list[str], limit: float, named: str
) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        compile_blocked(words, patterns, limit)
    assert "unclosed" not in str(caught.value)


@pytest.mark.parametrize("piece", ["대 ", "대외 ", "c o n f ", "top ", "%41", "a.", "q3", "대외비요"[:2]])
def test_hostile_text_costs_linear_time(piece: str) -> None:
    def cost(length: int) -> float:
        begun = time.process_time()
        TERMS.found([piece * (length // len(piece))])
        return time.process_time() - begun

    cost(2_000)
    assert cost(100_000) < max(12 * cost(20_000), 0.2)
