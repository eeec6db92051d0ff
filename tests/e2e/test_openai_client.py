"""The official `openai` client, unmodified, on real vLLM."""

from __future__ import annotations

import json

import pytest
from openai import APIStatusError, BadRequestError, NotFoundError
from openai.types.chat import ChatCompletionMessageParam

from tests.e2e.conftest import ALIASES, Served

pytestmark = pytest.mark.engine
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello to the team."}]


def test_whole_answer_with_usage_and_record(served: Served) -> None:
    raw = served.openai.chat.completions.with_raw_response.create(
        model="local-8b", messages=HELLO, max_tokens=16, temperature=0
    )
    answer = raw.parse()
    assert answer.choices[0].message.content and answer.model == "local-8b"
    assert answer.usage and answer.usage.completion_tokens in range(1, 17)
    assert raw.headers["x-weighbridge-road"] == "local-8b"
    assert "x-weighbridge-score" not in raw.headers, "a tier was named: nothing hangs on a score"
    for name in ("task", "policy", "attempts", "queue-ms"):
        assert raw.headers[f"x-weighbridge-{name}"]
    row = served.row(raw.headers["x-weighbridge-request-id"])
    assert row["outcome"] == "ok" and row["tokens_exact"]
    assert row["prompt_tokens"] == answer.usage.prompt_tokens
    assert row["completion_tokens"] == answer.usage.completion_tokens


def test_stream_with_usage(served: Served) -> None:
    raw = served.openai.chat.completions.with_raw_response.create(
        model="local-70b",
        messages=HELLO,
        max_tokens=24,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(raw.parse())
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    usage = chunks[-1].usage
    assert text and usage and usage.completion_tokens > 1
    row = served.row(raw.headers["x-weighbridge-request-id"])
    assert (row["prompt_tokens"], row["completion_tokens"]) == (usage.prompt_tokens, usage.completion_tokens)
    assert row["ttft_ms"] > 0 and row["road"] == "local-70b"


def test_two_choices(served: Served) -> None:
    raw = served.openai.chat.completions.with_raw_response.create(
        model="local-8b", messages=HELLO, n=2, max_tokens=8, temperature=1.0, seed=7
    )
    answer = raw.parse()
    assert sorted(choice.index for choice in answer.choices) == [0, 1] and answer.usage
    assert (
        served.row(raw.headers["x-weighbridge-request-id"])["completion_tokens"]
        == answer.usage.completion_tokens
    )


def test_json_schema(served: Served) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "hot": {"type": "boolean"}},
        "required": ["city", "hot"],
        "additionalProperties": False,
    }
    answer = served.openai.chat.completions.create(
        model="local-8b",
        messages=[{"role": "user", "content": "Is it hot in Seoul in July? Answer as JSON."}],
        max_tokens=60,
        temperature=0,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "weather", "schema": schema, "strict": True},
        },
    )
    parsed = json.loads(answer.choices[0].message.content or "")
    assert set(parsed) == {"city", "hot"} and isinstance(parsed["hot"], bool)


@pytest.mark.parametrize("stream", [False, True])
def test_korean_text_stays_intact(served: Served, stream: bool) -> None:
    wanted = "가나다라 마바사 👩‍👩‍👧 값 뷁"
    body = {
        "model": "local-8b",
        "messages": [{"role": "user", "content": f"다음을 따라 하세요: {wanted}"}],
        "structured_outputs": {"choice": [wanted]},
        "max_tokens": 200,
        "temperature": 0,
        "stream": stream,
    }
    response = served.chat(**body)
    assert response.status_code == 200, response.text
    if stream:
        events = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
        assert events.pop() == "[DONE]"
        text = "".join(json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events)
    else:
        text = response.json()["choices"][0]["message"]["content"]
    assert text == wanted


@pytest.mark.parametrize(
    ("text", "road", "task"),
    [
        (
            "Classify this review as positive or negative: the battery died in a day.",
            "local-8b",
            "classification",
        ),
        (
            "다음 문의를 [배송, 환불, 기타] 중 하나로 분류해줘: 물건이 아직 안 왔어요.",
            "local-8b",
            "classification",
        ),
        (
            "Summarise the following report in three sentences: sales rose, costs fell.",
            "local-70b",
            "summarization",
        ),
        ("다음 글을 세 문장으로 요약해 줘: 올해 매출이 늘고 비용이 줄었다.", "local-70b", "summarization"),
        ("Write a Python function that merges two sorted lists.", "commercial", "code"),
        ("이 파이썬 코드의 버그를 찾아 고쳐줘: def f(x): retrun x", "commercial", "code"),
    ],
)
def test_auto_takes_the_road_of_the_task(served: Served, text: str, road: str, task: str) -> None:
    raw = served.openai.chat.completions.with_raw_response.create(
        model="auto", messages=[{"role": "user", "content": text}], max_tokens=8
    )
    assert raw.headers["x-weighbridge-task"] == task
    assert 0 <= float(raw.headers["x-weighbridge-score"]) <= 1
    assert raw.headers["x-weighbridge-road"] == road
    row = served.row(raw.headers["x-weighbridge-request-id"])
    assert (row["request_id"] in served.egress()) == (road == "commercial")


def test_models_say_what_really_serves(served: Served) -> None:
    models = {model.id: model for model in served.openai.models.list()}
    assert set(models) == {"auto", "local-8b", "local-70b", "commercial", *ALIASES}
    told = json.dumps(models["local-70b"].model_dump(), ensure_ascii=False)
    assert "SmolLM2-135M" in told and "embedded" in told


def test_overlong_prompt_is_400_before_queueing_and_the_engine_lives(served: Served) -> None:
    long = "weigh this word " * 2000
    for model in ("local-8b", "local-70b"):
        with pytest.raises(BadRequestError) as refused:
            served.openai.chat.completions.create(model=model, messages=[{"role": "user", "content": long}])
        assert refused.value.code == "context_length_exceeded"
        row = served.row(refused.value.response.headers["x-weighbridge-request-id"])
        assert (row["status"], row["outcome"], row["queue_ms"]) == (400, "refused", 0)
        test_whole_answer_with_usage_and_record(served)


def test_overlong_auto_is_400_where_nothing_may_leave(served: Served) -> None:
    served.put_policy(egress="never")
    try:
        with pytest.raises(BadRequestError) as refused:
            served.openai.chat.completions.create(
                model="auto", messages=[{"role": "user", "content": "weigh this word " * 2000}]
            )
        assert refused.value.code == "context_length_exceeded"
    finally:
        served.put_policy()


def test_overlong_auto_takes_the_wider_road(served: Served) -> None:
    raw = served.openai.chat.completions.with_raw_response.create(
        model="auto", messages=[{"role": "user", "content": "Summarise this: " + "weigh this word " * 2000}]
    )
    assert raw.headers["x-weighbridge-road"] == "commercial"


def test_errors_are_openai_shaped(served: Served) -> None:
    with pytest.raises(NotFoundError) as missing:
        served.openai.chat.completions.create(model="gpt-nine", messages=HELLO)
    assert missing.value.code == "model_not_found"
    with pytest.raises(BadRequestError) as greedy:
        served.openai.chat.completions.create(model="local-8b", messages=HELLO, n=2, temperature=0)
    assert greedy.value.type == "invalid_request_error"
    with pytest.raises(APIStatusError) as stranger:
        served.openai.with_options(api_key="wrong").chat.completions.create(model="local-8b", messages=HELLO)
    assert stranger.value.status_code == 401
