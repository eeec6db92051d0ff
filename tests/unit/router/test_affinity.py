"""Affinity: requests that begin alike share it, others do not, and no body is too odd or too large."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.router.affinity import affinity_of

SYSTEM = {"role": "system", "content": "You answer in one sentence."}
FIRST = {"role": "user", "content": "What is a weighbridge?"}


def of(*messages: Any, tenant: str = "acme", **fields: Any) -> bytes:
    return affinity_of({"messages": list(messages), **fields}, tenant)


def test_a_conversation_keeps_its_affinity_as_it_grows() -> None:
    start = of(SYSTEM, FIRST)
    assert len(start) == 16
    later = of(
        SYSTEM, FIRST, {"role": "assistant", "content": "A scale."}, {"role": "user", "content": "More."}
    )
    assert later == start
    assert of(SYSTEM, FIRST, temperature=1, stream=True) == start


def test_another_beginning_is_another_affinity() -> None:
    start = of(SYSTEM, FIRST)
    assert of(SYSTEM, {"role": "user", "content": "What is a scale?"}) != start
    assert of({"role": "system", "content": "Answer at length."}, FIRST) != start
    assert of(FIRST) != start


def test_tenants_share_none() -> None:
    assert of(SYSTEM, FIRST, tenant="acme") != of(SYSTEM, FIRST, tenant="other")
    assert of(tenant="a", prompt_cache_key="bc") != of(tenant="ab", prompt_cache_key="c")


def test_only_the_beginning_counts() -> None:
    shared = "long instructions " * 100
    one = {"role": "system", "content": shared + "one"}
    other = {"role": "system", "content": shared + "other"}
    assert of(one, FIRST) == of(other, SYSTEM)
    at_the_edge = "x" * 1_023
    assert of({"content": at_the_edge + "a"}) != of({"content": at_the_edge + "b"})
    assert of({"content": at_the_edge + "ya"}) == of({"content": at_the_edge + "yb"})
    assert of({"content": "x" * 1_000}, {"content": "y" * 23 + "a"}) != of(
        {"content": "x" * 1_000}, {"content": "y" * 23 + "b"}
    )
    assert of({"content": "x" * 1_000}, {"content": "y" * 24 + "a"}) == of(
        {"content": "x" * 1_000}, {"content": "y" * 24 + "b"}
    )


def test_text_parts_count_as_their_text() -> None:
    parts = [{"type": "text", "text": "You answer in "}, {"type": "text", "text": "one sentence."}]
    assert of({"role": "system", "content": parts}, FIRST) == of(SYSTEM, FIRST)
    picture = {"type": "image_url", "image_url": {"url": "data:"}}
    assert of({"role": "user", "content": [picture, {"type": "text", "text": FIRST["content"]}]}) == of(FIRST)


def test_the_callers_own_key_goes_before_the_messages() -> None:
    keyed = of(SYSTEM, FIRST, prompt_cache_key="support-v3")
    assert keyed == of(FIRST, prompt_cache_key="support-v3")
    assert keyed != of(SYSTEM, FIRST)
    assert keyed != of(SYSTEM, FIRST, prompt_cache_key="support-v4")
    assert keyed != of({"content": "support-v3"})
    for none in (None, "", 5, ["x"], {"a": 1}):
        assert of(SYSTEM, FIRST, prompt_cache_key=none) == of(SYSTEM, FIRST)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"messages": None},
        {"messages": "text"},
        {"messages": []},
        {"messages": [None, 5, "text"]},
        {"messages": [{"role": "user"}, {"role": "user", "content": None}]},
        {"messages": [{"content": ""}, {"content": [5, None, "text", {"type": "text"}, {"text": 5}]}]},
        {"messages": [{"content": {"text": "x"}}]},
        {"messages": [{}, {}, {"content": "the third message does not count"}]},
    ],
)
def test_nothing_to_go_by(body: dict[str, Any]) -> None:
    assert affinity_of(body, "acme") == b""


def test_half_a_surrogate_pair_is_text_too() -> None:
    assert of({"content": "\ud800"}) != of({"content": "\udfff"})
    assert len(of(prompt_cache_key="\ud83d")) == 16


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda held: st.one_of(
        st.lists(held, max_size=4),
        st.dictionaries(st.sampled_from(["content", "text", "role"]), held, max_size=3),
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["messages", "prompt_cache_key", "x"]), _json))
def test_any_body_has_one_and_always_the_same(body: dict[str, Any]) -> None:
    found = affinity_of(body, "acme")
    assert len(found) in (0, 16)
    assert affinity_of(body, "acme") == found


def test_a_large_body_is_looked_at_no_further_than_a_small_one() -> None:
    text = {"type": "text", "text": "x"}
    assert of({"content": [text] * 8}) == of({"content": [text] * 100_000})
    assert of({"content": [text] * 7}) != of({"content": [text] * 8})
    assert of(prompt_cache_key="k" * 1_024) == of(prompt_cache_key="k" * 5_000_000)
    assert of(prompt_cache_key="k" * 1_023) != of(prompt_cache_key="k" * 1_024)
