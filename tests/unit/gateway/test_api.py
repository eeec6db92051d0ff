"""Models, health, metrics and the admin API, over real policies and metrics and stand-ins for what serves."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.gateway.fakes import Clock, chat_route
from weighbridge.config.ids import IdFactory
from weighbridge.config.settings import Settings, load_settings
from weighbridge.gateway.api import make_api
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.front import CHAT_PATH, Front
from weighbridge.gateway.parts import Parts
from weighbridge.gateway.underway import Underway
from weighbridge.observability.metrics import Metrics
from weighbridge.observability.shipper import Standing
from weighbridge.policies.loader import policy_path
from weighbridge.policies.store import PolicyStore
from weighbridge.state.keys import KeyStore
from weighbridge.state.store import StateStore
from weighbridge.state.switch import EgressSwitch


@dataclass
class FakeTier:
    road: str
    ready: bool = True
    state: str = "READY"
    model: str = "SmolLM2-135M-Instruct"
    max_model_len: int = 2048
    embedded: bool = True
    adapters: tuple[str, ...] = ()
    whole: bool = True


@dataclass
class FakePool:
    tiers: dict[str, FakeTier]

    def tier(self, road: str) -> FakeTier | None:
        return self.tiers.get(road)

    def status(self) -> list[dict[str, Any]]:
        return [
            {
                "road": tier.road,
                "ready": tier.ready,
                "whole": tier.ready and tier.whole,
                "state": tier.state,
            }
            for tier in self.tiers.values()
        ]


class NoOutlets:
    def standings(self) -> dict[str, Any]:
        return {}


@dataclass
class Switch:
    """A masker, a gate or a ledger, as far as health looks at them."""

    ready: bool = True
    configured: bool = False
    healthy: bool = True
    damaged: list[str] = field(default_factory=list)
    outlets: NoOutlets = field(default_factory=NoOutlets)


@dataclass
class World:
    settings: Settings
    parts: Parts
    pool: FakePool
    masker: Switch
    gate: Switch
    ledger: Switch
    client: httpx.AsyncClient
    policy_file: Path
    closers: list[Any] = field(default_factory=list)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.client.get(path, headers=headers)


KEY, ADMIN = "wb-key", "wb-admin"
AUDIT_KEY = bytes(range(32))


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def world(tmp_path: Path, *, keyed: bool = False, peer: str = "127.0.0.1", **overrides: Any) -> World:
    policy_file = tmp_path / "policy.yaml"
    policy_file.write_text(policy_path(Settings().policies).read_text())
    given: dict[str, Any] = {
        "policies": {"file": str(policy_file)},
        "state_dir": str(tmp_path),
        "commercial": {"base_url": "http://127.0.0.1:1/v1", "model": "big-model"},
    }
    if keyed:
        given["auth"] = {
            "keys": [{"id": "one", "sha256": digest(KEY)}],
            "admin_keys": [{"id": "root", "sha256": digest(ADMIN)}],
        }
    settings = load_settings(env={}, overrides=given | overrides)
    metrics, clock = Metrics(), Clock()
    state = StateStore.open(tmp_path / "state.sqlite3", clock, audit_key=AUDIT_KEY)
    keys = KeyStore(state, settings.auth)
    pool = FakePool({road: FakeTier(road) for road in settings.tiers})
    masker, gate, ledger = Switch(), Switch(configured=True), Switch()
    parts = Parts(
        settings=settings,
        pool=pool,  # type: ignore[arg-type]
        policies=PolicyStore(policy_path(settings.policies), state, metrics),
        masker=masker,  # type: ignore[arg-type]
        gate=gate,  # type: ignore[arg-type]
        ledger=ledger,  # type: ignore[arg-type]
        state=state,
        keys=keys,
        switch=EgressSwitch(state, settings.commercial.kill_switch_file, metrics),
        metrics=metrics,
        dispatch=None,  # type: ignore[arg-type]
        tracing=None,
        clock=clock,
        ids=IdFactory(),
        underway=Underway(),
        started_ns=clock.wall_ns(),
    )
    auth = Authenticator(settings.auth, keys)
    app = Front({CHAT_PATH: chat_route()[0]}, make_api(parts, auth), parts.ids.new)
    transport = httpx.ASGITransport(app, raise_app_exceptions=True, client=(peer, 5000))
    client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")
    return World(settings, parts, pool, masker, gate, ledger, client, policy_file)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    made = world(tmp_path)
    yield made
    await made.client.aclose()
    made.parts.state.close()


# ---- models ----


async def test_models_say_what_really_serves_them(here: World) -> None:
    here.pool.tiers["local-70b"].ready = False
    answer = (await here.get("/v1/models")).json()
    assert answer["object"] == "list"
    models = {model["id"]: model for model in answer["data"]}
    assert list(models) == ["auto", "local-8b", "local-70b", "commercial"]
    for model in models.values():
        assert (model["object"], model["owned_by"]) == ("model", "weighbridge")
        assert model["created"] == 1_700_000_000
    small = models["local-8b"]["weighbridge"]
    assert small["embedded"] is True
    assert "SmolLM2-135M-Instruct" in small["note"]
    assert (small["serves"], small["max_model_len"], small["ready"]) == ("SmolLM2-135M-Instruct", 2048, True)
    assert models["local-70b"]["weighbridge"]["ready"] is False
    assert models["commercial"]["weighbridge"]["serves"] == "big-model"
    assert models["auto"]["weighbridge"]["ready"] is True


async def test_all_commercial_models_are_named(tmp_path: Path) -> None:
    second = {"second": {"base_url": "http://127.0.0.1:2/v1", "model": "other-model"}}
    both = {"base_url": "http://127.0.0.1:1/v1", "model": "big-model", "endpoints": second}
    about = (await world(tmp_path, commercial=both).get("/v1/models/commercial")).json()["weighbridge"]
    assert about["serves"] == "big-model, other-model"


async def test_adapters_stand_beside_their_tier(tmp_path: Path) -> None:
    made = world(tmp_path)
    made.pool.tiers["local-8b"] = FakeTier("local-8b", model="base", embedded=False, adapters=("legal-ko",))
    listed = {model["id"]: model for model in (await made.get("/v1/models")).json()["data"]}
    assert list(listed)[1:3] == ["local-8b", "legal-ko"]
    about = listed["legal-ko"]["weighbridge"]
    assert (about["serves"], about["adapter_of"], about["ready"]) == ("base", "local-8b", True)


async def test_a_model_of_ones_own_is_not_called_embedded(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    made = world(tmp_path, tiers={"local-8b": {"model_path": str(folder)}, "local-70b": None})
    made.gate.configured = False
    made.pool.tiers["local-8b"] = FakeTier("local-8b", model="my-model", embedded=False)
    models = (await made.get("/v1/models")).json()["data"]
    assert [model["id"] for model in models] == ["auto", "local-8b"]
    assert models[1]["weighbridge"]["embedded"] is False
    assert "SmolLM2" not in models[1]["weighbridge"]["note"]


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/models/x", "/health/live", "/health/ready", "/metrics", "/openapi.json"]
)
async def test_every_answer_carries_one_request_id(path: str, here: World) -> None:
    ids = [(await here.get(path)).headers.get_list("x-weighbridge-request-id") for _ in range(2)]
    assert [len(found) for found in ids] == [1, 1]
    assert ids[0] < ids[1]


def with_aliases(here: World, aliases: str) -> None:
    lines = [line for line in here.policy_file.read_text().splitlines() if not line.startswith("aliases:")]
    here.policy_file.write_text("\n".join([*lines, f"aliases: {aliases}"]))
    here.parts.policies.reload_if_changed()


async def test_aliases_are_listed_with_what_they_stand_for(here: World) -> None:
    with_aliases(here, "{gpt-4o: auto, org/gpt-4o-mini: local-8b, gpt-5: commercial}")
    models = {model["id"]: model for model in (await here.get("/v1/models")).json()["data"]}
    assert list(models)[-3:] == ["gpt-4o", "org/gpt-4o-mini", "gpt-5"]
    about = models["org/gpt-4o-mini"]["weighbridge"]
    assert (about["alias_of"], about["serves"]) == ("local-8b", "SmolLM2-135M-Instruct")
    assert (await here.get("/v1/models/org/gpt-4o-mini")).json() == models["org/gpt-4o-mini"]
    # What is not served here is not listed under another name either.
    here.gate.configured = False
    assert "gpt-5" not in [model["id"] for model in (await here.get("/v1/models")).json()["data"]]
    with_aliases(here, "{}")
    assert (await here.get("/v1/models/gpt-4o")).status_code == 404


async def test_one_model_and_none(here: World) -> None:
    assert (await here.get("/v1/models/local-8b")).json()["id"] == "local-8b"
    missing = await here.get("/v1/models/planted")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    assert "planted" not in missing.text


async def test_models_need_a_key_once_there_are_keys(tmp_path: Path) -> None:
    made = world(tmp_path, keyed=True)
    for path in ("/v1/models", "/v1/models/auto"):
        refused = await made.get(path)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        assert refused.headers["www-authenticate"] == "Bearer"
        assert (await made.get(path, authorization=f"Bearer {KEY}")).status_code == 200
        assert (await made.get(path, authorization=f"Bearer {ADMIN}")).status_code == 401


# ---- health ----


async def test_alive_and_ready(here: World) -> None:
    assert (await here.get("/health/live")).json() == {"status": "alive"}
    ready = await here.get("/health/ready")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert set(ready.json()["parts"]) == {"tiers", "ledger", "collector", "masking", "commercial", "policy"}
    assert (await here.client.head("/health/ready")).status_code == 200


async def test_health_is_open_to_everybody(tmp_path: Path) -> None:
    made = world(tmp_path, keyed=True, peer="192.0.2.7")
    assert (await made.get("/health/live")).status_code == 200
    assert (await made.get("/health/ready")).status_code == 200


@pytest.mark.parametrize("part", ["one tier", "ledger", "masking"])
async def test_one_part_down_is_degraded_and_says_which(here: World, part: str) -> None:
    if part == "one tier":
        here.pool.tiers["local-70b"].ready = False
    elif part == "ledger":
        here.ledger.healthy = False
    else:
        here.masker.ready = False
    answer = await here.get("/health/ready")
    body = answer.json()
    assert (answer.status_code, body["status"]) == (200, "degraded")
    down = {
        "one tier": body["parts"]["tiers"]["local-70b"],
        "ledger": body["parts"]["ledger"],
        "masking": body["parts"]["masking"],
    }[part]
    assert down["ready"] is False
    assert body["parts"]["masking"]["needed"] is True
    # Without a record or a detector nothing may leave.
    assert body["parts"]["commercial"]["ready"] is (part == "one tier")


async def test_a_damaged_spool_is_told_until_it_is_taken_away(here: World) -> None:
    here.ledger.damaged = ["ledger.sqlite3.damaged-20261130T000000Z"]
    body = (await here.get("/health/ready")).json()
    assert body["status"] == "degraded"
    assert body["parts"]["ledger"] == {"ready": True, "damaged": here.ledger.damaged}
    assert body["parts"]["commercial"]["ready"] is True
    here.ledger.damaged = []
    assert (await here.get("/health/ready")).json()["status"] == "ready"


@dataclass
class Ships:
    late: bool

    def standing(self) -> Standing:
        return Standing(7, 1234.56, self.late, "connect")


@pytest.mark.parametrize("late", [False, True])
async def test_records_that_arrive_late_are_degraded_and_not_unready(here: World, late: bool) -> None:
    here.parts.shipper = Ships(late)  # type: ignore[assignment]
    answer = await here.get("/health/ready")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded" if late else "ready")
    assert answer.json()["parts"]["collector"] == {
        "configured": True,
        "ready": not late,
        "backlog": 7,
        "oldest_s": 1234.6,
        "trouble": "connect",
    }


@pytest.mark.parametrize("started", [False, True])
async def test_masking_that_nothing_needs_may_be_down(here: World, started: bool) -> None:
    here.gate.configured, here.masker.ready = False, started
    answer = await here.get("/health/ready")
    body = answer.json()
    assert (answer.status_code, body["status"]) == (200, "ready")
    assert body["parts"]["masking"] == {"ready": started, "needed": False}
    assert body["parts"]["commercial"]["ready"] is False


async def test_a_tier_that_lost_one_of_its_workers_is_ready_and_the_gateway_degraded(here: World) -> None:
    here.pool.tiers["local-70b"].whole = False
    answer = await here.get("/health/ready")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert answer.json()["parts"]["tiers"]["local-70b"]["ready"] is True


@pytest.mark.parametrize("closed_by", ["endpoint", "policy", "masking", "ledger", "nothing"])
async def test_without_a_tier_only_an_open_gate_is_ready(here: World, closed_by: str) -> None:
    for tier in here.pool.tiers.values():
        tier.ready = False
    if closed_by == "endpoint":
        here.gate.configured = False
    elif closed_by == "policy":
        here.policy_file.write_text(here.policy_file.read_text().replace("egress: masked", "egress: never"))
        assert here.parts.policies.reload_if_changed()
    elif closed_by == "masking":
        here.masker.ready = False
    elif closed_by == "ledger":
        here.ledger.healthy = False
    answer = await here.get("/health/ready")
    expected = (200, "degraded") if closed_by == "nothing" else (503, "not_ready")
    assert (answer.status_code, answer.json()["status"]) == expected


async def test_a_gateway_that_stops_is_not_ready(here: World) -> None:
    here.parts.underway.draining = True
    answer = await here.get("/health/ready")
    assert (answer.status_code, answer.json()["status"]) == (503, "not_ready")
    assert answer.json()["parts"]["draining"] is True
    assert (await here.get("/health/live")).status_code == 200


# ---- metrics ----


async def test_metrics_name_the_policy_in_force(here: World) -> None:
    answer = await here.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert f'version="{here.parts.policies.current.version}"' in answer.text


async def test_metrics_from_elsewhere_need_a_key(tmp_path: Path) -> None:
    made = world(tmp_path, keyed=True, peer="192.0.2.7")
    assert (await made.get("/metrics")).status_code == 401
    assert (await made.get("/metrics", authorization=f"Bearer {KEY}")).status_code == 200
    assert (await made.get("/metrics", authorization=f"Bearer {ADMIN}")).status_code == 200


# ---- admin ----


async def test_the_policy_is_shown_whole(here: World) -> None:
    answer = (await here.get("/admin/v1/policy")).json()
    assert answer["version"] == here.parts.policies.current.version
    assert answer["policy"]["egress"] == "masked"
    assert answer["file_problems"] == []
    here.policy_file.write_text("version: 1\nname: broken\negress: maybe\n")
    here.parts.policies.reload_if_changed()
    answer = (await here.get("/admin/v1/policy")).json()
    assert answer["version"] == here.parts.policies.current.version
    assert answer["file_problems"][0].startswith(f"{here.policy_file}:3:1: egress: ")


async def test_a_patch_changes_the_thresholds_and_is_kept_with_who_and_why(tmp_path: Path) -> None:
    made = world(tmp_path, keyed=True)
    authorized = {"authorization": f"Bearer {ADMIN}"}
    before = made.parts.policies.current.version
    answer = await made.client.patch(
        "/admin/v1/thresholds",
        json={"bounds": {"local_8b": 0.3}, "reason": "quiet night"},
        headers=authorized,
    )
    assert answer.status_code == 200
    assert answer.json()["bounds"] == {"local_8b": 0.3, "local_70b": 0.55}
    assert made.parts.policies.current.local_8b == 0.3
    assert made.parts.policies.current.version != before
    shown = (await made.client.get("/admin/v1/thresholds", headers=authorized)).json()
    assert shown["base"]["bounds"] == {"local_8b": 0.45, "local_70b": 0.55}
    (entry,) = shown["history"]
    assert (entry["who"], entry["why"], entry["base_policy_version"]) == ("root", "quiet night", before)
    assert entry["values"] == {"bounds": {"local_8b": 0.3}}
    # A restart finds it again.
    made.parts.state.close()
    state = StateStore.open(tmp_path / "state.sqlite3", Clock())
    assert PolicyStore(made.policy_file, state).current.local_8b == 0.3
    state.close()


async def test_a_reason_may_be_left_out(here: World) -> None:
    answer = await here.client.patch("/admin/v1/thresholds", json={"queue_lock_timeout_ms": 500})
    assert answer.json()["queue_lock_timeout_ms"] == 500
    assert answer.json()["overlay"]["why"] == "no reason given"
    assert answer.json()["overlay"]["who"] == "loopback"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"[]", 400, "invalid_json"),
        (b"{}", 400, "invalid_thresholds"),
        (b'{"bounds":{"local_8b":0.9}}', 400, "invalid_thresholds"),
        (b'{"bounds":{"local_8b":"planted"}}', 400, "invalid_thresholds"),
        (b'{"bounds":{"planted":0.1}}', 400, "invalid_thresholds"),
        (b'{"bounds":{"local_8b":0.1},"bounds":{"local_8b":0.2}}', 400, "invalid_json"),
        (b'{"bounds":{"local_8b":0.1},"reason":""}', 400, "invalid_thresholds"),
        (b'{"reason":"' + b"x" * 70_000 + b'"}', 413, "request_too_large"),
    ],
)
async def test_a_wrong_patch_changes_nothing(here: World, body: bytes, status: int, code: str) -> None:
    before = here.parts.policies.current
    answer = await here.client.patch("/admin/v1/thresholds", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert here.parts.policies.current is before
    assert here.parts.state.history() == []


async def test_the_pool_is_shown(here: World) -> None:
    tiers = (await here.get("/admin/v1/pool")).json()["tiers"]
    assert [tier["road"] for tier in tiers] == ["local-8b", "local-70b"]


async def test_admin_routes_take_admin_keys_alone(tmp_path: Path) -> None:
    made = world(tmp_path, keyed=True)
    for path in ("/admin/v1/policy", "/admin/v1/thresholds", "/admin/v1/pool"):
        assert (await made.get(path)).status_code == 401
        assert (await made.get(path, authorization=f"Bearer {KEY}")).status_code == 401
        assert (await made.get(path, authorization=f"Bearer {ADMIN}")).status_code == 200
    patch = await made.client.patch(
        "/admin/v1/thresholds",
        json={"queue_lock_timeout_ms": 500},
        headers={"authorization": f"Bearer {KEY}"},
    )
    assert patch.status_code == 401
    assert made.parts.state.history() == []


# ---- everything else ----


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/embedding",
        "/v1/responsesx",
        "/v1/models/",
        "/docs",
        "/redoc",
        "/v1/chat/completions/",
    ],
)
async def test_other_addresses_are_404_in_openais_shape(here: World, path: str) -> None:
    answer = await here.get(path)
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["x-weighbridge-request-id"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/v1/models", "GET, HEAD"),
        ("OPTIONS", "/v1/models", "GET, HEAD"),
        ("DELETE", "/metrics", "GET, HEAD"),
        ("GET", "/v1/chat/completions", "POST"),
        ("OPTIONS", "/v1/chat/completions", "POST"),
        ("PLANTED", "/v1/chat/completions", "POST"),
    ],
)
async def test_other_methods_are_405_with_allow(here: World, method: str, path: str, allow: str) -> None:
    answer = await here.client.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allow)
    assert answer.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    "path", ["/v1/models", "/v1/models/auto", "/health/ready", "/metrics", "/openapi.json"]
)
async def test_head_is_get_without_the_body(here: World, path: str) -> None:
    got, head = await here.get(path), await here.client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert head.headers["x-weighbridge-request-id"]


@pytest.mark.parametrize(
    ("path", "status"), [("/v1/chat/completions", 405), ("/v1/embeddings", 501), ("/nowhere", 404)]
)
async def test_head_has_no_body_where_there_is_no_get(here: World, path: str, status: int) -> None:
    answer = await here.client.head(path)
    assert (answer.status_code, answer.content) == (status, b"")


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/models", "/v1/embeddings", "/health/live", "/admin/v1/policy", "/x"]
)
@pytest.mark.parametrize("method", ["OPTIONS", "GET", "POST"])
async def test_no_answer_lets_another_origin_read_it(here: World, method: str, path: str) -> None:
    preflight = {
        "origin": "http://localhost:3000",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    answer = await here.client.request(method, path, headers=preflight)
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    if method == "OPTIONS":
        assert answer.status_code in (404, 405, 501)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/responses", "/v1/responses/resp_1/input_items"])
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_what_is_not_served_yet_says_so(here: World, method: str, path: str) -> None:
    answer = await here.client.request(method, path, content=b"{")
    assert answer.status_code == 501
    error = answer.json()["error"]
    assert (error["type"], error["param"], error["code"]) == (
        "invalid_request_error",
        None,
        "not_implemented",
    )
    assert "not served here yet" in error["message"]
    assert answer.headers["x-weighbridge-request-id"]


async def test_the_schema_has_every_route(here: World) -> None:
    schema = (await here.get("/openapi.json")).json()
    chat = schema["paths"]["/v1/chat/completions"]["post"]
    assert chat["requestBody"]["content"]["application/json"]["schema"]["required"] == ["model", "messages"]
    assert "x-weighbridge-road" in chat["responses"]["200"]["headers"]
    text = schema["paths"]["/v1/completions"]["post"]
    assert text["requestBody"]["content"]["application/json"]["schema"]["required"] == ["model", "prompt"]
    assert text["operationId"] != chat["operationId"]
    assert set(schema["paths"]) >= {"/v1/models", "/health/ready", "/metrics", "/admin/v1/thresholds"}
    assert "bounds" in str(schema["paths"]["/admin/v1/thresholds"]["patch"]["requestBody"])


async def test_a_fault_of_ours_is_500_without_its_text(
    here: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault() -> list[dict[str, Any]]:
        raise RuntimeError("planted-text")

    monkeypatch.setattr(here.pool, "status", fault)
    answer = await here.get("/admin/v1/pool")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert "RuntimeError" in caplog.text
    assert "planted" not in caplog.text + answer.text
