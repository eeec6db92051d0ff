"""Roles: every admin route is in the one table, takes what it says there, and what is refused is recorded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from tests.support.ledger_rows import broken_disk
from tests.unit.gateway.test_api import ADMIN, KEY, World, digest, world
from weighbridge.config.roles import ROLES, Role, may
from weighbridge.gateway import admin_access
from weighbridge.gateway.admin_access import ADMIN_PATHS, RULES, Rule
from weighbridge.gateway.api import make_api
from weighbridge.gateway.auth import Authenticator
from weighbridge.state.audit import AuditLog, value_of

KEYS = {role: f"wb-{role}" for role in ROLES}
AUTH = {
    "keys": [{"id": "one", "sha256": digest(KEY)}],
    "admin_keys": [{"id": role, "sha256": digest(key), "role": role} for role, key in KEYS.items()],
}


def with_roles(tmp_path: Path) -> World:
    return world(tmp_path, auth=AUTH)


async def ask(here: World, method: str, path: str, key: str, **more: Any) -> Any:
    headers = {"authorization": f"Bearer {key}"}
    return await here.client.request(method, re.sub(r"{\w+}", "1", path), headers=headers, **more)


def admin_routes(here: World) -> set[tuple[str, str]]:
    api = make_api(here.parts, Authenticator(here.settings.auth))
    return {
        (method, route.path)
        for route in api.routes
        if isinstance(route, APIRoute) and route.path.startswith("/admin")
        for method in route.methods
    }


def test_the_roles_are_in_order() -> None:
    assert [[may(role, least) for least in ROLES] for role in ROLES] == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]


def test_every_admin_route_is_in_the_table_and_nothing_else_is(tmp_path: Path) -> None:
    here = world(tmp_path)
    assert admin_routes(here) == set(RULES)
    assert all(path.startswith(ADMIN_PATHS) for _, path in RULES)


def test_what_changes_something_takes_an_operator_at_least() -> None:
    for (method, path), rule in RULES.items():
        if method != "GET" and not path.endswith("/preview"):
            assert may(rule.least, "operator"), path
        if "keys" in path:
            assert rule.least == ("auditor" if method == "GET" else "admin"), path
    assert RULES["POST", "/admin/v1/masking/preview"].least == "auditor"
    assert {RULES["GET", path].least for path in ("/admin/v1/audit", "/admin/v1/egress")} == {"auditor"}


async def test_each_route_takes_its_role_and_says_which(tmp_path: Path) -> None:
    here = with_roles(tmp_path)
    for (method, path), rule in RULES.items():
        for role in ROLES:
            answer = await ask(here, method, path, KEYS[role], content=b"{}")
            refused = answer.status_code == 403
            assert refused is not may(role, rule.least), (method, path, role, answer.text)
            if refused:
                error = answer.json()["error"]
                assert (error["code"], error["type"]) == ("role_required", "permission_error")
                assert f"role {rule.least}" in error["message"] and f"role {role}" in error["message"]
        for key in (KEY, "wb-none"):
            assert (await ask(here, method, path, key)).status_code == 401, (method, path)
        assert (await here.client.request(method, path)).status_code == 401, (method, path)


async def test_a_refused_request_changes_nothing_and_is_recorded(tmp_path: Path) -> None:
    here = with_roles(tmp_path)
    before = here.parts.policies.current
    answer = await ask(
        here, "PATCH", "/admin/v1/thresholds", KEYS["viewer"], json={"bounds": {"local_8b": 0.3}}
    )
    assert answer.status_code == 403 and here.parts.policies.current is before
    row = AuditLog(here.parts.state).page(0, 99)[-1]
    assert (row.who, row.role, row.action, row.target, row.outcome) == (
        "viewer",
        "viewer",
        "thresholds.change",
        "/admin/v1/thresholds",
        "refused",
    )
    assert value_of(row.after) == {"needs": "operator"}
    assert row.request_id == answer.headers["x-weighbridge-request-id"] != ""


async def test_an_operator_throws_the_switch_and_an_admin_lifts_it(tmp_path: Path) -> None:
    here, path = with_roles(tmp_path), "/admin/v1/egress/switch"
    never, policy = ({"egress": egress, "reason": "r"} for egress in ("never", "policy"))
    assert (await ask(here, "PUT", path, KEYS["operator"], json=never)).status_code == 200
    refused = await ask(here, "PUT", path, KEYS["operator"], json=policy)
    assert refused.status_code == 403 and "role admin" in refused.json()["error"]["message"]
    assert here.parts.switch.thrown()
    last = AuditLog(here.parts.state).page(0, 99)[-1]
    assert (last.who, last.action, last.outcome) == ("operator", "egress_switch.set", "refused")
    assert (await ask(here, "PUT", path, KEYS["admin"], json=policy)).status_code == 200
    assert not here.parts.switch.thrown()


async def test_a_flood_of_refused_attempts_stays_refused_and_small(tmp_path: Path) -> None:
    here = with_roles(tmp_path)
    for _ in range(50):
        assert (await ask(here, "GET", "/admin/v1/audit", KEYS["viewer"])).status_code == 403
    assert sum(row.outcome == "refused" for row in AuditLog(here.parts.state).page(0, 999)) == 10


async def test_a_refusal_that_cannot_be_recorded_is_one_all_the_same(tmp_path: Path) -> None:
    here = with_roles(tmp_path)
    with broken_disk():
        assert (await ask(here, "GET", "/admin/v1/audit", KEYS["viewer"])).status_code == 403


async def test_a_route_that_the_table_forgot_takes_the_highest_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = with_roles(tmp_path)
    rest = {at: rule for at, rule in RULES.items() if at[1] != "/admin/v1/pool"}
    monkeypatch.setattr(admin_access, "RULES", rest)
    answers = [(await ask(here, "GET", "/admin/v1/pool", key)).status_code for key in KEYS.values()]
    assert answers == [403, 403, 403, 200]


async def test_a_key_of_the_settings_without_a_role_may_everything(tmp_path: Path) -> None:
    here = world(tmp_path, keyed=True)
    body = {"name": "n"}
    assert (await ask(here, "POST", "/admin/v1/keys", ADMIN, json=body)).status_code == 200


def test_a_rule_is_for_one_role() -> None:
    wanted: Role = "viewer"
    assert Rule(wanted, "a.b").least in ROLES
    actions = {rule.action for rule in RULES.values()}
    assert all(re.fullmatch(r"[a-z_]{1,32}\.[a-z_]{1,32}", action) for action in actions)


def test_the_page_has_every_route_with_its_role() -> None:
    page = (Path(__file__).parents[3] / "docs" / "admin-api.md").read_text()
    told = re.findall(r"^\| `([A-Z]+) (/admin/\S+)` \| (\w+) \|", page, re.MULTILINE)
    assert [((method, path), role) for method, path, role in told] == [
        (at, rule.least) for at, rule in RULES.items()
    ]
