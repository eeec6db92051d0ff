"""`/v1/completions` and aliases through the whole gateway: one record each, and every road as a conversation has it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from tests.support.spelling import SPLIT_TEXT, spells


async def complete(gateway: Running, **body: Any) -> httpx.Response:
    return await gateway.client.post(
        "/v1/completions", json={"model": "local-8b", "prompt": "Say hello", **body}
    )


def events(response: httpx.Response) -> list[Any]:
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


async def test_document_and_stream_say_the_same_and_leave_one_record_each(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, engines={"local-8b": FakeEngine()}) as gateway:
        options = {"max_tokens": 9, "n": 2, "logprobs": 0, "seed": 7}
        whole = await complete(gateway, **options)
        assert whole.status_code == 200, whole.text
        answer = whole.json()
        stream = await complete(gateway, **options, stream=True, stream_options={"include_usage": True})
        *chunks, last = events(stream)
        assert last["choices"] == [] and last["usage"] == answer["usage"]
        for index in range(2):
            pieces = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
            assert "".join(piece["text"] for piece in pieces) == answer["choices"][index]["text"]
            assert [piece["finish_reason"] for piece in pieces][-1] == "length"
            offsets = [at for piece in pieces for at in piece["logprobs"]["text_offset"]]
            assert offsets == answer["choices"][index]["logprobs"]["text_offset"] and len(offsets) == 9
        assert answer["object"] == chunks[0]["object"] == "text_completion"
        plain = events(await complete(gateway, stream=True))
        assert all(chunk["choices"] and "usage" not in chunk for chunk in plain)
        rows = gateway.rows()
        assert [(row["outcome"], row["completion_tokens"]) for row in rows] == [
            ("ok", 18),
            ("ok", 18),
            ("ok", 16),
        ]
        assert {row["request_id"] for row in rows} == {
            response.headers["x-weighbridge-request-id"] for response in (whole, stream)
        } | {rows[2]["request_id"]}
        chat = await gateway.chat(
            model="local-8b", messages=[{"role": "user", "content": "Say hello"}], max_tokens=9, seed=7
        )
        assert chat.json()["choices"][0]["message"]["content"] == answer["choices"][0]["text"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_prompt_that_overflows_leaves_masked_and_comes_back_restored(
    tmp_path: Path, stream: bool
) -> None:
    mail, gate = "kim.minsu@corp-example.co.kr", asyncio.Event()
    engine = FakeEngine(script=Script(first_gate=gate))
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines={"local-8b": engine},
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=50),
            tiers={"local-8b": {"max_num_seqs": 1, "slots": 1}},
        ) as gateway,
    ):
        first = asyncio.create_task(complete(gateway))
        while not engine.calls:
            await asyncio.sleep(0.01)
        response = await complete(gateway, model="auto", prompt=f"Label as A or B: {mail}", stream=stream)
        assert response.status_code == 200, response.text
        if stream:
            text = "".join(choice["text"] for chunk in events(response) for choice in chunk["choices"])
        else:
            text = response.json()["choices"][0]["text"]
        assert response.headers["x-weighbridge-road"] == "commercial"
        assert mail in text
        assert mail not in recorder.everything.decode()
        assert "prompt" not in recorder.requests[0].json
        gate.set()
        assert (await first).status_code == 200
        assert len(gateway.egress()) == 1 and len(gateway.rows()) == 2


async def test_errors_of_the_engine_name_the_callers_field(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, engines={"local-8b": FakeEngine(max_model_len=64)}) as gateway:
        refused = await complete(gateway, prompt="word " * 400)
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
        wrong = await complete(gateway, temperature=7)
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "temperature")
        assert [row["status"] for row in gateway.rows()] == [400, 400]
        assert (await complete(gateway, prompt=["a", "b"])).status_code == 400
        assert len(gateway.rows()) == 2, "what is not admitted has no record"


async def test_a_caller_who_leaves_frees_the_slot(tmp_path: Path) -> None:
    engine = FakeEngine(script=Script(token_s=0.01))
    async with running_gateway(tmp_path, engines={"local-8b": engine}) as gateway:
        body = {"model": "local-8b", "prompt": "go on", "max_tokens": 900, "stream": True}
        async with gateway.client.stream("POST", "/v1/completions", json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    break
        async with asyncio.timeout(5):
            while gateway.slots_in_use() or not gateway.rows() or not gateway.rows()[0]["outcome"]:
                await asyncio.sleep(0.01)
        assert gateway.rows()[0]["outcome"] == "client_aborted"


async def test_an_alias_takes_its_road_and_the_record_keeps_its_name(tmp_path: Path) -> None:
    aliases = {"gpt-4o": "auto", "org/mini": "local-8b"}
    policy = policy_file(tmp_path, aliases=aliases, egress="never")
    async with running_gateway(tmp_path, policy=policy) as gateway:
        listed = [model["id"] for model in (await gateway.client.get("/v1/models")).json()["data"]]
        assert listed == ["auto", "local-8b", "local-70b", "gpt-4o", "org/mini"]
        mini = await gateway.chat(model="org/mini")
        assert (mini.headers["x-weighbridge-road"], mini.json()["model"]) == ("local-8b", "local-8b")
        weighed = await gateway.chat(
            model="gpt-4o",
            messages=[{"role": "user", "content": "Summarise this report in a line: sales rose."}],
        )
        assert weighed.headers["x-weighbridge-road"] == "local-70b"
        text = await complete(gateway, model="org/mini")
        assert text.headers["x-weighbridge-road"] == "local-8b"
        rows = gateway.rows()
        assert [row["model_requested"] for row in rows] == ["org/mini", "gpt-4o", "org/mini"]
        assert all(f"alias {row['model_requested']} of" in str(row["reasons"]) for row in rows)

        policy_file(tmp_path, aliases={"gpt-4o": "local-70b"}, egress="never")
        async with asyncio.timeout(10):
            while (await gateway.chat(model="org/mini")).status_code != 404:
                await asyncio.sleep(0.05)
        assert (await gateway.chat(model="gpt-4o")).headers["x-weighbridge-road"] == "local-70b"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_text_of_single_byte_tokens_arrives_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Every character of Hangul, jamo and emoji comes as bytes, each a token and an engine step of its own."""
    count = spells(monkeypatch, SPLIT_TEXT)
    chat = path.startswith("/v1/chat")
    body: dict[str, Any] = {"model": "local-8b", "max_tokens": count, "n": 2}
    body |= {"messages": [{"role": "user", "content": "x"}]} if chat else {"prompt": "x"}
    async with running_gateway(tmp_path, engines={"local-8b": FakeEngine()}) as gateway:
        whole = (await gateway.client.post(path, json=body)).json()
        stream = events(
            await gateway.client.post(path, json={**body, "stream": True, "logprobs": True if chat else 0})
        )
    for index in range(2):
        pieces = [choice for chunk in stream for choice in chunk["choices"] if choice["index"] == index]
        said = [(piece["delta"].get("content") if chat else piece["text"]) or "" for piece in pieces]
        assert "".join(said) == SPLIT_TEXT
        assert not any("\ufffd" in piece for piece in said)
        choice = whole["choices"][index]
        assert (choice["message"]["content"] if chat else choice["text"]) == SPLIT_TEXT
        if not chat:
            offsets = [at for piece in pieces for at in piece["logprobs"]["text_offset"]]
            encoded = SPLIT_TEXT.encode()
            assert offsets == [len(encoded[:at].decode("utf-8", "ignore")) for at in range(count)]
