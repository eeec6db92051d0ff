"""Evidence after the cheap answer: a whole gateway whose models say what the test has written down."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.direct import Paper, admitted
from tests.support.fake_engine import Script
from tests.support.recorder import STALL, STATUS_500, Mode, Recorder, recording
from tests.support.running import Running, policy_file, running_gateway
from tests.support.saying import PROMPT_TOKENS, Say, Saying
from tests.support.waiting import comments, content, events, until
from weighbridge.config.evidence import Evidence
from weighbridge.config.offload import BODIES
from weighbridge.policies.compiled import Policy
from weighbridge.policies.escalation import Escalation
from weighbridge.router import escalation
from weighbridge.router.admitted import ClientGone
from weighbridge.router.evidence_json import TooMuch

LABEL = "Classify this review as positive or negative: the delivery was fast."
JSON = {"response_format": {"type": "json_object"}}
NOT_JSON = "This is no JSON at all"
REFUSED = "I'm sorry, but I can't assist with that request."
GOOD = '{"label": "positive"}'


@asynccontextmanager
async def gateway(
    tmp_path: Path, engines: Mapping[str, Saying], recorder: Recorder | None = None, **more: Any
) -> AsyncIterator[Running]:
    policy = policy_file(tmp_path, **more.pop("policy", {}))
    upstream = None if recorder is None else recorder.base_url
    async with running_gateway(
        tmp_path, engines=engines, upstream=upstream, policy=policy, **more
    ) as running:
        yield running
        assert running.slots_in_use() == 0
        assert all(engine.load().unfinished == 0 for engine in engines.values())


@pytest.fixture
def escalate(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has every policy escalate on these."""

    def put(*on: Evidence, most: int = 1, hold: int = 0, least: float | None = None) -> None:
        wanted = Escalation(frozenset(on), least, most, hold)
        monkeypatch.setattr(Policy, "escalation_for", lambda self, task: wanted)

    return put


async def ask(gateway: Running, **body: Any) -> Any:
    return await gateway.chat(messages=[{"role": "user", "content": LABEL}], **body)


def tried(gateway: Running) -> list[tuple[str, str, int, int]]:
    """Road, outcome and tokens of every attempt of the only request."""
    (row,) = gateway.rows()
    rows = gateway.attempts(row["request_id"])
    return [(row["road"], row["outcome"], row["prompt_tokens"], row["completion_tokens"]) for row in rows]


def recorded(gateway: Running) -> bool:
    """Whether the only request's end is on disk: nobody waits for it who has left."""
    return any(row["outcome"] is not None for row in gateway.rows())


def escalated(gateway: Running, road: str, reason: str) -> float:
    return gateway.parts.metrics.escalations_total.labels(road, reason).value


async def test_an_answer_that_is_no_json_is_never_seen_and_the_next_road_answers(
    tmp_path: Path, escalate: Any, caplog: pytest.LogCaptureFixture
) -> None:
    escalate("invalid_json")
    engines = {"local-8b": Saying(NOT_JSON), "local-70b": Saying(GOOD, road="local-70b")}
    with caplog.at_level("INFO", "weighbridge.router"):
        async with gateway(tmp_path, engines) as running:
            response = await ask(running, **JSON)
            assert response.status_code == 200
            assert response.json()["choices"][0]["message"]["content"] == GOOD
            assert response.headers["x-weighbridge-road"] == "local-70b"
            assert response.headers["x-weighbridge-attempts"] == "2"
            assert response.headers["x-weighbridge-reason"] == "escalated from local-8b: invalid_json"
            assert tried(running) == [
                ("local-8b", "escalated_invalid_json", PROMPT_TOKENS, 6),
                ("local-70b", "ok", PROMPT_TOKENS, 2),
            ]
            (row,) = running.rows()
            assert (row["outcome"], row["road"], row["attempts"]) == ("ok", "local-70b", 2)
            assert (row["prompt_tokens"], row["completion_tokens"]) == (PROMPT_TOKENS, 2)
            assert escalated(running, "local-8b", "invalid_json") == 1
    assert "escalated_invalid_json on local-8b, moving to local-70b" in caplog.text
    assert NOT_JSON not in caplog.text and "delivery" not in caplog.text


