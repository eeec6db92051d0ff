"""Where content begins, and which chunks belong to the caller."""

from __future__ import annotations

import json

import pytest

from weighbridge.router.answer import frame, has_content, is_usage_only, payload_of, weighbridge_headers


def chunk(delta: dict[str, object] | None = None, **choice: object) -> bytes:
    return json.dumps({"id": "x", "choices": [{"index": 0, "delta": delta or {}, **choice}]}).encode()


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "안"},
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"refusal": "no"},
        {"tool_calls": [{}]},
    ],
)
def test_content_is_the_commit_point(delta: dict[str, object]) -> None:
    assert has_content(chunk(delta))


def test_a_role_alone_commits_to_nothing() -> None:
    assert not has_content(chunk({"role": "assistant", "content": ""}, finish_reason=None))


def test_a_finished_empty_answer_is_an_answer() -> None:
    assert has_content(chunk({}, finish_reason="stop"))


def test_usage_only_chunk_is_told_from_a_content_chunk_with_usage() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    assert is_usage_only(json.dumps({"choices": [], "usage": usage}).encode())
    assert not is_usage_only(json.dumps({"choices": [{"delta": {"content": "x"}}], "usage": usage}).encode())
    assert not is_usage_only(chunk({"content": '"usage"'}))
    assert not is_usage_only(json.dumps({"choices": [], "usage": None}).encode())


def test_frame_and_payload_are_inverse() -> None:
    assert payload_of(frame(b'{"a":1}')) == b'{"a":1}'


def test_headers_name_road_score_and_policy() -> None:
    headers = dict(
        weighbridge_headers(
            request_id="r",
            road="local-8b",
            score=0.25,
            task="chat",
            policy="default@1",
            attempts=1,
            queue_ms=3.4,
            reason="score 0.250 < 0.450",
        )
    )
    assert headers[b"x-weighbridge-score"] == b"0.250"
    assert headers[b"x-weighbridge-road"] == b"local-8b"
    assert headers[b"x-weighbridge-queue-ms"] == b"3"
    assert headers[b"x-weighbridge-attempts"] == b"1"
    assert headers[b"x-weighbridge-reason"] == b"score 0.250 < 0.450"
