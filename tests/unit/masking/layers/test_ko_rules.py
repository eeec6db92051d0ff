"""The Korean rules: where exactly a value begins and ends, what is none, and what hostile text costs."""

from __future__ import annotations

import time

import pytest

from weighbridge.masking.entities import merge
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.ko_rules import KoRules, build

RULES: KoRules = build(LayerOptions())


def found(text: str) -> list[tuple[str, str]]:
    return [(text[start:end], entity) for start, end, entity in merge(RULES.find(text))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Names
        ("담당자: 홍길동", [("홍길동", "PERSON")]),
        ("성명 홍길동, 소속 총무과", [("홍길동", "PERSON")]),
        ("홍길동 과장님께서 승인함", [("홍길동", "PERSON")]),
        ("김 과장이 왔다", [("김 과장", "PERSON")]),
        ("수지님과 은지 씨가", [("수지", "PERSON"), ("은지", "PERSON")]),
        ("최씨가 왔다", [("최", "PERSON")]),
        ("성 명 : 홍 길 동", [("홍 길 동", "PERSON")]),
        ("성명:\r\n홍길동\r\n", [("홍길동", "PERSON")]),
        ("신청자 박\n서연", [("박\n서연", "PERSON")]),
        ("A(48)씨와 B 군", [("A", "PERSON"), ("48", "NUM"), ("B", "PERSON")]),
        ("성명: 이재훈 (LEE JAEHOON)", [("이재훈 (LEE JAEHOON)", "PERSON")]),
        ("이름이 정보라입니다", [("정보라", "PERSON")]),
        ("응우옌티란 씨", [("응우옌티란", "PERSON")]),
        # Romanised
        ("ask Kim Min-su now", [("Kim Min-su", "PERSON")]),
        ("Seo-yeon Park said", [("Seo-yeon Park", "PERSON")]),
        ("by NGUYEN THI HOA today", [("NGUYEN THI HOA", "PERSON")]),
        ("152 Teheran-ro, Gangnam-gu, Seoul", [("152 Teheran-ro, Gangnam-gu, Seoul", "ADDRESS")]),
        # Keys
        ('{"customer_name": "min seo", "n": 1}', [("min seo", "PERSON")]),
        ('{"메모": 1, "account_owner": "min seo"}', [("min seo", "PERSON")]),
        ("<담당자>마이클 리</담당자>", [("마이클 리", "PERSON")]),
        ('{"성명": "홍길동"}', [("홍길동", "PERSON")]),
        # Numbers
        ("번호는 공일공 일이삼사 오육칠팔로", [("공일공 일이삼사 오육칠팔", "PHONE")]),
        ("번호는 010 번 1234 번 5678 번", [("010 번 1234 번 5678", "PHONE")]),
        ("주민번호 900101 다시 1234567", [("900101 다시 1234567", "NUM")]),
        ("사업자등록번호 120-81-47521", [("120-81-47521", "BRN")]),
        ("법인등록번호: 110111-0012345", [("110111-0012345", "CRN")]),
        ("운전면허번호 서울 12-345678-90", [("서울 12-345678-90", "LICENSE")]),
        ("건강보험증번호 1-2345678901", [("1-2345678901", "HEALTH")]),
        ("사번은 A-20931이고", [("A-20931", "ID")]),
        ("카카오뱅크 3333-01-1234567로", [("카카오뱅크 3333-01-1234567", "ACCOUNT")]),
        ("나이: 만 34세", [("만 34세", "NUM")]),
        ("85년생이고", [("85년생", "DATE")]),
        ("생년월일 850315", [("850315", "DATE")]),
        ("우 07325", [("07325", "ADDRESS")]),
        ("차량번호: 92차 4470", [("92차 4470", "PLATE")]),
        ("신장 172cm", [("172cm", "NUM")]),
        # Addresses
        (
            "집은 서울특별시 강남구 테헤란로 152, 강남파이낸스센터 12층입니다",
            [("서울특별시 강남구 테헤란로 152, 강남파이낸스센터 12층", "ADDRESS")],
        ),
        ("경북 안동시 풍천면 하회리 749-1에 삽니다", [("경북 안동시 풍천면 하회리 749-1", "ADDRESS")]),
        (
            "사고장소: 대전광역시 동구 대전로 825 앞 도로\n",
            [("대전광역시 동구 대전로 825 앞 도로", "ADDRESS")],
        ),
        ("집은 서울 종로구 종로3가 12입니다", [("서울 종로구 종로3가 12", "ADDRESS")]),
        ("집은 을지로 2가 5-1입니다", [("을지로 2가 5-1", "ADDRESS")]),
        ("집은 청주시 흥덕구 1순환로 1137입니다", [("청주시 흥덕구 1순환로 1137", "ADDRESS")]),
        ("집은 파주시 문산읍 3.1로 12입니다", [("파주시 문산읍 3.1로 12", "ADDRESS")]),
    ],
)
def test_finds_the_whole_value_and_no_more(text: str, expected: list[tuple[str, str]]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "앞으로 3가지 방법으로 5번 더 해 보자",
        "앞으로 3 정도가 남았고 바로 12 다음이 서로 5",
        "이 도시 3위로 3계단 오르고 12로 25를 나눈다",
        "제품 이름: 무선 이어폰",
        '{"name": "get_weather", "file_name": "Report"}',
        '{"name": "search"}',
        "성명\n전화번호\n주소",
        "이사장과 부장의 회의",
        "고객님, 부모님과 선생님이 오신 날씨",
        "3번 12번 15번 문제",
        "이사오구이",
        "21세기의 기술과 3세대 통신",
        "Go to the Park and sit on a Long bench",
        "so-so, un-do and re-do",
        "SELECT name FROM users WHERE id = 12",
    ],
)
def test_leaves_other_text_alone(text: str) -> None:
    assert found(text) == []


_HOSTILE = (
    "가",
    "1",
    "1-",
    "김 ",
    "홍길동 ",
    "서울시 ",
    "로 1 ",
    "주소: ",
    "Kim ",
    "Min-su ",
    "일",
    "010 번 ",
    '"name": "',
    "(",
    "이름:",
    "A.",
    "동1호 ",
    "K",
    "金",
    "<name>a</",
    "응우옌 티 ",
    "Gangnam-gu, ",
    "\n",
    " ",
)


@pytest.mark.parametrize("unit", _HOSTILE)
def test_costs_time_linear_in_the_length(unit: str) -> None:
    def cost(length: int) -> float:
        text = (unit * (length // len(unit) + 1))[:length]
        start = time.process_time()
        RULES.find(text)
        return time.process_time() - start

    # Eight times the text; a square would be sixty-four times. The second term is what a busy machine adds.
    assert cost(100_000) < 20 * cost(12_500) + 0.1
