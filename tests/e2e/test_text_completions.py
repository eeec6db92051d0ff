"""`/v1/completions` on real vLLM, as the `openai` client asks and as the wire shows it."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError

from tests.e2e.conftest import Served, sse
from tests.e2e.openai_schema import checked_error, checked_text

pytestmark = pytest.mark.engine
PROMPT = "Say hello to the team."
KOREAN = "가나다라 마바사 \u1112\u1161\u11ab ㅎㅏㄴ 👩‍👩‍👧 값 뷁"


def test_the_openai_client_completes_and_streams_the_same(served: Served) -> None:
    ask: dict[str, Any] = {"model": "local-8b", "prompt": PROMPT, "max_tokens": 12, "temperature": 0}
    raw = served.openai.completions.with_raw_response.create(**ask)
    answer = raw.parse()
    assert answer.object == "text_completion" and answer.choices[0].text
    row = served.row(raw.headers["x-weighbridge-request-id"])
    assert (row["outcome"], row["attempts"], row["completion_tokens"]) == (
        "ok",
        1,
        answer.usage.completion_tokens,
    )
    chunks = list(
        served.openai.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    )
    usage = chunks.pop().usage
    assert usage == answer.usage or (usage and usage.completion_tokens == answer.usage.completion_tokens)
    assert "".join(chunk.choices[0].text for chunk in chunks) == answer.choices[0].text
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == answer.choices[0].finish_reason
    plain = list(served.openai.completions.create(**ask, stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in plain)


def test_the_wire_is_openais(served: Served) -> None:
    body = {"model": "local-8b", "prompt": [PROMPT], "n": 2, "seed": 5, "temperature": 1.0, "logprobs": 2}
    response = served.http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    answer = checked_text(response.json())
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.usage and answer.usage.completion_tokens <= 32
    for choice in answer.choices:
        logprobs = choice.logprobs
        assert logprobs and logprobs.tokens and logprobs.top_logprobs and logprobs.text_offset
        lengths = {len(logprobs.tokens), len(logprobs.token_logprobs or ()), len(logprobs.text_offset)}
        assert lengths == {len(logprobs.top_logprobs)}
        for token, offset in zip(logprobs.tokens, logprobs.text_offset, strict=True):
            assert choice.text[offset:].startswith(token) or "\ufffd" in token or offset >= len(choice.text)
    events = sse(served.http.post("/v1/completions", json={**body, "stream": True}).text)
    assert events[-1] == "[DONE]"
    chunks = [checked_text(event) if event["choices"][0]["finish_reason"] else event for event in events[:-1]]
    assert chunks and all(event["object"] == "text_completion" for event in events[:-1])
    for index in range(2):
        text = "".join(c["text"] for event in events[:-1] for c in event["choices"] if c["index"] == index)
        assert text == answer.choices[index].text


def test_stop_and_the_default_limit(served: Served) -> None:
    free = served.openai.completions.create(model="local-8b", prompt=PROMPT, temperature=0)
    assert free.usage and free.usage.completion_tokens <= 16
    word = free.choices[0].text.split()[2]
    cut = served.openai.completions.create(model="local-8b", prompt=PROMPT, temperature=0, stop=word)
    assert cut.choices[0].text == free.choices[0].text.partition(word)[0]
    assert cut.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_korean_jamo_and_emoji_arrive_whole(served: Served, stream: bool) -> None:
    body = {
        "model": "local-8b",
        "prompt": "따라 하세요.",
        "max_tokens": 300,
        "structured_outputs": {"choice": [KOREAN]},
        "stream": stream,
    }
    response = served.http.post("/v1/completions", json=body)
    if not stream:
        assert response.json()["choices"][0]["text"] == KOREAN
        return
    pieces = [event["choices"][0]["text"] for event in sse(response.text)[:-1]]
    assert "".join(pieces) == KOREAN and not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": "weigh this word " * 2000}, "prompt"),
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": 99}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 99}, "temperature"),
    ],
)
def test_what_is_not_offered_is_400_and_named(served: Served, change: dict[str, Any], param: str) -> None:
    body = {"model": "local-8b", "prompt": PROMPT, **change}
    response = served.http.post("/v1/completions", json=body)
    assert response.status_code == 400, response.text
    error = checked_error(response.json())
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    with pytest.raises(BadRequestError):
        served.openai.completions.create(**body)
