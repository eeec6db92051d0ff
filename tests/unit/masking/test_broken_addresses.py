"""Korean addresses broken by a line's end, inside a road's name above all; and lines that are no address's rest."""

from __future__ import annotations

import re
import time
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.korean_places import korean_address
from weighbridge.masking.detector import Detector
from weighbridge.masking.entities import gaps
from weighbridge.masking.layers.base import LayerOptions

DETECTOR = Detector(("ko-rules", "en-rules"), LayerOptions())
ENDS = ("\n", "\r\n")
AROUND = (
    ("", ""),
    ("집은 ", " 입니다"),
    ("배송지는 ", "로 보내 주세요"),
    ("집은 ", " 연락처: 010-1234-5678"),
    ("* 배송지: ", "\n* 이름: 홍길동"),
)
_ROAD = re.compile(r"(\S+[로길]) (?:\d+번길 )?\d")
ROADS = sorted({hit[1] for seed in range(900) if (hit := _ROAD.search(korean_address(Random(seed))))})


def left(text: str) -> str:
    """What is left to see of a text, letters and digits alone."""
    return re.sub(r"[\W_]", "", "|".join(gaps(text, DETECTOR.find(text))))


def seen(text: str, value: str) -> str:
    """Which letters and digits are left of the value that begins at the first `|` and ends at the last."""
    first, last = text.index("|"), text.rindex("|")
    text = text[:first] + text[first + 1 : last] + text[last + 1 :]
    covered = {at for start, end, _ in DETECTOR.find(text) for at in range(start, end)}
    assert text[first : last - 1].replace("\r", "").replace("\n", "") == value
    return "".join(text[at] for at in range(first, last - 1) if at not in covered and text[at].isalnum())


@pytest.mark.parametrize(
    "text",
    [
        "세종시 도움|3로 85",
        "도움|3로 85",
        "평택시 고덕여염|8길 33",
        "마곡중앙|8로3길 11",
        "세종시 도움|3로|85",
        "강남대|로 123",
        "테헤란|로 152",
        "도움3|로 85",
        "봉은사|로57길 12",
        "서울특별시 강남구 테헤란|로 152",
        "테헤란로|152",
        "서울 강남구 봉은사로|57길 12",
        "서울 강남구 봉은사로5|7길 12",
        "서울 강남구 역삼|1동 123-4",
        "경기 성남시 분당구 정자동 938번|지",
        "서|울 중구 세종대로2길 40",
        "경기도 성|남시 분당구 정자일로 72-17",
        "충북 청주시 흥덕구 가로|수로 253 미래타워 103동 1502호",
        "전북 전주시 완산구 효자동2|가 1426-47",
        "청주시 흥|덕구 1순환로 1137",
    ],
)
@pytest.mark.parametrize("end", [*ENDS, " \n  "])
def test_nothing_is_left_of_an_address_in_pieces(text: str, end: str) -> None:
    assert left(text.replace("|", end)) == ""


@pytest.mark.parametrize("text", ["도움|3로 85", "테헤란|로 152", "서울 강남구 봉은사로5|7길 12"])
@pytest.mark.parametrize("cut", ["<b></b>", "<wbr>", "\\n", "&#10;"])
def test_a_tag_or_an_escaped_line_end_hides_no_address(text: str, cut: str) -> None:
    assert left(text.replace("|", cut)) == ""


def test_there_are_many_roads() -> None:
    assert len(ROADS) > 25 and "도움3로" in ROADS


@pytest.mark.parametrize("road", ROADS)
def test_a_line_end_anywhere_in_a_road_s_name_hides_nothing(road: str) -> None:
    value = f"{road} 85"
    for end in ENDS:
        for at in range(1, len(road) + 1):
            for before, after in AROUND:
                text = f"{before}|{value[:at]}{end}{value[at:]}|{after}"
                assert seen(text, value) == "", text


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 2**32), st.sampled_from(ENDS), st.sampled_from(AROUND))
def test_a_line_end_anywhere_in_an_address_hides_nothing(
    seed: int, end: str, around: tuple[str, str]
) -> None:
    value = korean_address(Random(seed))
    for at in range(1, len(value)):
        text = f"{around[0]}|{value[:at]}{end}{value[at:]}|{around[1]}"
        assert seen(text, value) == "", text


@pytest.mark.parametrize(
    "text",
    [
        "우리 팀은 이번에\n3위로 12계단 올랐다",
        "인원은\n3명으로 2명 줄었다",
        "회의는\n2시로 30분 늦췄다",
        "서울이\n2위로 3계단 올랐다",
        "모두\n5가지 방법으로 12번 해 보자",
        "결과는 12\n지인에게 3번 물었다",
        "이번 경\n기는 3대 2로 이겼다",
        "추가\n1: 사과 3개",
    ],
)
def test_wrapped_prose_is_no_address(text: str) -> None:
    assert not [hit for hit in DETECTOR.find(text) if hit[2] == "ADDRESS"]


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("주소: 서울시 강남구 역삼동 12-3\n앞으로 3일 안에 보내 주세요", "앞으로3일안에보내주세요"),
        ("주소: 서울시 강남구 역삼동 12-3\n3명이 갑니다", "3명이갑니다"),
        ("주소: 서울시 강남구 테헤란로 12\n3 사과와 배", "3사과와배"),
        ("주소: 서울시 강남구 테헤란로 12\n2. 둘째 안내", "2둘째안내"),
        ("주소: 서울시 강남구 역삼동 12-3\n비고 2: 문 앞에 둘 것", "비고2문앞에둘것"),
        ("주소: 서울시 강남구 역삼동 12 한빛빌딩\n바로 3분 거리", "바로3분거리"),
    ],
)
def test_the_line_behind_a_whole_address_stays(text: str, stays: str) -> None:
    assert left(text).endswith(stays)


@pytest.mark.parametrize(
    "unit",
    ["도움\n3로 85 ", "3로\n", "서\n울 1", "가1\n호 ", "역삼동 12\n동 3 ", "주소 강남구 로1\n길", "로 1:\n"],
)
def test_hostile_texts_take_linear_time(unit: str) -> None:
    spent = []
    for size in (6_000, 30_000):
        text = (unit * size)[:size]
        begin = time.process_time()
        DETECTOR.find(text)
        spent.append(time.process_time() - begin)
    assert spent[1] < 12 * spent[0] + 0.1, unit
