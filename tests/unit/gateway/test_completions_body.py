"""A text-completions body as a chat body: what is translated, what is kept, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.errors import InvalidRequest
from weighbridge.gateway.completions_body import DEFAULT_MAX_TOKENS, LEFT_OUT, MAX_LOGPROBS, to_chat

BASE: dict[str, Any] = {"model": "auto", "prompt": "hello"}


@pytest.mark.parametrize("prompt", ["hello", ["hello"]])
def test_the_prompt_becomes_one_users_message(prompt: object) -> None:
    assert to_chat({"model": "auto", "prompt": prompt}) == {
        "model": "auto",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": DEFAULT_MAX_TOKENS,
    }


def test_the_limit_is_openais_unless_it_is_given() -> None:
    assert to_chat(BASE)["max_tokens"] == to_chat(BASE | {"max_tokens": None})["max_tokens"] == 16
    assert to_chat(BASE | {"max_tokens": 0})["max_tokens"] == 0
    assert to_chat(BASE | {"max_tokens": "many"})["max_tokens"] == "many", "the backend's to refuse"


@pytest.mark.parametrize("wanted", [0, 5, MAX_LOGPROBS])
def test_logprobs_are_asked_for_as_chat_asks(wanted: int) -> None:
    chat = to_chat(BASE | {"logprobs": wanted})
    assert (chat["logprobs"], chat["top_logprobs"]) == (True, wanted)


def test_null_asks_for_nothing() -> None:
    nulls = dict.fromkeys(
        ("logprobs", "echo", "suffix", "best_of", "messages", "tools", "top_logprobs", "prompt_logprobs")
    )
    assert to_chat(BASE | nulls) == to_chat(BASE)
    assert to_chat(BASE | {"echo": False, "suffix": "", "best_of": 1}) == to_chat(BASE)
    assert to_chat(BASE | {"n": 3, "best_of": 3}) == to_chat(BASE | {"n": 3})


REFUSED = [
    ({"prompt": None}, "prompt", None),
    ({"prompt": 7}, "prompt", None),
    ({"prompt": []}, "prompt", None),
    ({"prompt": {"text": "planted"}}, "prompt", None),
    ({"prompt": ["planted", "two"]}, "prompt", "unsupported_prompt"),
    ({"prompt": [1, 2, 3]}, "prompt", "unsupported_prompt"),
    ({"prompt": [[1, 2], [3]]}, "prompt", "unsupported_prompt"),
    ({"prompt": ["planted", 2]}, "prompt", "unsupported_prompt"),
    ({"echo": True}, "echo", "unsupported_parameter"),
    ({"echo": "planted"}, "echo", None),
    ({"suffix": "planted"}, "suffix", "unsupported_parameter"),
    ({"suffix": 0}, "suffix", "unsupported_parameter"),
    ({"best_of": 2}, "best_of", "unsupported_parameter"),
    ({"best_of": 1, "n": 2}, "best_of", "unsupported_parameter"),
    ({"best_of": True}, "best_of", "unsupported_parameter"),
    ({"logprobs": True}, "logprobs", None),
    ({"logprobs": MAX_LOGPROBS + 1}, "logprobs", None),
    ({"logprobs": -1}, "logprobs", None),
    ({"logprobs": "planted"}, "logprobs", None),
    ({"logprobs": 1.0}, "logprobs", None),
    ({"messages": [{"role": "user", "content": "planted"}]}, "messages", "unsupported_parameter"),
    ({"tools": []}, "tools", "unsupported_parameter"),
    ({"tool_choice": "planted"}, "tool_choice", "unsupported_parameter"),
    ({"top_logprobs": 2}, "top_logprobs", "unsupported_parameter"),
    ({"max_completion_tokens": 2}, "max_completion_tokens", "unsupported_parameter"),
    ({"prompt_logprobs": 1}, "prompt_logprobs", "unsupported_parameter"),
]


@pytest.mark.parametrize(("change", "param", "code"), REFUSED)
def test_what_cannot_be_given_is_refused_by_name(
    change: dict[str, Any], param: str, code: str | None
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        to_chat(BASE | change)
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, param, code)
    assert f"'{param}'" in refused.value.message
    assert "planted" not in refused.value.message


@pytest.mark.parametrize("page", ["docs/clients.md", "docs/ko/clients.md"])
def test_the_pages_name_every_field_that_is_refused(page: str) -> None:
    text = (Path(__file__).parents[3] / page).read_text(encoding="utf-8").partition("unsupported_prompt")[2]
    for field in {param for _, param, code in REFUSED if code == "unsupported_parameter"} | LEFT_OUT - {
        "logprobs"
    }:
        assert f"`{field}`" in text or field == "prompt", field


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.text(max_size=8) | st.sampled_from(
    [
        "prompt",
        "model",
        "stream",
        "n",
        "echo",
        "suffix",
        "best_of",
        "logprobs",
        "messages",
        "tools",
        "seed",
        "stop",
    ]
)


@given(st.dictionaries(NAMES, VALUES, max_size=8))
def test_any_body_is_translated_whole_or_refused(body: dict[str, Any]) -> None:
    before = dict(body)
    try:
        chat = to_chat(body)
    except InvalidRequest as refused:
        assert refused.param in body or refused.param == "prompt"
        return
    finally:
        assert body == before
    translated = {"prompt", "echo", "suffix", "best_of", "logprobs", "messages", "tools", "max_tokens"}
    assert {name: value for name, value in body.items() if name not in translated} == {
        name: value
        for name, value in chat.items()
        if name not in translated and not (name == "top_logprobs" and body.get("logprobs") is not None)
    }, "every other field is kept"
    prompt = body["prompt"] if isinstance(body["prompt"], str) else body["prompt"][0]
    assert chat["messages"] == [{"role": "user", "content": prompt}]
