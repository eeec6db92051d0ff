"""Which parts of a text hold escapes, and what it costs to tell."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.masking.views import unescape

PIECES = st.sampled_from(["%41", "&#49;", "\\n", "a", "b" * 70, " ", "c" * 1100, "\n"])


@given(st.lists(PIECES, max_size=30).map("".join))
def test_every_escape_stands_in_one_window_and_none_overlap(text: str) -> None:
    read = unescape(text)
    if read is None:
        return
    windows = list(read.windows())
    assert windows == sorted(windows)
    for (_, end), (start, _) in pairwise(windows):
        assert end < start
    for start, end in read.changed:
        holding = [window for window in windows if window[0] <= start and end <= window[1]]
        assert len(holding) == 1
        first, last = holding[0]
        # What a value could reach stands in it too.
        assert first <= max(0, start - 64) and last >= min(len(read.text), end + 64)


@pytest.mark.parametrize("escape", ["\\\\", "&#49;", "%41b"])
def test_escapes_without_end_cost_linear_time(escape: str) -> None:
    def cost(times: int) -> float:
        read = unescape(escape * times)
        assert read is not None
        before = time.process_time()
        assert len(list(read.windows())) == 1
        return time.process_time() - before

    assert cost(50_000) < 0.5
