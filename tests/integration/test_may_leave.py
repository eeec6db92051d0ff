"""Whether a request may leave at all: each rule alone keeps it in, and nobody connects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from weighbridge.gateway.auth import LOCAL_CALLER
from weighbridge.masking.errors import MaskingRefused
from weighbridge.pool.slot_lock import Ask, WaitTooLong
from weighbridge.router import egress_rules

CODE = "Write a Python function that parses a CSV file and fix this bug."
SWITCH = "/admin/v1/egress/switch"


async def ask(
    gateway: Running,
    text: str = CODE,
    *,
    model: str = "auto",
    before: tuple[dict[str, Any], ...] = (),
    **headers: str,
) -> httpx.Response:
    named = {f"x-weighbridge-{name.replace('_', '-')}": value for name, value in headers.items()}
    body = {"model": model, "messages": [*before, {"role": "user", "content": text}]}
    return await gateway.client.post("/v1/chat/completions", json=body, headers=named)


def tried(gateway: Running) -> list[tuple[str, str]]:
    """The attempts of the last request."""
    last = gateway.rows()[-1]["request_id"]
    return [(row["road"], row["outcome"]) for row in gateway.attempts(last)]


def reasons(gateway: Running) -> str:
    return str(gateway.rows()[-1]["reasons"])


BY_THE_POLICY: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "policy": ({"egress": "never"}, {}, "egress never"),
    "tenant": ({"tenants": {"default": {"egress": "never"}}}, {}, "egress never"),
    "key": ({"keys": {LOCAL_CALLER: {"egress": "never"}}}, {}, "egress never for this key"),
    "task": (
        {"tasks": {"code": {"road": "commercial", "egress": "never"}}},
        {},
        "task code: egress never",
    ),
    "class named": ({}, {"data_class": "restricted"}, "data class restricted"),
    "class not known": ({}, {"data_class": "planted"}, "data class not known"),
    "class of the policy": (
        {"outward": {"data_classes": {"default": "confidential"}}},
        {"data_class": "public"},
        "data class confidential",
    ),
    "class of the tenant": (
        {"tenants": {"default": {"data_class": "restricted"}}},
        {"data_class": "public"},
        "data class restricted",
    ),
    "class of the key": ({"keys": {LOCAL_CALLER: {"data_class": "restricted"}}}, {}, "data class restricted"),
}


@pytest.mark.parametrize(("changes", "headers", "why"), BY_THE_POLICY.values(), ids=BY_THE_POLICY)
async def test_what_the_policy_keeps_in(
    tmp_path: Path, changes: dict[str, Any], headers: dict[str, str], why: str
) -> None:
    policy = policy_file(tmp_path, **changes)
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway,
    ):
        served = await ask(gateway, **headers)
        assert (served.status_code, served.headers["x-weighbridge-road"]) == (200, "local-70b")
        assert f"{why}: best local tier local-70b" in reasons(gateway)
        refused = await ask(gateway, model="commercial", **headers)
        assert refused.status_code == 403 and "retry-after" not in refused.headers
        assert refused.json()["error"]["code"] == "egress_refused"
        assert why in refused.json()["error"]["message"] and "planted" not in refused.text
        assert why in reasons(gateway) and "planted" not in reasons(gateway)
        assert recorder.connections == [] and gateway.egress() == []


BY_ITS_TEXT: dict[str, tuple[dict[str, Any], str, str]] = {
    "word": ({}, "이 문서는 대외비입니다", "blocked_term"),
    "marking": ({}, "STRICTLY CONFIDENTIAL", "blocked_term"),
    "own word": ({"outward": {"blocked": {"words": ["Project Ox"]}}}, "about project ox", "blocked_term"),
    "own pattern": ({"outward": {"blocked": {"patterns": [r"ox-\d{3}"]}}}, "see ox-123", "blocked_term"),
    "resident number": ({}, "900101-1234568", "refused_type"),
    "own kind": ({"outward": {"refuse": ["EMAIL"]}}, "to kim@example.com", "refused_type"),
    "people": ({"outward": {"max_people": 1}}, "kim@example.com and lee@example.com", "many_people"),
    "people of a tenant": (
        {"tenants": {"default": {"max_people": 1}}},
        "kim@example.com and lee@example.com",
        "many_people",
    ),
    "length": ({"outward": {"max_chars": 20}}, "", "too_large"),
    "prose": ({"outward": {"free_text": "refuse"}}, "", "free_text"),
    "prose of a key": ({"keys": {LOCAL_CALLER: {"free_text": "refuse"}}}, "", "free_text"),
}


@pytest.mark.parametrize(("changes", "text", "why"), BY_ITS_TEXT.values(), ids=BY_ITS_TEXT)
async def test_what_its_text_keeps_in(tmp_path: Path, changes: dict[str, Any], text: str, why: str) -> None:
    policy = policy_file(tmp_path, **changes)
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway,
    ):
        served = await ask(gateway, f"{CODE}\n{text}")
        assert (served.status_code, served.headers["x-weighbridge-road"]) == (200, "local-70b")
        assert tried(gateway) == [("commercial", "masking_refused"), ("local-70b", "ok")]
        refused = await ask(gateway, f"{CODE}\n{text}", model="commercial")
        assert refused.status_code == 403 and "retry-after" not in refused.headers
        assert refused.json()["error"]["code"] == "egress_refused"
        assert f"({why})" in refused.json()["error"]["message"]
        assert recorder.connections == [] and gateway.egress() == []


async def test_the_same_request_leaves_where_no_rule_is_in_its_way(tmp_path: Path) -> None:
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        for headers in ({}, {"data_class": "public"}, {"data_class": "INTERNAL", "conversation_id": "c"}):
            served = await ask(gateway, **headers)
            assert (served.status_code, served.headers["x-weighbridge-road"]) == (200, "commercial")
        assert len(recorder.requests) == 3
        for name, value in (("data_class", "two words"), ("conversation_id", "x" * 201)):
            wrong = await ask(gateway, **{name: value})
            assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_header")
        assert len(recorder.requests) == 3


async def test_masking_is_told_whose_request_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        really, told = gateway.parts.masker.mask, []

        async def mask(*args: Any, **named: Any) -> Any:
            told.append(named["tenant"])
            return await really(*args, **named)

        monkeypatch.setattr(gateway.parts.masker, "mask", mask)
        assert (await ask(gateway)).headers["x-weighbridge-road"] == "commercial"
        assert told == ["default"]


async def test_rules_that_cannot_be_made_ready_keep_everything_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_blocked(*_: Any) -> Any:
        raise ValueError("planted")

    monkeypatch.setattr(egress_rules, "compile_blocked", compile_blocked)
    words = ", ".join(f"project name {n}" for n in range(2000)).split(", ")
    for n, own in enumerate((["Project Ox"], words)):
        folder = tmp_path / str(n)
        folder.mkdir()
        policy = policy_file(folder, outward={"blocked": {"words": own}})
        async with (
            recording() as recorder,
            running_gateway(folder, upstream=recorder.base_url, policy=policy) as gateway,
        ):
            refused = await ask(gateway, model="commercial")
            assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
            assert "planted" not in refused.text
            assert (await ask(gateway)).headers["x-weighbridge-road"] == "local-70b"
            assert recorder.connections == []


# ---- on_refusal ----


async def test_under_reject_a_refusal_is_403_at_once(tmp_path: Path) -> None:
    policy = policy_file(tmp_path, outward={"on_refusal": "reject"})
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway,
    ):
        refused = await ask(gateway, f"{CODE}\n대외비")
        assert refused.status_code == 403 and "retry-after" not in refused.headers
        assert refused.json()["error"]["code"] == "egress_refused"
        assert tried(gateway) == [("commercial", "masking_refused")]
        assert recorder.connections == []


async def test_a_fault_of_masking_may_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def mask(*_: Any, **__: Any) -> None:
        raise MaskingRefused("detector_failed")

    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        monkeypatch.setattr(gateway.parts.masker, "mask", mask)
        refused = await ask(gateway, model="commercial", conversation_id="c")
        assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
        assert (await ask(gateway)).headers["x-weighbridge-road"] == "local-70b"
        monkeypatch.undo()
        # Nor is its conversation pinned.
        assert (await ask(gateway, conversation_id="c")).headers["x-weighbridge-road"] == "commercial"
        assert len(recorder.requests) == 1


@pytest.mark.parametrize("comes_free", [True, False])
async def test_a_request_that_left_its_queue_early_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, comes_free: bool
) -> None:
    policy = policy_file(tmp_path, queue_lock_timeout_ms=1000, tasks={"code": {"road": "local-70b"}})
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            upstream=recorder.base_url,
            policy=policy,
            engines={"local-70b": FakeEngine("local-70b")},
        ) as gateway,
    ):
        tier = gateway.parts.pool.tier("local-70b")
        assert tier is not None
        really, asked = tier.lease, 0

        async def lease(ask: Ask, *args: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked == 1 or not comes_free:
                raise WaitTooLong(9000.0)
            assert ask.wait and ask.deadline.remaining() > 0.5
            return await really(ask, *args)

        monkeypatch.setattr(tier, "lease", lease)
        answer = await ask(gateway, f"{CODE}\n대외비")
        way = [("local-70b", "queue_predicted"), ("commercial", "masking_refused")]
        if comes_free:
            assert (answer.status_code, answer.headers["x-weighbridge-attempts"]) == (200, "3")
            assert tried(gateway) == [*way, ("local-70b", "ok")]
        else:
            assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
            assert answer.json()["error"]["code"] == "overflow_not_permitted"
            assert "(blocked_term)" in answer.json()["error"]["message"]
            assert tried(gateway) == [*way, ("local-70b", "queue_predicted")]
        assert recorder.connections == []


# ---- the kill switch ----


async def test_an_admin_switches_egress_off_and_on(tmp_path: Path) -> None:
    policy = policy_file(tmp_path)
    async with recording() as recorder:
        async with running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway:
            thrown = await gateway.client.put(SWITCH, json={"egress": "never", "reason": "incident"})
            assert (thrown.status_code, thrown.json()["by"]) == (200, "admin")
            served = await ask(gateway, conversation_id="c")
            assert served.headers["x-weighbridge-road"] == "local-70b"
            assert "egress switched off: best local tier local-70b" in reasons(gateway)
            refused = await ask(gateway, model="commercial")
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "egress_refused")
        async with running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway:
            assert (await ask(gateway)).headers["x-weighbridge-road"] == "local-70b"
            assert recorder.connections == []
            await gateway.client.put(SWITCH, json={"egress": "policy", "reason": "over"})
            # A conversation that was served meanwhile may leave again.
            assert (await ask(gateway, conversation_id="c")).headers["x-weighbridge-road"] == "commercial"
            metrics = (await gateway.client.get("/metrics")).text
            assert "weighbridge_egress_switched_off 0.0" in metrics


async def test_a_file_switches_egress_off(tmp_path: Path) -> None:
    file = tmp_path / "no-egress"
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path,
            upstream=recorder.base_url,
            policy=policy_file(tmp_path),
            commercial={"kill_switch_file": str(file)},
        ) as gateway,
    ):
        file.touch()
        assert (await ask(gateway)).headers["x-weighbridge-road"] == "local-70b"
        assert recorder.connections == []
        file.unlink()
        assert (await ask(gateway)).headers["x-weighbridge-road"] == "commercial"


@pytest.mark.parametrize("when", ["masked", "recorded"])
@pytest.mark.parametrize(("model", "status"), [("auto", 200), ("commercial", 403)])
async def test_the_switch_is_thrown_between_decision_and_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str, model: str, status: int
) -> None:
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        at, name = (
            (gateway.parts.masker, "mask") if when == "masked" else (gateway.parts.ledger, "record_egress")
        )
        really = getattr(at, name)

        async def throwing(*args: Any, **named: Any) -> Any:
            made = await really(*args, **named)
            gateway.parts.switch.set("never", "test", "now")
            return made

        monkeypatch.setattr(at, name, throwing)
        answer = await ask(gateway, model=model)
        assert answer.status_code == status
        assert tried(gateway)[0] == ("commercial", "egress_closed")
        assert recorder.connections == []
        assert len(gateway.egress()) == (0 if when == "masked" else 1)
        (attempt, *_) = gateway.attempts(gateway.rows()[-1]["request_id"])
        assert attempt["egress_id"] == ""
        if status == 403:
            assert answer.json()["error"]["code"] == "egress_refused" and "retry-after" not in answer.headers
        metrics = (await gateway.client.get("/metrics")).text
        assert 'weighbridge_egress_total{outcome="switched_off"} 1.0' in metrics
