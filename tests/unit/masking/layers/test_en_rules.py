"""The English rules: types, places, and a cost that grows with the length alone."""

from __future__ import annotations

import time

import pytest

from weighbridge.masking.entities import known
from weighbridge.masking.layers import en_rules
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.en_fields import fields
from weighbridge.masking.layers.en_people import people
from weighbridge.masking.layers.en_rules import numbered
from weighbridge.masking.layers.en_spoken import spoken

LAYER = en_rules.build(LayerOptions())

HOSTILE = [
    "A ", "Aa ", "1 ", "12 Aa ", "Aa-", "a.", "a@", "name: ", "Dear ", "\n", "\n1", "Aa\n", "Aa 1\n", "one ", "a at ",
    '"name":"', '"name": ["a",', "a,b\n", "name,a\n", "Mr. Aa ", "1-", "(1) ", "+1 ", "Aa, ", "Kim ", "kim-",
    "ABCDEFGH", "aaaaaaaa", "ÀÀÀ", "x.y ", "Apt 1\n", "12 a street ", "account: ", "de la ", "Aa de la ", "> ", "((Aa",
    "<name>", "I'm Aa", "\t", "a|", "@ ", "AA1", "Aa's ", "one-", "Aa of ",
]  # fmt: skip


def kinds(text: str) -> dict[str, str]:
    return {text[start:end]: entity for start, end, entity in LAYER.find(text)}


@pytest.mark.parametrize(
    ("text", "value", "entity"),
    [
        ("Passport: C01X00T47", "C01X00T47", "PASSPORT"),
        ("driver's license D123-4567-8901", "D123-4567-8901", "LICENSE"),
        ("MRN 0098812", "0098812", "HEALTH"),
        ("account number: 994417820", "994417820", "ACCOUNT"),
        ("order no. A-7731", "A-7731", "ID"),
        ("aged 60", "60", "NUM"),
        ("DOB: 04.03.1987", "04.03.1987", "DATE"),
        ("I live at 14 Kestrel Close, Leeds LS1 4AP.", "14 Kestrel Close, Leeds LS1 4AP.", "ADDRESS"),
        ("the firm is Brightleaf Holdings LLC again", "Brightleaf Holdings LLC", "ORG"),
        (
            "two oh two, five five five, zero one four seven",
            "two oh two, five five five, zero one four seven",
            "PHONE",
        ),
    ],
)
def test_each_kind_has_its_type(text: str, value: str, entity: str) -> None:
    assert kinds(text).get(value) == entity


def test_every_type_is_one_of_ours() -> None:
    from tests.unit.masking.layers.test_en_adversarial import RULES, marked

    reported = {entity for line in RULES for _, _, entity in LAYER.find(marked(line)[0])}
    assert len(reported) > 8
    assert all(map(known, reported))


def test_the_name_above_an_address_keeps_its_own_placeholder() -> None:
    assert kinds("Orla Brandt\n14 Kestrel Close\nLeeds LS1 4AP\n") == {
        "Orla Brandt": "NAME",
        "14 Kestrel Close\nLeeds LS1 4AP": "ADDRESS",
    }


def test_an_address_ends_where_the_sentence_goes_on() -> None:
    text = "Send it to 14 Kestrel Close, Leeds. Please ring twice."
    (span,) = [span for span in LAYER.find(text) if span[2] == "ADDRESS"]
    assert text[span[0] : span[1]].rstrip(".") == "14 Kestrel Close, Leeds"


def test_a_name_ends_before_ordinary_words() -> None:
    assert kinds("my name is suda wongsakul and i need help") == {"suda wongsakul": "PERSON"}


def test_a_tool_is_no_person() -> None:
    assert fields('{"name": "get_weather"}') == []
    text = '{"name": "Suda Wongsakul"}'
    assert [text[start:end] for start, end, _ in fields(text)] == ["Suda Wongsakul"]


def test_only_cells_under_telling_heads_are_masked() -> None:
    text = "id,name,plan\n1,Rui Tavares,gold\n2,Bea Lindqvist,free\n"
    assert [text[start:end] for start, end, _ in fields(text)] == ["Rui Tavares", "Bea Lindqvist"]


def test_counting_is_no_number() -> None:
    assert spoken("one two three four five six seven") == []
    assert spoken("seven one four two nine nine eight") != []


def test_a_korean_surname_makes_a_name() -> None:
    text = "The Log-in was fixed by Kim Min-su."
    assert {text[start:end] for start, end, _ in people(text)} == {"Kim Min-su"}


def test_the_lines_with_digits_and_the_ones_above() -> None:
    text = "nothing here\nPhone:\n12\nno\n\n" + "x\n" * 300 + "7"
    pieces = [text[start:end] for start, end in numbered(text)]
    assert pieces[0] == "nothing here\nPhone:\n12"
    assert pieces[1].endswith("7")
    assert len(pieces[1]) < 210


@pytest.mark.parametrize("piece", HOSTILE)
def test_cost_grows_with_length_alone(piece: str) -> None:
    def cost(length: int) -> float:
        text = (piece * (length // len(piece) + 1))[:length]
        began = time.process_time()
        LAYER.find(text)
        return time.process_time() - began

    short = cost(5_000)
    # Twenty times the text: a square law would cost four hundred times as much.
    assert cost(100_000) < 80 * max(short, 0.01)