async def test_what_counts_is_what_the_policy_says_of_the_task(tmp_path: Path) -> None:
    row = {"road": "local-8b", "band": {"at_most": 0.3}, "escalation": {"on": ["invalid_json"]}}
    shipped: dict[str, Any] = {}
    none = {"escalation": {"on": []}}
    rows = {"tasks": {"classification": row}}
    for n, (policy, road) in enumerate(
        [(shipped, "local-70b"), (none, "local-8b"), (none | rows, "local-70b")]
    ):
        engines = {"local-8b": Saying(NOT_JSON), "local-70b": Saying(GOOD, road="local-70b")}
        folder = tmp_path / str(n)
        folder.mkdir()
        async with gateway(folder, engines, policy=policy) as running:
            response = await ask(running, **JSON)
            assert response.headers["x-weighbridge-road"] == road, policy


async def test_it_leaves_masked_and_for_this_reason(tmp_path: Path, escalate: Any) -> None:
    escalate("invalid_json")
    async with (
        recording(Mode(reply=GOOD)) as recorder,
        gateway(tmp_path, {"local-8b": Saying(NOT_JSON)}, recorder) as running,
    ):
        text = f"{LABEL} Written by kim.minsu@corp-example.co.kr."
        response = await running.chat(messages=[{"role": "user", "content": text}], **JSON)
        assert response.headers["x-weighbridge-road"] == "commercial"
        assert response.json()["choices"][0]["message"]["content"] == GOOD
        assert b"corp-example" not in recorder.everything and len(recorder.requests) == 1
        (egress,) = running.egress()
        assert (egress["reason"], egress["attempt"]) == ("escalation", 2)


async def test_never_twice_for_one_reason(tmp_path: Path, escalate: Any) -> None:
    escalate("invalid_json", "empty", most=5)
    engines = {"local-8b": Saying(NOT_JSON), "local-70b": Saying("Not JSON either", road="local-70b")}
    async with recording() as recorder, gateway(tmp_path, engines, recorder) as running:
        response = await ask(running, **JSON)
        assert response.json()["choices"][0]["message"]["content"] == "Not JSON either"
        assert response.headers["x-weighbridge-road"] == "local-70b"
        assert not recorder.requests
        assert [outcome for _, outcome, *_ in tried(running)] == ["escalated_invalid_json", "ok"]


@pytest.mark.parametrize(("most", "road"), [(1, "local-70b"), (2, "commercial")])
async def test_as_often_as_the_policy_allows(tmp_path: Path, escalate: Any, most: int, road: str) -> None:
    escalate("invalid_json", "empty", most=most)
    engines = {"local-8b": Saying(""), "local-70b": Saying("Not JSON either", road="local-70b")}
    async with recording(Mode(reply=GOOD)) as recorder, gateway(tmp_path, engines, recorder) as running:
        response = await ask(running, **JSON)
        assert response.headers["x-weighbridge-road"] == road
        assert len(tried(running)) == most + 1
        assert len(recorder.requests) == most - 1


async def test_an_answer_that_is_good_stays(tmp_path: Path, escalate: Any) -> None:
    escalate("invalid_json", "invalid_tool_call", "empty", "repetition", "refusal", "length", most=5)
    engines = {"local-8b": Saying(GOOD), "local-70b": Saying(GOOD, road="local-70b")}
    async with gateway(tmp_path, engines) as running:
        response = await ask(running, **JSON)
        assert response.headers["x-weighbridge-road"] == "local-8b"
        assert response.headers["x-weighbridge-reason"].startswith("task classification")
        assert not engines["local-70b"].calls


