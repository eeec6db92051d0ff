"""How many people a request is about."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weighbridge.masking.entities import TYPES
from weighbridge.masking.people import KINDS, people

LIMIT = 20
SURNAMES = "김이박최정강조윤장임한오서신권황안송유홍"
GIVEN = ["민준", "서연", "도윤", "하은", "지호", "수아", "예준", "지우", "주원", "채원"]


def korean(count: int) -> list[str]:
    return [SURNAMES[at % 20] + GIVEN[at // 20 % 10] for at in range(count)]


def test_an_article_is_no_bulk_data() -> None:
    persons = korean(15)
    firms = [
        "한국은행",
        "서울",
        "삼성전자",
        "국민의힘",
        "더불어민주당",
        "부산",
        "청와대",
        "경찰청",
        "미국",
        "일본",
    ]
    values = [("NAME", name) for name in (*persons, *firms)] * 4
    assert people(values) <= LIMIT
    assert people([("PERSON", name) for name in persons] + [("NAME", firm) for firm in firms]) == 15


def test_a_table_of_customers_is() -> None:
    names = korean(30)
    assert people([("NAME", name) for name in names]) > LIMIT
    assert people([("PERSON", name) for name in names]) == 30
    assert people([("PHONE", f"010-1234-{at:04}") for at in range(30)]) == 30
    assert people([("EMAIL", f"user{at}@corp.kr") for at in range(30)]) == 30
    twice = [(entity, name) for name in names[:15] for entity in ("PERSON", "NAME")]
    assert people(twice) == 15
    half = [("PERSON", name) for name in names[:15]] + [("NAME", name) for name in names[15:]]
    assert people(half) > LIMIT


def test_the_same_value_is_one_person() -> None:
    spellings = ["010-1234-5678", "01012345678", "010 1234 5678", "０１０－１２３４－５６７８"]
    assert people([("PHONE", written) for written in spellings]) == 1
    assert people([("EMAIL", "A@b.kr"), ("EMAIL", "a@B.kr")]) == 1
    assert people([("PERSON", "John Smith"), ("PERSON", "Smith"), ("PERSON", "john smith")]) == 1


def test_kinds_of_one_person_are_not_added_up() -> None:
    one = [
        ("PERSON", "홍길동"),
        ("RRN", "900101-1234567"),
        ("PHONE", "010-1234-5678"),
        ("EMAIL", "h@a.kr"),
        ("CARD", "4111"),
    ]
    assert people(one) == 1
    assert people([("RRN", "900101-1234567"), ("FRN", "900101-5234567")]) == 2


def test_what_firms_machines_and_days_have_is_not_counted() -> None:
    for entity in ("DATE", "NUM", "URL", "IP", "UUID", "ORG", "PLACE", "ID", "BRN", "ADDRESS"):
        assert people([(entity, str(at)) for at in range(100)]) == 0


def test_every_kind_is_a_type() -> None:
    assert set(KINDS) <= set(TYPES)


@given(st.lists(st.tuples(st.sampled_from(TYPES), st.text(max_size=8)), max_size=60))
def test_more_values_never_make_fewer_people_than_a_kind_has(values: list[tuple[str, str]]) -> None:
    assert 0 <= people(values) <= len(values)
    assert people(values) == people(values * 2)
