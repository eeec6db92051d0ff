"""Conversations that were kept local once stay local, over a restart too, and nobody connects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_may_leave import CODE, ask, reasons, tried
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from weighbridge.state.pins import StoredPins
from weighbridge.state.store import StateStore, StateUnavailable

EARLIER: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hello, how can I help?"},
)


async def road(gateway: Running, text: str = CODE, **more: Any) -> str:
    answer = await ask(gateway, text, **more)
    assert answer.status_code == 200, answer.text
    return str(answer.headers["x-weighbridge-road"])


async def test_an_open_conversation_leaves_turn_after_turn(tmp_path: Path) -> None:
    policy = policy_file(tmp_path)
    async with recording() as recorder:
        async with running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway:
            assert await road(gateway, conversation_id="planted-name") == "commercial"
        async with running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway:
            assert await road(gateway, before=EARLIER, conversation_id="planted-name") == "commercial"
        assert len(recorder.requests) == 2
        assert b"planted" not in recorder.everything
        kept = b"".join(file.read_bytes() for file in (tmp_path / "state").rglob("*") if file.is_file())
        assert b"planted" not in kept


KEPT_IN: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "class": ({}, {"data_class": "restricted"}, CODE),
    "class not known": ({}, {"data_class": "planted"}, CODE),
    "text": ({}, {}, f"{CODE}\n대외비"),
    "tenant": ({"tenants": {"default": {"egress": "never"}}}, {}, CODE),
    "policy": ({"egress": "never"}, {}, CODE),
    "task": ({"tasks": {"code": {"road": "commercial", "egress": "never"}}}, {}, CODE),
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("changes", "headers", "text"), KEPT_IN.values(), ids=KEPT_IN)
async def test_what_was_kept_in_once_stays(
    tmp_path: Path, changes: dict[str, Any], headers: dict[str, str], text: str, restarted: bool
) -> None:
    policy = policy_file(tmp_path, **changes)
    async with recording() as recorder:
        async with running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway:
            assert await road(gateway, text, conversation_id="c", **headers) == "local-70b"
            assert recorder.connections == []
            if not restarted:
                policy_file(tmp_path)
                gateway.parts.policies.reload_if_changed()
                await _stays(gateway)
                assert recorder.connections == []
        if restarted:
            policy = policy_file(tmp_path)
            async with running_gateway(tmp_path, upstream=recorder.base_url, policy=policy) as gateway:
                await _stays(gateway)
                assert recorder.connections == []
                assert await road(gateway, conversation_id="another") == "commercial"


async def _stays(gateway: Running) -> None:
    """Whether it shows its earlier turns or not, whatever class it names now."""
    for more in ({}, {"before": EARLIER}, {"data_class": "public"}):
        assert await road(gateway, conversation_id="c", **more) == "local-70b"
        assert "conversation pinned local: best local tier local-70b" in reasons(gateway)
    refused = await ask(gateway, model="commercial", conversation_id="c")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "egress_refused")


async def test_an_explicit_refusal_pins_as_well(tmp_path: Path) -> None:
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        refused = await ask(gateway, model="commercial", conversation_id="c", data_class="restricted")
        assert refused.status_code == 403
        assert await road(gateway, conversation_id="c") == "local-70b"
        assert recorder.connections == []


async def test_a_lost_pin_means_local(tmp_path: Path) -> None:
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        assert await road(gateway, before=EARLIER, conversation_id="c") == "local-70b"
        assert "conversation pin lost: pinned local" in reasons(gateway)
        # And it stays so, even if it pretends to begin anew.
        assert await road(gateway, conversation_id="c") == "local-70b"
        assert recorder.connections == []
        assert await road(gateway, before=EARLIER) == "commercial", "without a name nothing is looked up"


async def test_pins_that_cannot_be_read_or_written_mean_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: Any) -> Any:
        raise StateUnavailable("down")

    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        for part in ("rows", "writing"):
            monkeypatch.setattr(StateStore, part, down)
            assert await road(gateway, conversation_id=part) == "local-70b"
            assert "conversation pins not readable" in reasons(gateway)
            assert recorder.connections == []
            monkeypatch.undo()
            assert await road(gateway, conversation_id=part) == "commercial"
            recorder.connections.clear()


async def test_a_conversation_that_is_pinned_while_another_turn_is_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        really = gateway.parts.masker.mask

        async def mask(*args: Any, **named: Any) -> Any:
            made = await really(*args, **named)
            monkeypatch.undo()
            assert await road(gateway, conversation_id="c", data_class="restricted") == "local-70b"
            return made

        monkeypatch.setattr(gateway.parts.masker, "mask", mask)
        assert await road(gateway, conversation_id="c") == "local-70b"
        first = gateway.rows()[0]["request_id"]
        assert [(row["road"], row["outcome"]) for row in gateway.attempts(first)] == [
            ("commercial", "egress_closed"),
            ("local-70b", "ok"),
        ]
        assert recorder.connections == []


async def test_without_the_header_the_pins_are_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked(*_: Any, **__: Any) -> Any:
        raise AssertionError

    for name in ("enter", "keep_local", "is_open"):
        monkeypatch.setattr(StoredPins, name, asked)
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):
        assert await road(gateway) == "commercial"
        assert await road(gateway, data_class="restricted") == "local-70b"
        assert await road(gateway, f"{CODE}\n대외비") == "local-70b"
        assert tried(gateway) == [("commercial", "masking_refused"), ("local-70b", "ok")]
