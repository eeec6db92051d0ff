"""What was found before is found again, by its owner alone, and no text is kept for it."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.masking.fakes import Children, FakeChild, planted
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.masking.detector_child import ChildLost
from weighbridge.masking.detector_pool import DetectorPool
from weighbridge.masking.entities import Span
from weighbridge.masking.span_cache import SpanCache, kept
from weighbridge.masking.wire import Ready

CLOCK = SystemClock()


def key(cache: SpanCache, text: str, owner: str = "o", version: str = "v") -> bytes:
    return cache.keys(owner, version, [text])[0]


def soon() -> Deadline:
    return Deadline.after(CLOCK, 10)


class Pool:
    """A pool over fake children, and what it sent them."""

    def __init__(self, cache: SpanCache | None = None) -> None:
        self.children = Children()
        self.pool = DetectorPool(
            self.children.start, workers=1, max_queue=64, task_timeout_s=10, cache=cache or SpanCache()
        )

    async def __aenter__(self) -> Pool:
        await self.pool.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.pool.close()

    async def find(self, texts: list[str], owner: str = "o") -> list[list[Span]]:
        return await self.pool.find(texts, soon(), owner=owner)

    def sent(self) -> list[str]:
        """Texts that went to a child since the last call."""
        asked = [text for child in self.children.started for texts in child.asked for text in texts]
        for child in self.children.started:
            child.asked.clear()
        return asked


async def test_the_next_turn_of_a_chat_sends_what_is_new() -> None:
    async with Pool() as pool:
        history: list[str] = []
        for turn in range(20):
            history += [f"question {turn} XXaXX", f"answer {turn}"]
            found = await pool.find(history)
            assert found == [planted(text) for text in history]
            assert pool.sent() == history[-2:]


async def test_the_same_text_twice_goes_once() -> None:
    async with Pool() as pool:
        assert await pool.find(["XXaXX", "", "XXaXX", ""]) == [[(0, 5, "PHONE")], [], [(0, 5, "PHONE")], []]
        assert pool.sent() == ["XXaXX", ""]


async def test_owners_share_nothing() -> None:
    async with Pool() as pool:
        for owner in ("tenant/one", "tenant/two", ""):
            await pool.find(["XXaXX"], owner)
            assert pool.sent() == ["XXaXX"]


async def test_other_detectors_look_anew() -> None:
    async with Pool() as pool:
        await pool.find(["XXaXX"])
        first = pool.children.started[0]
        pool.children.another.clear()
        FakeChild.ready, kept = Ready("fake-2"), FakeChild.ready
        try:
            first.ended.set()
            await pool.children.another.wait()
            pool.sent()
            await pool.find(["XXaXX"])
            assert pool.sent() == ["XXaXX"]
            await pool.find(["XXaXX"])
            assert pool.sent() == []
        finally:
            FakeChild.ready = kept


async def test_an_answer_of_other_detectors_than_were_there_when_it_was_asked_is_not_kept() -> None:
    async with Pool() as pool:
        pool.pool.about = Ready("some earlier one")
        await pool.find(["XXaXX"])
        pool.pool.about = Ready("some earlier one")
        await pool.find(["XXaXX"])
        assert pool.sent() == ["XXaXX"] * 2


async def test_a_refusal_is_not_kept() -> None:
    def broken(text: str) -> list[Span]:
        raise ChildLost

    cache = SpanCache()
    pool = DetectorPool(Children(broken).start, workers=1, max_queue=4, task_timeout_s=10, cache=cache)
    await pool.start()
    try:
        for _ in range(2):
            try:
                await pool.find(["a"], soon())
            except Exception as refused:
                assert str(refused) == "detector_failed"
        assert len(cache) == 0
    finally:
        await pool.close()


async def test_a_long_text_is_kept_whole() -> None:
    long = "word XXlongXX " * 3_000
    async with Pool() as pool:
        fresh = await pool.find([long])
        assert len(pool.sent()) > 3
        assert await pool.find([long]) == fresh == [planted(long)]
        assert pool.sent() == []


texts = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.sampled_from(["XXaXX", "a XXbXX", "", "가 XXcXX", "word XXdXX " * 1_500]),
    ),
    max_size=6,
)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", "a", "b"]), texts), min_size=1, max_size=8))
def test_what_is_known_is_what_a_fresh_look_finds(asked: list[tuple[str, list[str]]]) -> None:
    """With a cache so small that texts come and go in it."""

    async def run() -> None:
        async with Pool(SpanCache(max_entries=3, max_spans=4_000, largest=3_000)) as pool:
            for owner, some in asked:
                assert await pool.find(some, owner) == [planted(text) for text in some]

    asyncio.run(run())


@given(
    st.tuples(st.text(), st.text(), st.text()),
    st.tuples(st.text(), st.text(), st.text()),
)
def test_one_key_for_one_owner_version_and_text(one: tuple[str, str, str], two: tuple[str, str, str]) -> None:
    cache = SpanCache()
    assert (key(cache, one[2], *one[:2]) == key(cache, two[2], *two[:2])) == (one == two)


def test_a_name_cannot_run_on_into_what_follows() -> None:
    cache = SpanCache()
    made = {
        key(cache, "c", "a", "b"),
        key(cache, "c", "ab", ""),
        key(cache, "c", "", "ab"),
        key(cache, "bc", "a", ""),
    }
    assert len(made) == 4


def test_keys_of_another_cache_are_others() -> None:
    assert key(SpanCache(), "a") != key(SpanCache(), "a")
    told = {size: bytes(size) for size in (64,)}
    assert key(SpanCache(random_bytes=told.__getitem__), "a") == key(
        SpanCache(random_bytes=told.__getitem__), "a"
    )


def test_half_a_surrogate_pair_has_a_key() -> None:
    cache = SpanCache()
    assert key(cache, "\ud800") != key(cache, "?") != key(cache, "\udc00")


def test_the_least_recently_used_goes_first() -> None:
    cache = SpanCache(max_entries=2)
    for name in (b"1", b"2"):
        cache.put(name, ())
    assert cache.get(b"1") == []
    cache.put(b"3", ())
    assert (cache.get(b"1"), cache.get(b"2"), cache.get(b"3")) == ([], None, [])


def test_spans_are_bounded_too() -> None:
    cache = SpanCache(max_spans=10, largest=6)
    spans = kept([(n, n + 1, "NUM") for n in range(7)])
    cache.put(b"too many", spans)
    assert cache.get(b"too many") is None
    for name in (b"1", b"2", b"1", b"3"):
        cache.put(name, spans[:4])
        assert cache.spans <= 10
    assert (len(cache), cache.spans) == (2, 8)
    assert cache.get(b"2") is None
    cache.put(b"3", spans[:1])
    assert cache.spans == 5


def test_what_is_given_out_is_nobodys_to_change() -> None:
    cache = SpanCache()
    cache.put(b"1", kept([(0, 1, "IP")]))
    held = cache.get(b"1")
    assert held is not None
    held.append((2, 3, "IP"))
    assert cache.get(b"1") == [(0, 1, "IP")]


def test_no_text_is_kept() -> None:
    cache = SpanCache()
    text = "very private " + "x" * 1_000
    cache.put(key(cache, text), kept([(0, 4, "PERSON")]))
    seen: set[int] = set()
    todo: list[object] = [cache]
    strings: Counter[str] = Counter()
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type) or type(one).__name__ in ("function", "module"):
            continue
        seen.add(id(one))
        if isinstance(one, str):
            strings[one] += 1
        assert not (isinstance(one, bytes) and b"private" in one)
        todo += gc.get_referents(one)
    assert "PERSON" in strings
    assert not [held for held in strings if "private" in held]


def test_a_key_costs_little() -> None:
    """Against detection, which takes some ten milliseconds for this much text: here it must stay far below one."""
    cache, text = SpanCache(), "가나다라 마바사 " * 100
    best = min(_seconds(lambda: cache.keys("owner", "version", [text])) for _ in range(50))
    plain = min(_seconds(lambda: sum(range(10_000))) for _ in range(50))
    assert best < plain


def _seconds(work: object) -> float:
    assert callable(work)
    began = time.thread_time()
    work()
    return time.thread_time() - began


def test_types_are_not_kept_once_a_span() -> None:
    (one, two) = kept([(0, 1, "".join(["PER", "SON"])), (2, 3, "".join(["PER", "SON"]))])
    assert one[2] is two[2] is sys.intern("PERSON")
