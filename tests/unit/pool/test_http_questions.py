"""The bound on a prompt's tokens, where the server does not count."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.pool.http_questions import fewest_tokens

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
CONTENT = st.one_of(
    TEXT,
    st.none(),
    st.lists(
        st.one_of(TEXT, TEXT.map(lambda text: {"type": "text", "text": text}), st.just({"type": "refusal"})),
        max_size=4,
    ),
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": CONTENT}
)


def pieces(content: Any) -> list[str]:
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return [text for text in texts if isinstance(text, str)]


@given(st.lists(MESSAGE, max_size=6))
def test_the_bound_is_never_above_what_the_longest_tokens_would_make(messages: list[dict[str, Any]]) -> None:
    # A template that trims, and drops all that the assistant said; tokens of 128 bytes throughout.
    rendered = "".join(
        text.strip()
        for message in messages
        if message["role"] != "assistant"
        for text in pieces(message["content"])
    )
    assert 1 <= fewest_tokens(messages) <= max(1, -(-len(rendered.encode()) // 128))


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ({"role": "user", "content": "x" * 128_000}, 1000),
        ({"role": "user", "content": "\n" * 128_000}, 1),
        ({"role": "user", "content": "가" * 128_000}, 3000),
        ({"role": "user", "content": [{"type": "text", "text": "x" * 1280}, "y" * 1280]}, 20),
        ({"role": "assistant", "content": "x" * 128_000}, 1),
        ({"role": "user", "content": {"text": 7}}, 1),
        ("no message", 1),
    ],
)
def test_what_is_far_too_long_is_found(message: Any, tokens: int) -> None:
    assert fewest_tokens([message]) == tokens
