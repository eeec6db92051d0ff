"""Long work beside the loop, and which JSON values are small."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.offload import Lane, is_small

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=30,
)


def size(value: Any) -> tuple[int, int]:
    """Values below the topmost one, and characters."""
    if isinstance(value, str):
        return 0, len(value)
    if isinstance(value, list):
        parts = [size(item) for item in value]
    elif isinstance(value, dict):
        parts = [(size(item)[0], size(item)[1] + len(name)) for name, item in value.items()]
    else:
        return 0, 0
    return len(parts) + sum(nodes for nodes, _ in parts), sum(chars for _, chars in parts)


@given(JSON)
def test_small_is_what_holds_no_more_values_and_characters(value: Any) -> None:
    nodes, chars = size(value)
    assert is_small(value, nodes=nodes, chars=chars)
    assert nodes == 0 or not is_small(value, nodes=nodes - 1, chars=chars)
    assert chars == 0 or not is_small(value, nodes=nodes, chars=chars - 1)


def test_a_large_value_is_told_in_no_time() -> None:
    large: list[Any] = [{"a": [0] * 100} for _ in range(10_000)]
    used = time.thread_time()
    for _ in range(100):
        assert not is_small(large, nodes=1_000, chars=1_000)
        assert not is_small([large], nodes=10_100, chars=1_000)
    assert time.thread_time() - used < 0.1


async def test_a_lane_does_one_piece_after_the_other_beside_the_loop() -> None:
    lane = Lane("test-lane")
    go, busy, most = threading.Event(), 0, 0

    def work(number: int, *, more: int) -> tuple[int, str]:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        assert go.wait(10)
        busy -= 1
        return number + more, threading.current_thread().name

    pieces = [asyncio.create_task(lane.run(work, number, more=10)) for number in range(4)]
    while not busy:
        await asyncio.sleep(0.001)
    go.set()
    done = await asyncio.gather(*pieces)
    assert [number for number, _ in done] == [10, 11, 12, 13]
    assert {name for _, name in done} == {"test-lane_0"}
    assert most == 1


async def test_what_the_work_raises_comes_back() -> None:
    def fails() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        await Lane("test-lane").run(fails)


async def test_a_lane_counts_what_has_begun_or_waits() -> None:
    lane, go = Lane("test-count"), threading.Event()
    assert lane.pieces == 0
    begun, waiting = (asyncio.ensure_future(lane.run(go.wait, 10)) for _ in range(2))
    await asyncio.sleep(0)
    assert lane.pieces == 2
    for piece in (begun, waiting):
        piece.cancel()
    await asyncio.wait((begun, waiting))
    # Who has left does not end what has begun.
    assert lane.pieces == 1
    go.set()
    await lane.run(len, "")
    assert lane.pieces == 0
