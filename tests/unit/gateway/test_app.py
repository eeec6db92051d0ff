"""The parts together: made from settings, started behind the listening server, closed in order."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.support.fake_engine import FakeEngine
from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import Settings, load_settings
from weighbridge.gateway import lifespan
from weighbridge.gateway.app import Parts, build_parts, create_app
from weighbridge.gateway.lifespan import close, running
from weighbridge.observability.ledger import SpoolBusy


def settings_in(folder: Path, **overrides: Any) -> Settings:
    return load_settings(env={}, overrides={"state_dir": str(folder / "state")} | overrides)


def parts_in(folder: Path, **overrides: Any) -> Parts:
    return build_parts(settings_in(folder, **overrides), engine_factory=lambda *_: FakeEngine())


class Step:
    """A part that notes when it is started and closed."""

    ready = True
    configured = False

    def __init__(self, name: str, events: list[str], *, fails: bool = False) -> None:
        self._name = name
        self._events = events
        self._fails = fails
        self._started = asyncio.Event()

    async def start(self) -> None:
        self._events.append(f"start {self._name}")
        self._started.set()

    async def close(self, *_: object) -> None:
        self._events.append(f"close {self._name}")
        if self._fails:
            raise RuntimeError("planted-text")

    async def first_ready(self) -> None:
        await self._started.wait()

    async def mark_capacity(self) -> None:
        await asyncio.Event().wait()


def with_steps(parts: Parts, *, fails: str = "") -> list[str]:
    events: list[str] = []
    real_ledger, real_state = parts.ledger.close, parts.state.close

    async def close_ledger() -> None:
        events.append("close ledger")
        await real_ledger()

    def close_state() -> None:
        events.append("close state")
        real_state()

    for name in ("pool", "gate", "masker"):
        step = Step(name, events, fails=name == fails)
        step.configured = parts.gate.configured
        setattr(parts, name, step)
    parts.ledger.close = close_ledger  # type: ignore[method-assign,assignment]
    parts.state.close = close_state  # type: ignore[method-assign]
    return events


class Ships:
    """A shipper that notes what becomes of it."""

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def start(self) -> None:
        self._events.append("start shipper")

    def stop(self) -> None:
        self._events.append("close shipper")


async def test_what_ships_begins_with_the_others_and_ends_before_the_ledger(tmp_path: Path) -> None:
    parts = parts_in(tmp_path)
    events = with_steps(parts)
    parts.shipper = Ships(events)  # type: ignore[assignment]
    async with running(parts):
        assert events == ["start shipper"]
    assert events[-5:] == ["close gate", "close masker", "close shipper", "close ledger", "close state"]


CLOSING = ["close pool", "close gate", "close masker", "close ledger", "close state"]


ENDPOINT = {"commercial": {"base_url": "http://127.0.0.1:1/v1", "model": "big-model"}}
NEVER = "version: 1\nname: mine\negress: never\n"


@pytest.mark.parametrize(
    ("endpoint", "policy", "begun"),
    [
        (ENDPOINT, None, ["start masker", "start pool"]),
        # A policy can change while the gateway runs, the endpoint cannot.
        (ENDPOINT, NEVER, ["start masker", "start pool"]),
        ({}, None, ["start pool"]),
    ],
)
async def test_masking_is_up_before_the_pool_where_anything_can_leave_and_all_closes_in_order(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    endpoint: dict[str, Any],
    policy: str | None,
    begun: list[str],
) -> None:
    caplog.set_level(logging.INFO)
    if policy is not None:
        (tmp_path / "policy.yaml").write_text(policy)
        endpoint = endpoint | {"policies": {"file": str(tmp_path / "policy.yaml")}}
    parts, first_ready = parts_in(tmp_path, **endpoint), asyncio.Event()
    events = with_steps(parts)
    async with running(parts, first_ready.set):
        # The body runs at once: the server listens while models load.
        assert events == []
        async with asyncio.timeout(5):
            await first_ready.wait()
        assert events == begun
    assert events[len(begun) :] == CLOSING
    assert ("masking starts when a preview asks for it" in caplog.text) is not bool(endpoint)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_part_that_will_not_close_does_not_keep_the_others_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = parts_in(tmp_path)
    events = with_steps(parts, fails="gate")
    await close(parts)
    assert events == CLOSING
    assert "closing gate failed" in caplog.text
    assert "planted" not in caplog.text


async def test_spans_that_hang_hold_up_nothing_that_closes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A look-up of the collector's name cannot be cut short, and must not keep the process either."""
    parts = parts_in(tmp_path)
    events, begun, let_go = with_steps(parts), [], threading.Event()

    def hangs() -> None:
        begun.append(threading.current_thread())
        let_go.wait()

    monkeypatch.setattr(parts, "tracing", SimpleNamespace(close=hangs))
    monkeypatch.setattr(lifespan, "TRACES_S", 0.05)
    try:
        async with asyncio.timeout(10):
            await close(parts)
        assert events == CLOSING
        assert [thread.daemon and thread.is_alive() for thread in begun] == [True]
        assert "last spans" in caplog.text
    finally:
        let_go.set()


