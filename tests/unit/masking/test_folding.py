"""Folding and its way back."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.folding import fold, fold_text

texts = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("\u1112\u1169\u11bc\u1173\u1100ㄱㅏㅡ０１２－–—\u200b\u00ad①⑴㈜½가나\u3164@＠.۱۲"),
    )
)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("０１０－１２３４", "010-1234"),
        ("0\u200b1\u20600\ufeff", "010"),
        ("a–b—c−d‐e", "a-b-c-d-e"),
        ("①② ⑶", "12 (3)"),
        ("۰۱۲ ٣٤", "012 34"),
        ("𝟎𝟏𝟐", "012"),
        ("hong＠corp", "hong@corp"),
        ("김철수", "김철수"),
        ("1\u00a02\u30003", "1 2 3"),
        ("a\u3164b\ufe0f", "ab"),
        ("\u1112\u1169\u11bc\u1100\u1175\u11af\u1103\u1169\u11bc", "홍길동"),
        ("\u1103\u1173\u11af 그\u11af", "들 글"),
        ("\u1112\u200b\u1169\u200b\u11bc", "홍"),
        ("ㄱㅏ ㅋㅋ", "가 \u110f\u110f"),
    ],
)
def test_one_spelling(written: str, read: str) -> None:
    assert fold_text(written) == read


@settings(deadline=None)
@given(texts)
def test_folding_again_changes_nothing(text: str) -> None:
    assert fold_text(fold_text(text)) == fold_text(text)


@settings(deadline=None)
@given(texts, st.data())
def test_a_folded_span_leads_back_to_what_it_came_from(text: str, data: st.DataObject) -> None:
    folded = fold(text)
    assert folded.text == fold_text(text)
    if not folded.text:
        return
    start = data.draw(st.integers(0, len(folded.text) - 1))
    end = data.draw(st.integers(start + 1, len(folded.text)))
    first, last = folded.original_span(start, end)
    assert 0 <= first < last <= len(text)
    assert folded.text[start:end] in fold_text(text[first:last])


def test_a_syllable_leads_back_to_all_its_letters() -> None:
    text = "a" + unicodedata.normalize("NFD", "홍길동") + "b"
    folded = fold(text)
    assert folded.text == "a홍길동b"
    assert folded.original_span(1, 4) == (1, len(text) - 1)
    assert folded.original_span(2, 3) == (4, 7)
