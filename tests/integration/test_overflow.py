"""Overflow: 64 requests onto 4 slots, a queue lock of 300 ms, and an API that writes down every byte."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway

REQUESTS, SLOTS = 64, 4


def planted(n: int) -> dict[str, str]:
    """Values of which not one may be seen outside."""
    return {
        "mail": f"kim.minsu{n:02d}@corp-example.co.kr",
        "mobile": f"010-{2345 + n:04d}-{6789 - n:04d}",
        "rrn": f"8{n % 10}0101-1{234567 + n * 7:06d}",
        "card": "4111 1111 1111 1111",
    }


def label_request(n: int, stream: bool) -> dict[str, Any]:
    values = planted(n)
    text = (
        f"다음 문의를 [배송, 환불, 기타] 중 하나로 분류해줘. 고객 메일은 {values['mail']}이고 "
        f"휴대폰은 {values['mobile']}입니다. "
        f"주민번호 {values['rrn']}, 카드는 {values['card']}로 결제."
    )
    return {"model": "auto", "stream": stream, "messages": [{"role": "user", "content": text}]}


def digits(text: str) -> str:
    return "".join(ch for ch in text if ch.isalnum())


def said(response: Any, stream: bool) -> str:
    if not stream:
        return str(response.json()["choices"][0]["message"]["content"])
    events = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events[:-1]]
    return "".join(delta.get("content") or "" for delta in deltas)


class Watched(FakeEngine):
    """Notes how many calls were ever in it at once."""

    most_at_once = 0

    async def _pause(self, *args: Any) -> None:
        self.most_at_once = max(self.most_at_once, self.load().unfinished)
        await super()._pause(*args)


def slow_engines() -> dict[str, FakeEngine]:
    # 64 answers of ~0.4 s on 4 slots: most waiters pass the 300 ms.
    return {"local-8b": Watched(script=Script(first_token_s=0.2, token_s=0.01))}


async def burst(gateway: Running) -> list[tuple[int, bool, Any]]:
    async def one(n: int) -> tuple[int, bool, Any]:
        stream = n % 2 == 0
        return n, stream, await gateway.chat(**label_request(n, stream))

    return await asyncio.gather(*(one(n) for n in range(REQUESTS)))


async def test_overflow_leaves_masked_and_comes_back_restored(tmp_path: Path) -> None:
    # The shipped policy refuses resident registration numbers; this one lets them out masked.
    policy = policy_file(tmp_path, queue_lock_timeout_ms=300, outward={"refuse": []})
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines=slow_engines(),
            upstream=recorder.base_url,
            policy=policy,
            tiers={"local-8b": {"max_num_seqs": SLOTS}},
        ) as gateway,
    ):
        answers = await burst(gateway)
        by_road: dict[str, list[int]] = {"local-8b": [], "commercial": []}
        for n, stream, response in answers:
            assert response.status_code == 200, response.text
            road = response.headers["x-weighbridge-road"]
            by_road[road].append(n)
            assert response.headers["x-weighbridge-attempts"] == ("1" if road == "local-8b" else "2")
            if road == "commercial":
                for value in planted(n).values():
                    assert value in said(response, stream), "a value came back unrestored"
        assert len(by_road["local-8b"]) >= SLOTS
        assert len(by_road["commercial"]) >= REQUESTS // 2
        assert len(recorder.requests) == len(by_road["commercial"])
        engine = gateway.engines["local-8b"]
        assert isinstance(engine, Watched) and 1 <= engine.most_at_once <= SLOTS

        sent = recorder.everything.decode()
        squeezed = digits(sent)
        for n in range(REQUESTS):
            for name, value in planted(n).items():
                assert value not in sent and digits(value) not in squeezed, f"{name} left raw"

        rows = gateway.rows()
        assert len(rows) == REQUESTS and len({row["request_id"] for row in rows}) == REQUESTS
        outward = {row["request_id"] for row in gateway.egress()}
        for row in rows:
            tried = [(a["road"], a["outcome"]) for a in gateway.attempts(row["request_id"])]
            assert row["outcome"] == "ok" and row["attempts"] == len(tried)
            if row["road"] == "local-8b":
                assert tried == [("local-8b", "ok")]
                assert row["request_id"] not in outward
            else:
                assert tried == [("local-8b", "queue_timeout"), ("commercial", "ok")]
                assert row["request_id"] in outward
        assert gateway.slots_in_use() == 0


async def test_on_prem_only_answers_429_and_nobody_connects(tmp_path: Path) -> None:
    policy = policy_file(tmp_path, egress="never", queue_lock_timeout_ms=300)
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines=slow_engines(),
            upstream=recorder.base_url,
            policy=policy,
            tiers={"local-8b": {"max_num_seqs": SLOTS}},
        ) as gateway,
    ):
        answers = await burst(gateway)
        refused = [response for _, _, response in answers if response.status_code == 429]
        served = [response for _, _, response in answers if response.status_code == 200]
        assert len(refused) + len(served) == REQUESTS and len(served) >= SLOTS and len(refused) > 0
        for response in refused:
            assert int(response.headers["retry-after"]) >= 1
            error = response.json()["error"]
            assert error["type"] == "rate_limit_error" and error["code"] == "queue_lock_timeout"
        assert recorder.connections == []
        rows = gateway.rows()
        assert sorted(row["status"] for row in rows) == [200] * len(served) + [429] * len(refused)
        assert gateway.egress() == []
        assert gateway.slots_in_use() == 0


@pytest.mark.parametrize(
    "content", ["<EMAIL_AAAAAA> please classify this as A or B", "분류: 긍정/부정 <PHONE_BBBBBB>"]
)
async def test_overflow_that_cannot_be_masked_is_429_and_does_not_leave(tmp_path: Path, content: str) -> None:
    gate = asyncio.Event()
    engine = FakeEngine(script=Script(first_gate=gate))
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            engines={"local-8b": engine},
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=50),
            tiers={"local-8b": {"max_num_seqs": 1}},
        ) as gateway,
    ):
        first = asyncio.create_task(gateway.chat(model="local-8b"))
        while not engine.load().unfinished:
            await asyncio.sleep(0.01)
        image = {"type": "image_url", "image_url": {"url": "https://example.com/x.png"}}
        refused = await gateway.chat(
            messages=[{"role": "user", "content": [{"type": "text", "text": content}, image]}]
        )
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "overflow_not_permitted"
        assert content not in refused.text
        gate.set()
        assert (await first).status_code == 200
        assert recorder.connections == []