async def test_a_stop_while_models_load_ends_the_loading(tmp_path: Path) -> None:
    parts, loading, ended = parts_in(tmp_path), asyncio.Event(), asyncio.Event()
    events = with_steps(parts)

    async def endless() -> None:
        loading.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    parts.pool.start = endless  # type: ignore[method-assign]
    async with running(parts):
        await loading.wait()
    assert ended.is_set()
    assert events[-5:] == CLOSING


async def test_the_server_serves_on_when_no_tier_comes_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts, tried = parts_in(tmp_path), asyncio.Event()
    with_steps(parts)

    async def fails() -> None:
        tried.set()
        raise ConfigError("tiers.local-8b: planted-reason")

    parts.pool.start = fails  # type: ignore[method-assign]
    with caplog.at_level(logging.INFO):
        async with running(parts):
            await tried.wait()
            await asyncio.sleep(0)
    assert "no local tier came up" in caplog.text


async def test_a_request_through_the_whole_application(tmp_path: Path) -> None:
    parts = parts_in(tmp_path)
    ready = asyncio.Event()
    app = create_app(parts, on_first_ready=ready.set)
    async with running(parts, ready.set):
        async with asyncio.timeout(5):
            await ready.wait()
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 5000))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.post(
                "/v1/chat/completions",
                json={"model": "local-8b", "messages": [{"role": "user", "content": "hello"}]},
            )
            assert answer.status_code == 200, answer.text
            assert answer.json()["object"] == "chat.completion"
            assert answer.headers["x-weighbridge-road"] == "local-8b"
            models = (await client.get("/v1/models")).json()["data"]
            assert [model["id"] for model in models] == ["auto", "local-8b", "local-70b"]
            assert "SmolLM2-135M-Instruct" in models[1]["weighbridge"]["note"]
            report = (await client.get("/health/ready")).json()
            assert report["status"] == "ready"
            assert report["parts"]["masking"] == {"ready": False, "needed": False}
            metrics = (await client.get("/metrics")).text
            assert 'weighbridge_requests_total{outcome="ok",road="local-8b"} 1.0' in metrics


def test_a_second_gateway_on_one_state_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    first = parts_in(tmp_path)
    with pytest.raises(SpoolBusy) as caught:
        parts_in(tmp_path)
    assert "\n" not in str(caught.value)
    first.ledger.close_sync()
    first.state.close()


def test_a_wrong_policy_leaves_nothing_open(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nname: mine\negress: maybe\n")
    with pytest.raises(ConfigError) as caught:
        parts_in(tmp_path, policies={"file": str(policy)})
    assert str(caught.value).startswith(f"{policy}:3:1: egress: ")
    again = parts_in(tmp_path)
    again.ledger.close_sync()
    again.state.close()
