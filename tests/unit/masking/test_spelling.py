"""Placeholders as models write them back."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.entities import LONGEST, TYPES
from weighbridge.masking.masked_text import mask_text
from weighbridge.masking.spelling import LONGEST_SPELLING, Held, substitute
from weighbridge.masking.vault import Mint, Vault, derive_key

VALUE = 'kim "min" \\ su\n@corp 😀'
VAULT = Vault({"[EMAIL_ABCD2345]": VALUE, "[NUM_QRST6723]": "1234567"})
ESCAPED = json.dumps(VALUE, ensure_ascii=False)[1:-1]

CHANGED = [
    "[EMAIL_ABCD2345]",
    "[email_abcd2345]",
    "[Email_Abcd2345]",
    r"[EMAIL\_ABCD2345]",
    r"\[EMAIL\_ABCD2345\]",
    r"[EMAIL_ABCD2345\]",
    "[ EMAIL_ABCD2345 ]",
    "[EMAIL ABCD2345]",
    "[EMAIL-ABCD2345]",
    "[EMAIL _ ABCD2345]",
    "[EMAIL\u2011ABCD2345]",
    "\uff3bEMAIL_ABCD2345\uff3d",
    "\uff3b\u3000EMAIL\uff3fABCD2345\uff3d",
    "\u3010EMAIL_ABCD2345\u3011",
]
LEFT = [
    "[EMAIL_ABCD2345",
    "[EMAIL_ABCD234]",
    "[EMAIL_ABCD23456]",
    "[EMAILABCD2345]",
    "[EMAIL__ABCD2345]",
    "[MAIL_ABCD2345]",
    "[PERSON_ABCD2345]",
    "[EMAIL_ABCD2346]",
    "[EMAIL   ABCD2345]",
    "[EMAIL\nABCD2345]",
    "[[EMAIL]ABCD2345]",
    "EMAIL_ABCD2345",
    "(EMAIL_ABCD2345)",
    "[NUM_ABCD2345]",
    "[E MAIL_ABCD2345]",
]


def test_every_beginning_of_a_spelling_is_as_long_as_is_said() -> None:
    longest = f"\\[  {max(TYPES, key=len)}  \\_  ABCD2345  \\]"
    assert len(longest) == LONGEST_SPELLING


@pytest.mark.parametrize("changed", CHANGED)
def test_a_changed_placeholder_is_restored(changed: str) -> None:
    for before, after in (
        ("", ""),
        ("**", "**"),
        ("메일은 ", "입니다"),
        ("[", "]"),
        ("`", "`"),
        ("[x](", ")"),
    ):
        text = f"{before}{changed}{after} {changed}"
        assert substitute(VAULT, text, escaped=False) == f"{before}{VALUE}{after} {VALUE}"


@pytest.mark.parametrize("text", LEFT)
def test_what_is_no_placeholder_stays_as_it_is(text: str) -> None:
    assert substitute(VAULT, text, escaped=False) == text
    assert substitute(VAULT, text, escaped=True) == text
    assert substitute(VAULT, f"{text}[NUM_QRST6723]", escaped=False) == f"{text}1234567"


@pytest.mark.parametrize("changed", CHANGED)
def test_inside_json_any_of_it_may_be_escaped(changed: str) -> None:
    escapes = {
        json.dumps(changed),
        json.dumps(changed, ensure_ascii=False),
        '"' + "".join(f"\\u{ord(char):04x}" for char in changed) + '"',
        json.dumps(changed).replace("[", r"\u005b").replace("]", r"\u005D").replace("_", r"\u005F"),
        # A backslash of Markdown that the model forgot to escape for JSON.
        f'"{changed}"',
    }
    for text in escapes:
        made = substitute(VAULT, '{"a": ' + text + "}", escaped=True)
        assert json.loads(made) == {"a": VALUE}


@pytest.mark.parametrize(
    "document",
    [
        r"C:\[EMAIL_ABCD2345]",
        r"\u005bEMAIL_ABCD2345]",
        r"\\u005bEMAIL_ABCD2345]",
        "\\",
        "\n[EMAIL_ABCD2345]\t",
    ],
)
def test_a_backslash_of_the_text_is_no_escape(document: str) -> None:
    made = substitute(VAULT, json.dumps(document), escaped=True)
    assert json.loads(made) == document.replace("[EMAIL_ABCD2345]", VALUE)


def test_a_backslash_before_a_value_stays_when_the_brackets_are_plain() -> None:
    assert substitute(VAULT, r"C:\[NUM_QRST6723]\x", escaped=False) == r"C:\1234567\x"


def test_what_could_be_two_placeholders_stays_as_it_is() -> None:
    vault = Vault({"[NUM_ABCDEFGH]": "1", "[NUM_abcdefgh]": "2", "[IP_ABCDEFGH]": "3"})
    text = "[NUM_ABCDEFGH] [NUM_abcdefgh] [Num_AbcdEfgh] [num abcdefgh] [ip abcdefgh]"
    assert substitute(vault, text, escaped=False) == "1 2 [Num_AbcdEfgh] [num abcdefgh] 3"


def fed(text: str, escaped: bool) -> list[tuple[str, str]]:
    """What is given out and what is held after each character."""
    held, steps = Held(VAULT, escaped), []
    for char in text:
        steps.append((held.push(char), held.text))
    steps.append((held.flush(), ""))
    return steps


@pytest.mark.parametrize("text", [*CHANGED, *LEFT, r"\[ x = 1 \]", "a[1] = b[2]", "{[email", "\\\\\\"])
@pytest.mark.parametrize("escaped", [False, True])
def test_character_by_character(text: str, escaped: bool) -> None:
    for around in (text, f"{text}{text}", f"[{text}", f"[EMAIL_{text} x"):
        given = json.dumps(around, ensure_ascii=False) if escaped else around
        steps = fed(given, escaped)
        assert "".join(out for out, _ in steps) == substitute(VAULT, given, escaped=escaped)
        assert all(len(held) < 2 * LONGEST_SPELLING for _, held in steps)


def test_exactly_copied_a_placeholder_is_the_most_that_is_held() -> None:
    for text in ("[EMAIL_ABCD2345] and [EMAIL_ABCD234", "[[[[EMAIL_ABCD2345]"):
        assert max(len(held) for _, held in fed(text, escaped=False)) < LONGEST


@pytest.mark.parametrize(
    "text",
    ["[1]", "[x", "[EMAIN", "[NU_", "[NUMB", "[EMAIL ABCE", "[EMAIL   ", "[ [", "] [EMAIL_ABCD234]", "\\a"],
)
def test_what_cannot_become_a_placeholder_flows_at_once(text: str) -> None:
    *_, (_, held) = fed(text, escaped=False)[:-1]
    assert held == ("[" if text == "[ [" else "")


def test_hostile_text_takes_linear_time() -> None:
    for unit in ("[", "\\", "[EMAIL_", "[EMAIL  \\", "[ \u3000", r"\u005b", r"\u00"):
        spent = []
        for size in (20_000, 80_000):
            text = (unit * size)[:size]
            begin = time.process_time()
            for escaped in (False, True):
                substitute(VAULT, text, escaped=escaped)
                held = Held(VAULT, escaped)
                for at in range(0, size, 500):
                    held.push(text[at : at + 500])
            spent.append(time.process_time() - begin)
        assert spent[1] < 12 * spent[0] + 0.05


ODD = st.text(
    st.sampled_from('[]\\_ab2 A"\n\u3010\uff3d가😀{}:') | st.characters(exclude_categories=("Cs",)),
    max_size=40,
)


@settings(deadline=None, max_examples=300)
@given(ODD, st.data())
def test_masked_and_echoed_a_text_is_itself_again(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    spans = [
        (first, last, data.draw(st.sampled_from(TYPES)))
        for first, last in pairwise(cuts)
        if data.draw(st.booleans())
    ]
    mint = Mint(derive_key(b"k", "placeholders", "c"))
    masked = mask_text(text, spans, mint)
    vault = mint.vault(json_answer=False)
    assert substitute(vault, masked, escaped=False) == text
    in_json = json.dumps({"a": masked}, ensure_ascii=data.draw(st.booleans()))
    assert json.loads(substitute(vault, in_json, escaped=True)) == {"a": text}
    for escaped, whole in ((False, masked), (True, in_json)):
        cut = data.draw(st.integers(0, len(whole)))
        held = Held(vault, escaped)
        made = held.push(whole[:cut]) + held.push(whole[cut:]) + held.flush()
        assert made == substitute(vault, whole, escaped=escaped)
