"""Values whose groups stand apart: any usual sign between them, or none."""

from __future__ import annotations

import pytest

from weighbridge.masking.entities import merge
from weighbridge.masking.folding import fold
from weighbridge.masking.layers import ko_rules, structured
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.ibans import ibans

STRUCTURED = structured.build(LayerOptions())
KOREAN = ko_rules.build(LayerOptions())
SIGNS = ["", " ", "-", "―", "－", ".", "·", "_", "/", " - ", "\u3000"]


def found(text: str) -> list[tuple[str, str]]:
    folded = fold(text)
    spans = merge((*STRUCTURED.find(folded.text), *KOREAN.find(folded.text)))
    back = [(*folded.original_span(start, end), entity) for start, end, entity in spans]
    return [(text[start:end], entity) for start, end, entity in back]


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize(
    ("groups", "entity"),
    [
        (("53", "로", "1076"), "PLATE"),
        (("670", "거", "7894"), "PLATE"),
        (("S511", "C7198"), "PASSPORT"),
        (("M", "903Y1295"), "PASSPORT"),
        (("M", "642", "V4034"), "PASSPORT"),
        (("D", "75293888"), "PASSPORT"),
        (("M", "012", "98832"), "PASSPORT"),
        (("GB82", "WEST", "1234", "5698", "7654", "32"), "IBAN"),
        (("DE89", "3704", "0044", "0532", "0130", "00"), "IBAN"),
    ],
)
def test_any_sign_between_the_groups(groups: tuple[str, ...], entity: str, sign: str) -> None:
    value = sign.join(groups)
    assert found(f"이것 {value}입니다") == [(value, entity)]


@pytest.mark.parametrize(
    "text", ["100부 20장", "5가 1234", "I 100 a 2000", "a 300 b 4000", "123가45678", "SM903Y1295"]
)
def test_what_is_no_plate_and_no_passport(text: str) -> None:
    assert found(text) == []


def test_an_iban_is_told_by_country_and_check_digits() -> None:
    for text in ("GB83_WEST_1234_5698_7654_32", "XX82 WEST 1234 5698 7654 32", "GB82 WEST 1234", ""):
        assert list(ibans(text)) == [], text
    assert list(ibans("x GB82WEST12345698765432 and so on")) == [(2, 24, "IBAN")]
    # The words behind it are none of it.
    assert list(ibans("GB82 WEST 1234 5698 7654 32 ok go")) == [(0, 27, "IBAN")]


@pytest.mark.parametrize("letter", ["x", "X", "에", "a"])
def test_a_letter_twice_for_the_hyphens_of_a_telephone_number(letter: str) -> None:
    assert [value for value, _ in found(f"번호 010{letter}1234{letter}5678!")] == [
        f"010{letter}1234{letter}5678"
    ]


@pytest.mark.parametrize("text", ["1920x1080x2400", "010x12345", "010x1234y5678"])
def test_other_letters_between_numbers(text: str) -> None:
    assert not any(entity == "PHONE" for _, entity in found(text))


@pytest.mark.parametrize(
    "value",
    [
        "kim@dept univ ac kr",
        "s_yoon7336@shop company",
        "lee2247@corp local",
        "kim@naver.com",
    ],
)
def test_a_mail_address_with_blanks_for_dots(value: str) -> None:
    assert found(f"메일 {value}로")[0] == (value, "EMAIL")


def test_words_behind_a_mail_address_are_none_of_it() -> None:
    assert found("ask kim@corp about it")[0] == ("kim@corp", "EMAIL")
    assert found("ask kim@corp.com or the net")[0] == ("kim@corp.com", "EMAIL")


@pytest.mark.parametrize(
    "value",
    [
        "경남 창원시 성산구 상남동 7―116동―1206호",
        "서울 강남구 역삼동 12–104동–406호",
        "세종시 도움３로－４번길－３８４，－１９층",
        "제주도−제주시−노형로−33번길−71−은하빌라\n−115동−508호",
        "강원도‑원주시‑무실동‑1119‑38‑자이‑110동‑1603호",
        "서울_강남구_테헤란로_12_101동_1203호",
        "서울·강남구·테헤란로·12·101동·1203호",
        "서울/강남구/테헤란로/12/101동/1203호",
        "강원도원주시무실동132140,105동1701호",
        "경상남도창원시성산구원이대로31번길486래미안105동2206호",
        "충청북도청주시흥덕구가경동119816은하빌라112동705호",
        "전북특별자치도전주시완산구효자동2가112937,106동2104호",
        "충북청주시흥덕구가로수로43115",
        "전북 전주시 서신동14453미래타워113동1708호",
        "세종특별자치시‐도움3로‐236",
    ],
)
def test_an_address_is_covered_down_to_the_flat(value: str) -> None:
    for behind in ("인데 맞나요", "만 확인해 주세요"):
        text = f"방문할 곳은 {value}{behind}"
        assert [hit for hit, entity in found(text) if entity == "ADDRESS"] == [value]


@pytest.mark.parametrize(
    "text",
    ["경기대로 300명", "서울시 3가지", "경기도 수원시에서 2024년", "앞으로 300만원", "부산/대구/광주 3곳"],
)
def test_places_with_amounts_are_no_addresses_with_a_number(text: str) -> None:
    assert not any(any(map(str.isdigit, hit)) for hit, _ in found(text))
