"""Folding and its way back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.folding import fold, fold_text

texts = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("０１２－–—\u200b\u00ad①⑴㈜½가나\u3164@＠.۱۲"),
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