async def test_without_a_higher_road_nothing_is_looked_at(
    tmp_path: Path, escalate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    escalate("invalid_json", hold=9)
    looked: list[Any] = []
    monkeypatch.setattr(escalation, "find", lambda *args: looked.append(args))
    async with gateway(tmp_path, {"local-8b": Saying(NOT_JSON)}) as running:
        response = await ask(running, **JSON)
        assert response.json()["choices"][0]["message"]["content"] == NOT_JSON
        assert response.headers["x-weighbridge-reason"].startswith("task classification")
        assert tried(running) == [("local-8b", "ok", PROMPT_TOKENS, 6)]
        assert content((await ask(running, stream=True, **JSON)).text) == NOT_JSON
        assert escalated(running, "local-8b", "invalid_json") == 0 and not looked


async def test_where_every_road_above_fails_the_answer_that_is_there_goes_out(
    tmp_path: Path, escalate: Any
) -> None:
    escalate("invalid_json")
    async with recording(STATUS_500) as recorder:
        engines = {"local-8b": Saying(NOT_JSON, GOOD)}
        async with gateway(tmp_path, engines, recorder) as running:
            response = await ask(running, **JSON)
            assert response.status_code == 200
            assert response.json()["choices"][0]["message"]["content"] == NOT_JSON
            assert response.headers["x-weighbridge-road"] == "local-8b"
            reason = response.headers["x-weighbridge-reason"]
            assert reason == "invalid_json on local-8b, and no road above it served"
            (row,) = running.rows()
            # The tokens are the answer's, whatever was tried after it.
            assert (row["road"], row["outcome"], row["status"]) == ("local-8b", "ok", 200)
            assert (row["prompt_tokens"], row["completion_tokens"]) == (PROMPT_TOKENS, 6)
            first, *others = tried(running)
            assert first[:2] == ("local-8b", "escalated_invalid_json")
            assert others and {(road, outcome) for road, outcome, *_ in others} == {
                ("commercial", "upstream_status")
            }
            assert row["attempts"] == 1 + len(others)


@pytest.mark.parametrize("on_refusal", ["local", "reject"])
async def test_a_request_that_may_not_leave_gets_the_answer_that_is_there(
    tmp_path: Path, escalate: Any, on_refusal: str
) -> None:
    escalate("invalid_json")
    outward = {"on_refusal": on_refusal, "blocked": {"words": ["delivery"]}}
    async with (
        recording() as recorder,
        gateway(tmp_path, {"local-8b": Saying(NOT_JSON)}, recorder, policy={"outward": outward}) as running,
    ):
        response = await ask(running, **JSON)
        assert response.status_code == 200
        assert response.json()["choices"][0]["message"]["content"] == NOT_JSON
        assert not recorder.requests
        assert [outcome for _, outcome, *_ in tried(running)] == ["escalated_invalid_json", "masking_refused"]


async def test_nothing_leaves_where_the_policy_says_so(tmp_path: Path, escalate: Any) -> None:
    escalate("invalid_json")
    async with (
        recording() as recorder,
        gateway(tmp_path, {"local-8b": Saying(NOT_JSON)}, recorder, policy={"egress": "never"}) as running,
    ):
        response = await ask(running, **JSON)
        assert response.status_code == 200 and not recorder.connections
        assert response.headers["x-weighbridge-attempts"] == "1"


async def test_a_named_tier_stays_unless_the_policy_lets_it_move(tmp_path: Path, escalate: Any) -> None:
    escalate("invalid_json")
    for explicit, road in (("stay", "local-8b"), ("overflow", "local-70b")):
        engines = {"local-8b": Saying(NOT_JSON), "local-70b": Saying(GOOD, road="local-70b")}
        folder = tmp_path / explicit
        folder.mkdir()
        async with gateway(folder, engines, policy={"explicit_local": explicit}) as running:
            response = await ask(running, model="local-8b", **JSON)
            assert response.headers["x-weighbridge-road"] == road


async def test_a_busy_tier_above_is_left_for_the_next_one(tmp_path: Path, escalate: Any) -> None:
    escalate("invalid_json")
    gate = asyncio.Event()
    engines = {
        "local-8b": Saying(NOT_JSON),
        "local-70b": Saying(GOOD, road="local-70b", script=Script(first_gate=gate)),
    }
    async with (
        recording(Mode(reply=GOOD)) as recorder,
        gateway(
            tmp_path,
            engines,
            recorder,
            policy={"queue_lock_timeout_ms": 50},
            tiers={"local-70b": {"max_num_seqs": 1}},
        ) as running,
    ):
        holding = asyncio.ensure_future(ask(running, model="local-70b"))
        await until(lambda: bool(engines["local-70b"].calls))
        response = await ask(running, **JSON)
        assert response.headers["x-weighbridge-road"] == "commercial"
        assert response.headers["x-weighbridge-attempts"] == "3"
        assert [row["reason"] for row in running.egress()] == ["escalation"]
        gate.set()
        await holding


async def test_a_request_out_of_time_gets_the_answer_that_is_there(tmp_path: Path, escalate: Any) -> None:
    escalate("invalid_json")
    gate = asyncio.Event()
    engines = {
        "local-8b": Saying(NOT_JSON),
        "local-70b": Saying(GOOD, road="local-70b", script=Script(first_gate=gate)),
    }
    async with gateway(tmp_path, engines, server={"port": 0, "request_timeout_s": 1.0}) as running:
        response = await ask(running, **JSON)
        assert response.status_code == 200
        assert response.json()["choices"][0]["message"]["content"] == NOT_JSON
        (row,) = running.rows()
        assert (row["road"], row["outcome"]) == ("local-8b", "ok")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cut", [False, True], ids=["out-of-time", "cut-by-us"])
async def test_an_endpoint_that_keeps_silent_costs_nobody_the_answer_that_is_there(
    tmp_path: Path, escalate: Any, stream: bool, cut: bool
) -> None:
    escalate("refusal", hold=30)
    server = {"port": 0, "request_timeout_s": 60.0 if cut else 1.0}
    drain = {"on_disconnect": {"commercial": "drain", "drain_s": 9}}
    async with (
        recording(STALL) as recorder,
        gateway(tmp_path, {"local-8b": Saying(REFUSED)}, recorder, server=server, policy=drain) as running,
    ):
        paper = Paper()
        asking = asyncio.ensure_future(
            running.parts.dispatch.run(admitted(running, "auto", stream, LABEL), paper)
        )
        await until(lambda: bool(recorder.requests))
        if cut:
            running.parts.dispatch.closing = True
            asking.cancel()
        await asking
        assert (content(paper.body.decode()) if stream else paper.body.decode()).count(REFUSED) == 1
        assert paper.ended
        (row,) = running.rows()
        assert (row["outcome"], row["road"]) == ("ok", "local-8b")


async def test_tool_calls_are_checked_against_what_was_offered(tmp_path: Path, escalate: Any) -> None:
    escalate("invalid_tool_call")
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
    good = Say(calls=(("weather", '{"city": "Seoul"}'),), finish="tool_calls")
    for n, bad in enumerate(
        (
            Say(calls=(("weather", '{"town": "Seoul"}'),), finish="tool_calls"),
            Say(calls=(("forecast", '{"city": "Seoul"}'),), finish="tool_calls"),
            Say("It is sunny."),
        )
    ):
        engines = {"local-8b": Saying(bad), "local-70b": Saying(good, road="local-70b")}
        folder = tmp_path / str(n)
        folder.mkdir()
        async with gateway(folder, engines) as running:
            response = await ask(running, tools=tools, tool_choice="required")
            (call,) = response.json()["choices"][0]["message"]["tool_calls"]
            assert json.loads(call["function"]["arguments"]) == {"city": "Seoul"}
            assert tried(running)[0][1] == "escalated_invalid_tool_call"


async def test_an_unsure_answer_moves_on_and_only_then_is_the_engine_asked(
    tmp_path: Path, escalate: Any
) -> None:
    for n, (logprob, least, road) in enumerate(
        [(-2.0, -1.0, "local-70b"), (-0.2, -1.0, "local-8b"), (-2.0, None, "local-8b")]
    ):
        escalate("low_logprob", least=least)
        engines = {
            "local-8b": Saying(Say("perhaps so", logprob=logprob)),
            "local-70b": Saying("Yes.", road="local-70b"),
        }
        folder = tmp_path / str(n)
        folder.mkdir()
        async with gateway(folder, engines) as running:
            response = await ask(running)
            assert response.headers["x-weighbridge-road"] == road
            assert (engines["local-8b"].calls[0].confidence is None) is (least is None)
            assert all(call.confidence is None for call in engines["local-70b"].calls)


async def test_a_fault_in_the_judging_costs_nobody_an_answer(
    tmp_path: Path, escalate: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    escalate("invalid_json", hold=9)

    def broken(*args: Any) -> None:
        raise ValueError(NOT_JSON)

    monkeypatch.setattr(escalation, "find", broken)
    engines = {"local-8b": Saying(NOT_JSON), "local-70b": Saying(GOOD, road="local-70b")}
    async with gateway(tmp_path, engines) as running:
        assert (await ask(running, **JSON)).json()["choices"][0]["message"]["content"] == NOT_JSON
        assert content((await ask(running, stream=True, **JSON)).text) == NOT_JSON
    assert caplog.text.count("was not judged, ValueError") == 2 and NOT_JSON not in caplog.text


ENDLESS = {"type": "object", "additionalProperties": {"pattern": r"^(\w|\w\w)*$"}}
ENDLESS_FORM = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": ENDLESS}}}
ENDLESS_TEXT = json.dumps({"a": "a" * 60 + "!"})


async def test_an_answer_that_takes_too_long_to_judge_goes_out(
    tmp_path: Path, escalate: Any, caplog: pytest.LogCaptureFixture
) -> None:
    escalate("invalid_json")
    engines = {"local-8b": Saying(ENDLESS_TEXT), "local-70b": Saying(GOOD, road="local-70b")}
    with caplog.at_level("INFO", "weighbridge.router"):
        async with gateway(tmp_path, engines) as running:
            response = await ask(running, **ENDLESS_FORM)
            assert response.json()["choices"][0]["message"]["content"] == ENDLESS_TEXT
            assert response.headers["x-weighbridge-road"] == "local-8b"
    assert "could not be judged in time" in caplog.text


async def test_hostile_schemas_keep_nobody_else_waiting(tmp_path: Path, escalate: Any) -> None:
    escalate("invalid_json")
    engines = {"local-8b": Saying(ENDLESS_TEXT), "local-70b": Saying(GOOD, road="local-70b")}
    async with gateway(tmp_path, engines) as running:
        began = time.perf_counter()
        asking = [asyncio.ensure_future(ask(running, **ENDLESS_FORM)) for _ in range(12)]
        await until(lambda: escalation.JUDGING.pieces > 0)
        assert BODIES.pieces == 0
        waited = time.perf_counter()
        await BODIES.run(len, "another's body")
        assert time.perf_counter() - waited < 0.3
        for response in await asyncio.gather(*asking):
            assert response.json()["choices"][0]["message"]["content"] == ENDLESS_TEXT
        assert time.perf_counter() - began < 2.5
        assert escalation.JUDGING.pieces == 0


async def test_a_request_whose_time_ends_while_its_answer_is_judged_gets_it(
    tmp_path: Path, escalate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    escalate("invalid_json")
    judged = threading.Event()

    def judge(look: Any, asked: Any, answer: Any, mean: Any, allowance: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            raise TooMuch
        judged.wait(10)

    monkeypatch.setattr(escalation, "find", judge)
    engines = {"local-8b": Saying(NOT_JSON), "local-70b": Saying(GOOD, road="local-70b")}
    async with gateway(tmp_path, engines, server={"port": 0, "request_timeout_s": 1.0}) as running:
        response = await ask(running, **JSON)
        judged.set()
        assert response.status_code == 200
        assert response.json()["choices"][0]["message"]["content"] == NOT_JSON
        assert tried(running) == [("local-8b", "ok", PROMPT_TOKENS, 6)]


async def test_a_caller_who_leaves_meanwhile_is_recorded_and_nothing_goes_on(
    tmp_path: Path, escalate: Any
) -> None:
    escalate("invalid_json")
    engines = {
        "local-8b": Saying(NOT_JSON),
        "local-70b": Saying(GOOD, road="local-70b", script=Script(first_gate=asyncio.Event())),
    }
    async with gateway(tmp_path, engines) as running:
        asking = asyncio.ensure_future(ask(running, **JSON))
        await until(lambda: bool(engines["local-70b"].calls))
        asking.cancel()
        await until(lambda: recorded(running))
        (row,) = running.rows()
        assert (row["outcome"], row["road"], row["status"]) == ("client_aborted", "local-70b", 0)
        outcomes = [outcome for _, outcome, *_ in tried(running)]
        assert outcomes == ["escalated_invalid_json", "cancelled"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_is_cut_at_the_end_of_a_drain_gets_the_answer_that_is_there(
    tmp_path: Path, escalate: Any, stream: bool
) -> None:
    escalate("refusal", hold=30)
    engines = {
        "local-8b": Saying(REFUSED),
        "local-70b": Saying(GOOD, road="local-70b", script=Script(first_gate=asyncio.Event())),
    }
    async with gateway(tmp_path, engines) as running:
        paper = Paper()
        asking = asyncio.ensure_future(
            running.parts.dispatch.run(admitted(running, "auto", stream, LABEL), paper)
        )
        await until(lambda: bool(engines["local-70b"].calls))
        running.parts.dispatch.closing = True
        asking.cancel()
        await asking
        assert (content(paper.body.decode()) if stream else paper.body.decode()).count(REFUSED) == 1
        assert paper.ended
        (row,) = running.rows()
        assert (row["outcome"], row["road"], row["status"]) == ("ok", "local-8b", 200)
        assert [outcome for _, outcome, *_ in tried(running)] == ["escalated_refusal", "cancelled"]


# ---- streams ----


async def test_a_stream_goes_out_unseen_unless_it_is_to_be_held(tmp_path: Path, escalate: Any) -> None:
    escalate("refusal", "invalid_json")
    engines = {"local-8b": Saying(REFUSED), "local-70b": Saying("Positive.", road="local-70b")}
    async with gateway(tmp_path, engines) as running:
        response = await ask(running, stream=True)
        assert content(response.text) == REFUSED
        assert response.headers["x-weighbridge-road"] == "local-8b"


async def test_a_held_stream_that_begins_badly_is_never_seen(tmp_path: Path, escalate: Any) -> None:
    escalate("refusal", hold=9)
    gate = asyncio.Semaphore(8)
    engines = {
        "local-8b": Saying(REFUSED + " More of the same.", script=Script(token_gate=gate)),
        "local-70b": Saying("Positive, clearly.", road="local-70b"),
    }
    async with gateway(tmp_path, engines) as running:
        response = await ask(running, stream=True)
        assert content(response.text) == "Positive, clearly."
        assert events(response.text)[-1] == "[DONE]"
        assert response.headers["x-weighbridge-road"] == "local-70b"
        assert response.headers["x-weighbridge-reason"] == "escalated from local-8b: refusal"
        # Nine tokens were made of it, and no more.
        assert tried(running)[0] == ("local-8b", "escalated_refusal", PROMPT_TOKENS, 9)
        assert escalated(running, "local-8b", "refusal") == 1


async def test_a_held_stream_that_begins_well_is_whole(tmp_path: Path, escalate: Any) -> None:
    escalate("refusal", "repetition", "empty", hold=4)
    text = "The review praises the delivery, so it is positive."
    engines = {"local-8b": Saying(text), "local-70b": Saying("Positive.", road="local-70b")}
    async with gateway(tmp_path, engines) as running:
        response = await ask(running, stream=True)
        assert content(response.text) == text
        roles = [
            event["choices"][0]["delta"].get("role") for event in events(response.text) if event != "[DONE]"
        ]
        assert roles.count("assistant") == 1 and events(response.text)[-1] == "[DONE]"
        assert tried(running) == [("local-8b", "ok", PROMPT_TOKENS, 9)]


async def test_a_held_stream_with_large_events_goes_out(tmp_path: Path, escalate: Any) -> None:
    escalate("refusal", hold=20)
    text = "The review praises the delivery, " + "a" * 700_000 + " " + "b" * 700_000 + " so it is positive."
    engines = {"local-8b": Saying(text), "local-70b": Saying("Positive.", road="local-70b")}
    async with gateway(tmp_path, engines) as running:
        response = await ask(running, stream=True)
        assert content(response.text) == text
        assert [outcome for _, outcome, *_ in tried(running)] == ["ok"]


async def test_json_of_a_stream_is_judged_where_it_ended_within_the_hold(
    tmp_path: Path, escalate: Any
) -> None:
    escalate("invalid_json", hold=20)
    engines = {"local-8b": Saying(NOT_JSON), "local-70b": Saying(GOOD, road="local-70b")}
    async with gateway(tmp_path, engines) as running:
        response = await ask(running, stream=True, **JSON)
        assert content(response.text) == GOOD
        assert tried(running)[0][1] == "escalated_invalid_json"


@pytest.mark.parametrize("hold", [6, 20], ids=["to-its-end", "beyond"])
async def test_a_whole_held_stream_goes_out_where_no_road_above_serves(
    tmp_path: Path, escalate: Any, hold: int
) -> None:
    escalate("invalid_json", hold=hold)
    async with (
        recording(STATUS_500) as recorder,
        gateway(tmp_path, {"local-8b": Saying(NOT_JSON, GOOD)}, recorder) as running,
    ):
        response = await ask(running, stream=True, **JSON)
        assert content(response.text) == NOT_JSON and events(response.text)[-1] == "[DONE]"
        assert response.headers["x-weighbridge-road"] == "local-8b"
        (row,) = running.rows()
        assert (row["road"], row["outcome"], row["completion_tokens"]) == ("local-8b", "ok", 6)


async def test_a_cut_stream_is_asked_for_again_where_no_road_above_serves(
    tmp_path: Path, escalate: Any
) -> None:
    escalate("refusal", hold=9, most=3)
    long = REFUSED + " More of the same."
    async with (
        recording(STATUS_500) as recorder,
        gateway(tmp_path, {"local-8b": Saying(long, long)}, recorder) as running,
    ):
        response = await ask(running, stream=True)
        assert content(response.text) == long and events(response.text)[-1] == "[DONE]"
        first, *others = tried(running)
        assert first == ("local-8b", "escalated_refusal", PROMPT_TOKENS, 9)
        assert others[-1] == ("local-8b", "ok", PROMPT_TOKENS, 13)
        assert (
            response.headers["x-weighbridge-reason"] == "no road above local-8b served, so it was asked again"
        )


async def test_signs_of_life_go_out_while_a_stream_is_held(tmp_path: Path, escalate: Any) -> None:
    escalate("refusal", hold=9)
    engines = {
        "local-8b": Saying(REFUSED + " More.", script=Script(token_s=0.05)),
        "local-70b": Saying("Positive, clearly.", road="local-70b"),
    }
    server = {"port": 0, "keep_alive_comment_s": 0.1}
    async with gateway(tmp_path, engines, server=server) as running:
        response = await ask(running, stream=True)
        assert content(response.text) == "Positive, clearly."
        said = comments(response.text)
        assert said[0] == "keep-alive" and "sorry" not in response.text
        summary = json.loads(said[-1].removeprefix("weighbridge "))
        assert summary["road"] == "local-70b" and summary["reason"] == "escalated from local-8b: refusal"


async def test_a_caller_who_leaves_while_a_stream_is_held(tmp_path: Path, escalate: Any) -> None:
    escalate("refusal", hold=9)
    gate = asyncio.Semaphore(3)
    engines = {
        "local-8b": Saying(REFUSED, script=Script(token_gate=gate)),
        "local-70b": Saying(GOOD, road="local-70b"),
    }
    async with gateway(tmp_path, engines) as running:
        request = admitted(running, "auto", True, LABEL)
        paper = Paper()
        asking = asyncio.ensure_future(running.parts.dispatch.run(request, paper))
        await until(lambda: engines["local-8b"].load().made == 4)
        asking.cancel()
        with pytest.raises((asyncio.CancelledError, ClientGone)):
            await asking
        assert paper.body == b"" and not engines["local-70b"].calls
        await until(lambda: recorded(running))
        assert tried(running) == [("local-8b", "cancelled", PROMPT_TOKENS, 4)]
        (row,) = running.rows()
        assert (row["outcome"], row["completion_tokens"]) == ("client_aborted", 4)
