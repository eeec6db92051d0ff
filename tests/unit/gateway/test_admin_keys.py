"""Keys over the admin API: what it takes, what it shows, and what a request with such a key then meets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.ledger_rows import broken_disk
from tests.unit.gateway.test_api import ADMIN, KEY, World, world
from weighbridge.gateway.auth import Authenticator, Caller, header_map

KEYS, ADMIN_KEYS = "/admin/v1/keys", "/admin/v1/admin-keys"
NOW_S = 1_700_000_000
REMOTE = ("192.0.2.7", 4000)


@pytest.fixture
def here(tmp_path: Path) -> World:
    return world(tmp_path, keyed=True)


async def ask(here: World, method: str, path: str, key: str = ADMIN, **body: Any) -> Any:
    headers = {"authorization": f"Bearer {key}"}
    return await here.client.request(method, path, headers=headers, json=body or None)


async def made(here: World, path: str = KEYS, **body: Any) -> dict[str, Any]:
    answer = await ask(here, "POST", path, **body)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def serves(here: World, key: str) -> int:
    status: int = (await ask(here, "GET", "/v1/models", key)).status_code
    return status


async def test_a_key_is_made_shown_once_and_good_at_once(here: World) -> None:
    answer = await ask(
        here,
        "POST",
        KEYS,
        name="data team",
        tenant="data",
        roads=["local-70b", "local-8b"],
        parallel=3,
        expires_at=NOW_S + 60,
        reason="new team",
    )
    assert answer.headers["cache-control"] == "no-store"
    told = answer.json()
    key = told.pop("key")
    assert told == {
        "id": told["id"],
        "name": "data team",
        "state": "active",
        "created_at": NOW_S,
        "created_by": "root",
        "expires_at": NOW_S + 60,
        "revoked_at": None,
        "old_key_until": None,
        "tenant": "data",
        "roads": ["local-8b", "local-70b"],
        "parallel": 3,
    }
    assert await serves(here, key) == 200
    shown = await ask(here, "GET", f"{KEYS}/{told['id']}")
    assert shown.json() == told and "cache-control" not in shown.headers
    assert (await ask(here, "GET", KEYS)).json() == {"keys": [told], "next_after": None}
    assert key not in (await ask(here, "GET", "/admin/v1/audit")).text


async def test_only_what_is_enforced_is_offered(here: World) -> None:
    document = (await here.get("/openapi.json")).json()
    body = document["paths"][KEYS]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"name", "tenant", "roads", "parallel", "expires_at", "reason"}
    for limit in ("rpm", "tpm", "budget"):
        assert (await ask(here, "POST", KEYS, name="n", **{limit: 5})).status_code == 400


async def test_a_change_a_rotation_and_a_revocation(here: World) -> None:
    one = await made(here, name="n", parallel=2, roads=["local-8b"])
    path = f"{KEYS}/{one['id']}"
    changed = (await ask(here, "PATCH", path, parallel=None, name="m")).json()
    assert (changed["name"], changed["parallel"], changed["roads"]) == ("m", None, ["local-8b"])
    rotated = (await ask(here, "POST", f"{path}/rotate", overlap_s=60)).json()
    assert rotated["id"] == one["id"] and rotated["key"] != one["key"]
    assert rotated["old_key_until"] == NOW_S + 60
    assert [await serves(here, key) for key in (one["key"], rotated["key"])] == [200, 200]
    again = (await ask(here, "POST", f"{path}/rotate")).json()
    assert [await serves(here, key) for key in (one["key"], rotated["key"], again["key"])] == [401, 401, 200]
    revoked = (await ask(here, "POST", f"{path}/revoke", reason="leak")).json()
    assert (revoked["state"], revoked["revoked_at"]) == ("revoked", NOW_S)
    assert await serves(here, again["key"]) == 401
    for method, below in (("PATCH", ""), ("POST", "/rotate"), ("POST", "/revoke")):
        answer = await ask(here, method, path + below, **({"name": "x"} if method == "PATCH" else {}))
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "key_revoked")


async def test_an_admin_key_has_its_role_at_once(here: World) -> None:
    one = await made(here, ADMIN_KEYS, name="ann", role="viewer")
    assert one["role"] == "viewer" and "tenant" not in one
    assert (await ask(here, "GET", "/admin/v1/pool", one["key"])).status_code == 200
    assert (await ask(here, "GET", "/admin/v1/audit", one["key"])).status_code == 403
    await ask(here, "PATCH", f"{ADMIN_KEYS}/{one['id']}", role="auditor")
    assert (await ask(here, "GET", "/admin/v1/audit", one["key"])).status_code == 200
    await ask(here, "POST", f"{ADMIN_KEYS}/{one['id']}/revoke")
    assert (await ask(here, "GET", "/admin/v1/pool", one["key"])).status_code == 401


async def test_keys_of_one_kind_are_none_of_the_other(here: World) -> None:
    api, admin = await made(here, name="n"), await made(here, ADMIN_KEYS, name="n", role="admin")
    assert await serves(here, admin["key"]) == 401
    assert (await ask(here, "GET", "/admin/v1/pool", api["key"])).status_code == 401
    assert (await ask(here, "POST", KEYS, api["key"], name="n")).status_code == 401
    for path, key_id in ((KEYS, admin["id"]), (ADMIN_KEYS, api["id"])):
        for method, below in (("GET", ""), ("POST", "/rotate"), ("POST", "/revoke")):
            assert (await ask(here, method, f"{path}/{key_id}{below}")).status_code == 404
    # Those of the settings have no address here.
    assert (await ask(here, "POST", f"{KEYS}/one/revoke")).status_code == 404
    assert await serves(here, KEY) == 200


NO_KEYS: list[dict[str, Any]] = [
    {"name": ""},
    {"name": "  "},
    {"name": "two\nlines"},
    {"name": "n" * 101},
    {"name": None},
    {"tenant": "t"},
    {"name": "n", "tenant": "-t"},
    {"name": "n", "roads": []},
    {"name": "n", "roads": ["local-8b", "local-8b"]},
    {"name": "n", "roads": ["planted"]},
    {"name": "n", "roads": "local-8b"},
    {"name": "n", "parallel": 0},
    {"name": "n", "parallel": True},
    {"name": "n", "parallel": 1.5},
    {"name": "n", "expires_at": NOW_S},
    {"name": "n", "expires_at": -1},
    {"name": "n", "expires_at": 2**63},
    {"name": "n", "reason": "two\nlines"},
    {"name": "n", "key": "planted"},
    {"name": "n", "sha256": "ab" * 32},
    {"name": "n", "id": "planted"},
    {"name": "n", "role": "admin"},
]


async def test_what_is_no_key_makes_none(here: World) -> None:
    for body in NO_KEYS:
        answer = await here.client.post(KEYS, json=body, headers={"authorization": f"Bearer {ADMIN}"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_key_request"), body
        assert "planted" not in answer.text
    assert (await ask(here, "GET", KEYS)).json()["keys"] == []


async def test_what_is_no_change_changes_nothing(here: World) -> None:
    one = await made(here, name="n")
    path = f"{KEYS}/{one['id']}"
    for body in ({}, {"reason": "r"}, {"name": None}, {"tenant": "other"}, {"roads": []}, {"expires_at": 1}):
        answer = await here.client.patch(path, json=body, headers={"authorization": f"Bearer {ADMIN}"})
        assert answer.status_code == 400, body
    assert (await ask(here, "GET", path)).json() == {name: one[name] for name in one if name != "key"}


async def test_an_admin_key_needs_a_role(here: World) -> None:
    for body in (
        {"name": "n"},
        {"name": "n", "role": "root"},
        {"name": "n", "role": "viewer", "roads": None},
    ):
        assert (await ask(here, "POST", ADMIN_KEYS, **body)).status_code == 400


async def test_pages(here: World) -> None:
    ids = [(await made(here, name=f"n{n}"))["id"] for n in range(5)]
    await made(here, ADMIN_KEYS, name="between", role="viewer")
    found, after = [], 0
    while after is not None:
        page = (await ask(here, "GET", f"{KEYS}?after={after}&limit=2")).json()
        found += [key["id"] for key in page["keys"]]
        after = page["next_after"]
    assert found == ids
    assert (await ask(here, "GET", f"{KEYS}?limit=0")).status_code == 400


async def test_a_disk_that_refuses_is_told(here: World) -> None:
    one = await made(here, name="n")
    with broken_disk():
        answer = await ask(here, "POST", f"{KEYS}/{one['id']}/revoke")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "state_unavailable")
    # A revocation is in force even so: whoever asks for it has reason to.
    assert "revoke it again" in answer.json()["error"]["message"]
    assert await serves(here, one["key"]) == 401


async def test_from_no_keys_at_all_to_a_keyed_gateway_and_never_back(tmp_path: Path) -> None:
    here = world(tmp_path)

    async def local(method: str, path: str, **body: Any) -> Any:
        return await here.client.request(method, path, json=body or None)

    refused = await local("POST", KEYS, name="n")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "admin_key_first")
    assert (await local("POST", ADMIN_KEYS, name="n", role="viewer")).status_code == 409
    assert (await local("GET", "/v1/models")).status_code == 200
    admin = (await local("POST", ADMIN_KEYS, name="ann", role="admin")).json()
    assert admin["created_by"] == "loopback"
    # Now a local caller administers no longer, and goes on to be answered.
    assert (await local("GET", "/admin/v1/pool")).status_code == 401
    assert (await local("GET", "/v1/models")).status_code == 200
    api = (await ask(here, "POST", KEYS, admin["key"], name="n")).json()
    assert (await local("GET", "/v1/models")).status_code == 401
    assert await serves(here, api["key"]) == 200
    await ask(here, "POST", f"{KEYS}/{api['id']}/revoke", admin["key"])
    assert (await local("GET", "/v1/models")).status_code == 401
    last = await ask(here, "POST", f"{ADMIN_KEYS}/{admin['id']}/revoke", admin["key"])
    assert (last.status_code, last.json()["error"]["code"]) == (409, "last_admin_key")
    here.parts.state.close()
    again = world(tmp_path)
    assert (await again.client.get("/v1/models")).status_code == 401
    assert (await again.client.get("/admin/v1/pool")).status_code == 401
    assert (await ask(again, "GET", "/admin/v1/pool", admin["key"])).status_code == 200


async def test_what_a_caller_may_is_what_the_authenticator_says(here: World) -> None:
    auth = Authenticator(here.settings.auth, here.parts.keys)
    one = await made(here, name="n", tenant="acme", roads=["local-70b"], parallel=4)
    headers = header_map([(b"authorization", f"Bearer {one['key']}".encode())])
    assert auth.api(headers, REMOTE) == Caller(
        one["id"], "acme", frozenset({"local-8b", "commercial"}), 4, None
    )


async def test_a_key_is_shown_the_models_that_it_may_use(here: World) -> None:
    here.policy_file.write_text(
        here.policy_file.read_text() + "aliases: {gpt-5: commercial, small: local-8b}\n"
    )
    here.parts.policies.reload_if_changed()
    one = await made(here, name="n", roads=["local-8b"])
    listed = (await ask(here, "GET", "/v1/models", one["key"])).json()["data"]
    assert [model["id"] for model in listed] == ["auto", "local-8b", "small"]
    assert (await ask(here, "GET", "/v1/models/commercial", one["key"])).status_code == 404
    assert (await ask(here, "GET", "/v1/models/commercial", KEY)).status_code == 200


async def test_a_key_in_the_wrong_place_is_not_kept(here: World) -> None:
    one = await made(here, name="n")
    before = (await ask(here, "GET", "/admin/v1/audit")).json()
    for body in ({"name": one["key"]}, {"name": "m", "reason": f"key {one['key']} leaked"}):
        assert (await ask(here, "PATCH", f"{KEYS}/{one['id']}", **body)).status_code == 400
    assert (await ask(here, "POST", f"{KEYS}/{one['id']}/revoke", reason=one["key"])).status_code == 400
    change = {"egress": "never", "reason": f"because of {one['key']}"}
    assert (await ask(here, "PUT", "/admin/v1/egress/switch", **change)).status_code == 400
    patch = {"bounds": {"local_8b": 0.4}, "reason": one["key"]}
    assert (await ask(here, "PATCH", "/admin/v1/thresholds", **patch)).status_code == 400
    after = (await ask(here, "GET", "/admin/v1/audit")).json()
    assert one["key"] not in str(after) and len(after["rows"]) == len(before["rows"])
