"""Evidence after the cheap answer, on real vLLM: what the small model cannot do ends on the next road, once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract import test_engine_contract as shared
from tests.support.engine_lab import Lab
from tests.support.real_engines import real_gateway
from tests.support.recorder import Mode, Recorder, recording
from tests.support.running import Running, policy_file
from tests.support.waiting import content, events
from weighbridge.config.evidence import Evidence
from weighbridge.policies.compiled import Policy
from weighbridge.policies.escalation import Escalation

pytestmark = pytest.mark.engine

LIMIT = 24
TIER = {"dtype": "float32", "max_model_len": 512, "max_num_seqs": 2, "kv_cache_memory_bytes": 128 << 20}
LABEL = "Classify this review as positive or negative: the delivery was fast."
REPLY = json.dumps({"label": "positive", "reason": "the delivery was fast"})
RELATED = {
    "type": "object",
    "properties": {"label": {"const": "positive"}},
    "required": ["label"],
    "dependentRequired": {"label": ["reason"]},
}
"""The grammar knows nothing of what is required only because something else is there."""


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def served(
    runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Running, Recorder, list[Any]]]:
    folder: Path = tmp_path_factory.mktemp("escalation")

    async def serve() -> AsyncIterator[tuple[Running, Recorder, list[Any]]]:
        async with (
            recording(Mode(reply=REPLY)) as recorder,
            real_gateway(
                folder, {"local-8b": TIER}, upstream=recorder.base_url, policy=policy_file(folder)
            ) as (gateway, fleet),
        ):
            yield gateway, recorder, fleet.made["local-8b"]

    serving = serve()
    yield runner.run(anext(serving))
    assert runner.run(anext(serving, None)) is None


def escalate(
    monkeypatch: pytest.MonkeyPatch, *on: Evidence, least: float | None = None, hold: int = 0
) -> None:
    wanted = Escalation(frozenset(on), least, 1, hold)
    monkeypatch.setattr(Policy, "escalation_for", lambda self, task: wanted)


async def ask(gateway: Running, **body: Any) -> tuple[Any, list[tuple[str, str]], dict[str, Any]]:
    """The answer, its attempts, and its row."""
    response = await gateway.chat(
        messages=[{"role": "user", "content": LABEL}], temperature=0, max_tokens=LIMIT, **body
    )
    assert response.status_code == 200, response.text
    request_id = response.headers["x-weighbridge-request-id"]
    (row,) = [row for row in gateway.rows() if row["request_id"] == request_id]
    tried = [(row["road"], row["outcome"]) for row in gateway.attempts(request_id)]
    return response, tried, row


def schema(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "label", "schema": of, "strict": True}}


def test_a_schema_the_small_model_cannot_satisfy_ends_on_the_next_road_once(
    served: Any, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, recorder, _ = served
    escalate(monkeypatch, "invalid_json")

    async def main() -> None:
        before = len(recorder.requests)
        response, tried, row = await ask(gateway, response_format=schema(RELATED))
        assert tried == [("local-8b", "escalated_invalid_json"), ("commercial", "ok")]
        assert response.json()["choices"][0]["message"]["content"] == REPLY
        assert response.headers["x-weighbridge-road"] == row["road"] == "commercial"
        assert response.headers["x-weighbridge-attempts"] == "2"
        assert len(recorder.requests) == before + 1
        attempts = gateway.attempts(row["request_id"])
        assert 0 < attempts[0]["completion_tokens"] < LIMIT
        assert attempts[0]["prompt_tokens"] > 0
        assert gateway.slots_in_use() == 0

    runner.run(main())


def test_a_stream_that_ends_within_the_hold_too(
    served: Any, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, recorder, _ = served
    escalate(monkeypatch, "invalid_json", hold=100)

    async def main() -> None:
        before = len(recorder.requests)
        response, tried, _ = await ask(gateway, response_format=schema(RELATED), stream=True)
        assert tried == [("local-8b", "escalated_invalid_json"), ("commercial", "ok")]
        assert content(response.text) == REPLY and events(response.text)[-1] == "[DONE]"
        assert len(recorder.requests) == before + 1

    runner.run(main())


def test_a_schema_it_can_satisfy_stays(
    served: Any, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, recorder, _ = served
    escalate(monkeypatch, "invalid_json", "empty", "repetition", "invalid_tool_call")

    async def main() -> None:
        before = len(recorder.requests)
        short = {
            "type": "object",
            "properties": {"label": {"enum": ["positive", "negative"]}},
            "required": ["label"],
            "additionalProperties": False,
        }
        response, tried, _ = await ask(gateway, response_format=schema(short))
        assert tried == [("local-8b", "ok")] and len(recorder.requests) == before
        assert set(json.loads(response.json()["choices"][0]["message"]["content"])) == {"label"}

    runner.run(main())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("least", "road"), [(-0.0001, "commercial"), (-50.0, "local-8b")])
def test_how_sure_the_model_was_decides_and_stays_unseen(
    served: Any,
    runner: asyncio.Runner,
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
    least: float,
    road: str,
) -> None:
    gateway, _, _ = served
    escalate(monkeypatch, "low_logprob", least=least, hold=8)

    async def main() -> None:
        response, tried, _ = await ask(gateway, stream=stream)
        assert response.headers["x-weighbridge-road"] == road
        assert tried[0] == ("local-8b", "ok" if road == "local-8b" else "escalated_low_logprob")
        documents = events(response.text)[:-1] if stream else [response.json()]
        assert all(choice.get("logprobs") is None for document in documents for choice in document["choices"])

    runner.run(main())


@pytest.mark.parametrize("asked", [False, True], ids=["unasked", "asked"])
def test_log_probabilities_are_those_a_caller_would_get(
    served: Any, runner: asyncio.Runner, asked: bool
) -> None:
    _, _, (engine,) = served
    lab = Lab(engine, runner, "local-8b")
    shared.test_how_sure_the_model_is_changes_nothing_that_the_caller_sees(lab, asked)
