"""Uniting spans."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.entities import PLACEHOLDER_SHAPE, TYPES, gaps, known, merge, widen

spans = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 10), st.sampled_from((*TYPES, PLACEHOLDER_SHAPE))).map(
        lambda made: (made[0], made[0] + made[1], made[2])
    )
)


@settings(deadline=None)
@given(spans)
def test_what_any_detector_covered_stays_covered(found: list[tuple[int, int, str]]) -> None:
    merged = merge(found)
    covered = {place for start, end, _ in merged for place in range(start, end)}
    assert covered == {place for start, end, _ in found for place in range(start, end)}
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(merged))
    assert merge(merged) == merged


def test_the_most_telling_type_names_the_union() -> None:
    assert merge([(0, 8, "NUM"), (4, 14, "RRN"), (20, 22, "IP")]) == [(0, 14, "RRN"), (20, 22, "IP")]


def test_a_placeholder_shape_is_never_hidden_by_another_type() -> None:
    assert merge([(0, 16, PLACEHOLDER_SHAPE), (3, 20, "RRN")]) == [(0, 20, PLACEHOLDER_SHAPE)]


@settings(deadline=None)
@given(spans, st.text(min_size=50, max_size=60))
def test_gaps_and_spans_make_up_the_text(found: list[tuple[int, int, str]], text: str) -> None:
    merged = merge(found)
    pieces = gaps(text, merged)
    rebuilt = pieces[0] + "".join(
        text[start:end] + gap for (start, end, _), gap in zip(merged, pieces[1:], strict=True)
    )
    assert rebuilt == text


@pytest.mark.parametrize(
    ("text", "found", "whole"),
    [
        ("2019-20201234", "20201234", "2019-20201234"),
        ("tel 010-1234-5678-99 x", "010-1234-5678", "010-1234-5678-99"),
        ("x 1234 5678 y", "1234", "1234"),
        ("a-1234-b", "1234", "1234"),
        ("77a@b.kr5", "a@b.kr", "a@b.kr"),
    ],
)
def test_digits_joined_to_a_number_go_with_it(text: str, found: str, whole: str) -> None:
    start = text.index(found)
    first, last, _ = widen(text, (start, start + len(found), "NUM"))
    assert text[first:last] == whole


def test_types() -> None:
    assert known("RRN")
    assert not known("NOTHING")
