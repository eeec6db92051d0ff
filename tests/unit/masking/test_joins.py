"""Values in pieces: over a line's end, with tags in them, one character at a time; and what only looks like that."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.detector import Detector
from weighbridge.masking.entities import gaps
from weighbridge.masking.joins import close
from weighbridge.masking.layers.base import LayerOptions

DETECTOR = Detector(("ko-rules", "en-rules"), LayerOptions())

VALUES = {
    "plate": ("차량번호는 ", "275부 6819", "이 맞나요"),
    "plate of two digits": ("차량 ", "50하9824", "입니다"),
    "new passport": ("여권번호는 ", "M903Y1295", "입니다"),
    "old passport": ("여권번호는 ", "M01298832", "입니다"),
    "mobile": ("연락처 ", "010-2345-6789", "로 주세요"),
    "landline": ("대표번호 ", "02)488-2900", "입니다"),
    "internet telephone": ("상담 번호 ", "070-6823-4337", "는"),
    "US telephone": ("Call ", "206 716 8559", " today"),
    "UK telephone": ("Call ", "+44 7569 437994", " today"),
    "business number": ("사업자번호는 ", "230-40-59388", "이고"),
    "business number, run together": ("사업자번호는 ", "6131834499", "이고"),
    "corporate number": ("법인번호 ", "134622-1234567", "는"),
    "driver licence": ("면허 ", "23-36-546701-60", "이"),
    "account": ("농협 ", "099-300-132018", "로"),
    "card": ("카드 ", "4929 1234 5678 9019", "를"),
    "resident number": ("주민번호 ", "880101-1234567", "이"),
    "social security number": ("SSN ", "519-87-5745", " is mine"),
    "IBAN": ("IBAN ", "GB82 WEST 1234 5698 7654 32", " please"),
    "IPv4": ("접속 IP는 ", "192.168.112.243", "이"),
    "IPv6": ("주소가 ", "fd00:0:5efb:390:dfdb:de4a:9da6:cf8b", " 입니다"),
    "mail": ("메일은 ", "minsu.kim6809@gmail.com", "입니다"),
    "mail at a new domain": ("Write to ", "anna@shop.company", " now"),
    "address": ("배송지는 ", "서울시 강남구 테헤란로 427, 102동 1304호", "로"),
}


def left(text: str) -> str:
    """What is left to see of a text, letters and digits alone."""
    return re.sub(r"[\W_]", "", "|".join(gaps(text, DETECTOR.find(text))))


def telling(value: str, seen: str) -> bool:
    """Whether six letters or digits in a row of a value are seen."""
    core = re.sub(r"[\W_]", "", value)
    return any(core[at : at + 6] in seen for at in range(len(core) - 5))


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("end", ["\n", "\r\n", " \n ", "\u2028"])
def test_a_line_end_anywhere_hides_nothing(kind: str, end: str) -> None:
    before, value, after = VALUES[kind]
    for at in range(1, len(value)):
        text = f"{before}{value[:at]}{end}{value[at:]}{after}"
        assert not telling(value, left(text)), text


@pytest.mark.parametrize("kind", VALUES)
def test_an_escaped_line_end_hides_nothing(kind: str) -> None:
    before, value, after = VALUES[kind]
    for end in ("\\n", "\\\\n", "%0A", "%0D%0A", "&#10;", "\\u000a"):
        for at in range(2, len(value), 3):
            text = f"{before}{value[:at]}{end}{value[at:]}{after}"
            assert not telling(value, left(text)), text


@pytest.mark.parametrize("kind", ["mobile", "card", "resident number", "new passport", "IBAN", "mail"])
def test_tags_inside_a_line_hide_nothing(kind: str) -> None:
    before, value, after = VALUES[kind]
    for tag in ("<b></b>", "</span>", "<wbr>", '<font color="red">', "<br/>\n", "<!-- x -->"):
        for at in range(1, len(value)):
            text = f"{before}{value[:at]}{tag}{value[at:]}{after}"
            assert not telling(value, re.sub(r"font|colorred|span|wbr|br|b|x", "", left(text))), text


@pytest.mark.parametrize(
    "kind", ["plate of two digits", "mobile", "new passport", "old passport", "IPv6", "mail"]
)
@pytest.mark.parametrize("sign", [" ", "\u3000"])
def test_one_blank_behind_every_character_hides_nothing(kind: str, sign: str) -> None:
    before, value, after = VALUES[kind]
    text = f"{before}{sign.join(value)} {after}"
    assert not telling(value, left(text)), text


@pytest.mark.parametrize("letter", ["x", "a", "에"])
def test_a_letter_for_a_hyphen_hides_nothing(letter: str) -> None:
    assert left(f"010{letter}2345{letter}6789") == ""


def test_a_percent_sign_s_bytes_may_be_cut_by_a_line_end() -> None:
    assert left("차량번호는 %33%32%EC\r\n%82%AC%35%39%39%36") == "차량번호는"
    assert left("메일은 kim%40g%0Amail.com 입니다") == "메일은입니다"


def test_the_rest_of_a_masked_head_goes_with_it() -> None:
    for text in (
        "주소 fd00:0:5efb:390:dfdb:de4a\r\n:9da6:cf8b",
        "법인 134622-\r\n1234567",
        "IBAN GB82 WEST 1234 \n5698 7654 32",
        "농협 099-300-\n132018",
    ):
        assert not any(map(str.isdigit, left(text))), text
    assert left("kim@shop.\ncompany") == "" and left("minsu.\nkim6809@naver.com") == ""


@pytest.mark.parametrize(
    "text",
    [
        "1,Kim,01012345678\n2,Lee,01023456789",
        "kim@gmail.com\nThanks for all",
        "Write to kim@gmail.com.\nThanks for all",
        "주소: 서울시 강남구 역삼동 12-3\n감사합니다",
        "Call 010-1234-5678\n3 people came",
        "https://corp.example/a\nNext line 1",
        "전화 010-1234-5678\n1. 첫째\n2. 둘째",
    ],
)
def test_what_follows_a_whole_value_in_the_next_line_stays(text: str) -> None:
    rest = text.split("\n", 1)[1].split(",")[0]
    assert re.sub(r"[\W_]", "", rest) in left(text)


@pytest.mark.parametrize(
    "text",
    [
        "1 2 3\n4 5 6\n7 8 9",
        "123\n456\n789\n012",
        "12 34\n56 78\n90 12",
        "In 2024.\n1. First\n2. Second",
        "x = 100\ny = 200\nz = 30",
        "| 12 | 345 |\n| 67 | 890 |",
        "<td>1234</td><td>5678</td>",
        "<li>1234</li>\n<li>5678</li>",
        "1 a 2 b 3 c 4",
        "page 12\n\n34 more",
        "version 1.2\n3.4 is new",
        "3월 12\n일에 만나요",
        "the number is\n123456 exactly",
        "1\t1234\n2\t5678\n3\t9012",
    ],
)
def test_lists_tables_and_wrapped_lines_are_no_values(text: str) -> None:
    assert DETECTOR.find(text) == []


def test_all_digits_of_a_broken_number_go() -> None:
    assert "91d0" not in left("1\tAllow fd00::7cd4:\r\n91d0.\n2\tnone")
    assert not any(map(str.isdigit, left("접속 192\u3000168\n\u300012\u3000243이")))
    assert "109동" not in left(
        "She lives at 강원도 원주시 북원로 51번길 220\n-13, 109동 2405호 and nothing else."
    )
    assert "101동" not in left(
        "이사한 곳이 대전광역시 유성구 엑스포로 589-3\n4 래미안 101동 2306호로 확인해 주세요."
    )


def test_nothing_to_close_is_none() -> None:
    for text in ("12 34\n연락처: 567", "a 1\n- item", "a 12\n3. item", "a 1\n## b", "note 12\nphone: 34"):
        assert close(text) is None, text
    for text in ("", "한 줄", "one line", "첫 줄\n둘째 줄", "a\n\n1", "\n1", "1\n"):
        assert close(text) is None, text


@settings(deadline=None)
@given(st.text(st.sampled_from("01a가나@.:- \n\r<b>/시동")))
def test_every_character_knows_its_place(text: str) -> None:
    closed = close(text)
    if closed is None:
        return
    assert len(closed.text) == len(closed.places)
    for at, place in enumerate(closed.places):
        assert (closed.text[at] == "\n") if place < 0 else (closed.text[at] == text[place])
    kept = [place for place in closed.places if place >= 0]
    assert kept == sorted(set(kept)) and closed.joins == sorted(set(closed.joins))
    for join in closed.joins:
        assert closed.places[join] > closed.places[join - 1] + 1 > 0


@pytest.mark.parametrize(
    "unit", ["\n", "1\n", "1234567890\n", "a@b.c\n", "1 ", "<b></b>1", "<b ", "12가\n34", "%EC\n%9C", "fd:\n"]
)
def test_hostile_texts_take_linear_time(unit: str) -> None:
    spent = []
    for size in (10_000, 50_000):
        text = (unit * size)[:size]
        begin = time.process_time()
        DETECTOR.find(text)
        spent.append(time.process_time() - begin)
    assert spent[1] < 12 * spent[0] + 0.1, unit


@pytest.mark.parametrize("text", ["park.hr@intra.lan", "park.hr%2Bx1%40shop.company"])
def test_what_looks_like_a_host_in_a_mail_address_is_part_of_it(text: str) -> None:
    assert DETECTOR.find(f"메일 {text} 입니다") == [(3, 3 + len(text), "EMAIL")]
    assert DETECTOR.find("see https://corp.example/a@b now")[0][2] == "URL"
