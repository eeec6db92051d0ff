"""Policies over the admin API: propose, look, apply, roll back, while requests go on; and over kills and restarts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.process import GatewayProcess
from tests.support.running import Running, policy_file, running_gateway
from weighbridge.config.yamlsource import parse_yaml

ADMIN, OTHER = "wb-admin-1", "wb-admin-2"
AUTH = {
    "keys": [{"id": "one", "sha256": hashlib.sha256(b"wb-user").hexdigest()}],
    "admin_keys": [
        {"id": "ann", "sha256": hashlib.sha256(ADMIN.encode()).hexdigest()},
        {"id": "bob", "sha256": hashlib.sha256(OTHER.encode()).hexdigest()},
    ],
}
PROPOSALS, VERSIONS = "/admin/v1/policies/proposals", "/admin/v1/policies/versions"
GREETING = [{"role": "user", "content": "안녕하세요, 반가워요!"}]


async def road(gateway: Running) -> tuple[str, str]:
    answer = await gateway.client.post(
        "/v1/chat/completions",
        json={"model": "auto", "messages": GREETING},
        headers={"authorization": "Bearer wb-user"},
    )
    assert answer.status_code == 200, answer.text
    return answer.headers["x-weighbridge-road"], answer.headers["x-weighbridge-policy"]


async def ask(
    gateway: Running, method: str, path: str, body: Any = None, key: str = ADMIN, status: int = 200
) -> dict[str, Any]:
    content = None if body is None else json.dumps(body).encode()
    answer = await gateway.client.request(
        method, path, content=content, headers={"authorization": f"Bearer {key}"}
    )
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    told: dict[str, Any] = answer.json()
    return told


def error(answer: dict[str, Any]) -> tuple[str, str]:
    assert set(answer["error"]) >= {"message", "type", "param", "code"}
    return answer["error"]["type"], answer["error"]["code"]


async def test_from_the_proposal_to_the_rollback(tmp_path: Path) -> None:
    policy = policy_file(tmp_path)
    async with running_gateway(tmp_path, policy=policy, auth=AUTH) as gateway:
        first_road, first = await road(gateway)
        assert first_road == "local-8b"
        body = {"overlay": "tasks:\n  chat: {road: by-score, floor: local-70b}\n", "reason": "8B is down"}
        made = await ask(gateway, "POST", PROPOSALS, body)
        assert (made["id"], made["author"], made["reason"], made["applied"]) == (1, "ann", "8B is down", None)
        assert (made["base_version"], made["in_force"], made["stale"]) == (first, first, False)
        assert made["changes"] == [{"path": "/tasks/chat/floor", "before": None, "after": "local-70b"}]
        assert await road(gateway) == ("local-8b", first), "nothing is in force yet"
        assert await ask(gateway, "GET", f"{PROPOSALS}/1") == made
        applied = await ask(gateway, "POST", f"{PROPOSALS}/1/apply", key=OTHER)
        assert applied["version"] == made["version"]
        assert (applied["author"], applied["reason"], applied["source"]) == ("bob", "8B is down", "admin")
        assert applied["policy"]["tasks"]["chat"] == {"road": "by-score", "floor": "local-70b"}
        assert applied["overlay"] == {"tasks": {"chat": {"road": "by-score", "floor": "local-70b"}}}
        assert await road(gateway) == ("local-70b", made["version"])
        assert "task chat: floor local-70b" in gateway.rows()[-1]["reasons"]
        again = await ask(gateway, "POST", f"{PROPOSALS}/1/apply", status=409)
        assert error(again) == ("invalid_request_error", "already_applied")
        listed = await ask(gateway, "GET", PROPOSALS)
        assert [(one["id"], one["applied"]) for one in listed["proposals"]] == [(1, applied["id"])]
        # The old route is a version as well.
        await gateway.client.patch(
            "/admin/v1/thresholds",
            json={"queue_lock_timeout_ms": 900, "reason": "slow"},
            headers={"authorization": f"Bearer {ADMIN}"},
        )
        back = await ask(gateway, "POST", f"{VERSIONS}/{first}/rollback", {"reason": "8B is back"}, key=OTHER)
        assert (back["version"], back["rolled_back_to"], back["author"]) == (first, 1, "bob")
        assert await road(gateway) == ("local-8b", first)
        told = await ask(gateway, "GET", VERSIONS)
        assert told["in_force"] == first and told["next_after"] is None
        assert [(one["source"], one["author"], one["reason"]) for one in told["versions"]] == [
            ("file", None, None),
            ("admin", "bob", "8B is down"),
            ("admin", "ann", "slow"),
            ("admin", "bob", "8B is back"),
        ]
        by_name = await ask(gateway, "GET", f"{VERSIONS}/{made['version']}")
        assert by_name == await ask(gateway, "GET", f"{VERSIONS}/{applied['id']}") == applied


async def test_pages(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, policy=policy_file(tmp_path), auth=AUTH) as gateway:
        for n in range(3):
            await ask(
                gateway, "POST", PROPOSALS, {"overlay": {"queue_lock_timeout_ms": n + 1}, "reason": "r"}
            )
        page = await ask(gateway, "GET", f"{PROPOSALS}?limit=2")
        assert ([one["id"] for one in page["proposals"]], page["next_after"]) == ([1, 2], 2)
        page = await ask(gateway, "GET", f"{PROPOSALS}?limit=2&after=2")
        assert ([one["id"] for one in page["proposals"]], page["next_after"]) == ([3], None)
        for query in ("limit=0", "limit=201", "after=-1", "after=x", "limit=1&limit=2"):
            refused = await ask(gateway, "GET", f"{VERSIONS}?{query}", status=400)
            assert error(refused) == ("invalid_request_error", "invalid_parameter")


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (PROPOSALS, {}, 400, "invalid_change"),
        (PROPOSALS, {"overlay": {"name": "q"}}, 400, "invalid_change"),
        (PROPOSALS, {"overlay": {"name": "q"}, "policy": "", "reason": "r"}, 400, "invalid_change"),
        (PROPOSALS, {"overlay": {"name": "q"}, "reason": " "}, 400, "invalid_change"),
        (PROPOSALS, {"overlay": {"name": "q"}, "reason": "a\nb"}, 400, "invalid_change"),
        (PROPOSALS, {"overlay": [1], "reason": "r"}, 400, "invalid_change"),
        (PROPOSALS, {"overlay": {"name": "q"}, "reason": "r", "who": "me"}, 400, "invalid_change"),
        (PROPOSALS, {"policy": "", "reason": "r"}, 400, "invalid_policy"),
        (PROPOSALS, {"policy": {}, "reason": "r"}, 400, "invalid_policy"),
        (PROPOSALS, {"overlay": {}, "reason": "r"}, 400, "invalid_policy"),
        (PROPOSALS, {"overlay": "a: *b", "reason": "r"}, 400, "invalid_policy"),
        (PROPOSALS, {"overlay": {"bounds": {"local_8b": 0.99}}, "reason": "r"}, 400, "invalid_policy"),
        (PROPOSALS, {"overlay": {"aliases": {"x": "no-adapter"}}, "reason": "r"}, 400, "invalid_policy"),
        (f"{PROPOSALS}/1/apply", None, 404, "proposal_not_found"),
        (f"{PROPOSALS}/x/apply", None, 404, "proposal_not_found"),
        (f"{PROPOSALS}/1/apply", {"rebase": 1}, 400, "invalid_change"),
        (f"{VERSIONS}/default@000000000000/rollback", {"reason": "r"}, 404, "version_not_found"),
        (f"{VERSIONS}/1/rollback", {}, 400, "invalid_change"),
        (f"{VERSIONS}/1/rollback", {"reason": "r"}, 409, "in_force"),
    ],
)
async def test_what_is_refused_is_told_and_changes_nothing(
    tmp_path: Path, path: str, body: Any, status: int, code: str
) -> None:
    async with running_gateway(tmp_path, policy=policy_file(tmp_path), auth=AUTH) as gateway:
        before = await ask(gateway, "GET", VERSIONS)
        refused = await ask(gateway, "POST", path, body, status=status)
        assert error(refused) == ("invalid_request_error", code)
        assert ("problems" in refused["error"]) is (code == "invalid_policy")
        assert await ask(gateway, "GET", VERSIONS) == before
        assert (await ask(gateway, "GET", PROPOSALS))["proposals"] == []


async def test_the_places_in_what_was_given(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, policy=policy_file(tmp_path), auth=AUTH) as gateway:
        text = "bounds:\n  local_8b: high\ntenants:\n  a: {pin: local-8b, forbid: [local-8b]}\n"
        refused = await ask(gateway, "POST", PROPOSALS, {"overlay": text, "reason": "r"}, status=400)
        assert refused["error"]["problems"] == [
            {
                "path": "bounds.local_8b",
                "line": 2,
                "column": 3,
                "message": "must be a number between 0 and 1, not text",
            },
            {
                "path": "tenants.a.pin",
                "line": 4,
                "column": 7,
                "message": "local-8b is forbidden by the same rule",
            },
        ]
        assert refused["error"]["param"] == "bounds.local_8b"
        answer = await gateway.client.post(
            PROPOSALS, content=b"{}", headers={"authorization": f"Bearer {ADMIN}"}
        )
        assert answer.headers["x-weighbridge-request-id"]


async def test_the_ceiling_of_the_settings(tmp_path: Path) -> None:
    policy = policy_file(tmp_path, egress="never")
    more: dict[str, Any] = {"policies": {"file": str(policy), "max_egress": "never", "poll_interval_s": 0.1}}
    body = {"overlay": {"egress": "masked"}, "reason": "r"}
    async with running_gateway(
        tmp_path, upstream="http://127.0.0.1:1/v1", auth=AUTH, blind=True, **more
    ) as gateway:
        refused = await ask(gateway, "POST", PROPOSALS, body, status=400)
        assert refused["error"]["problems"][0]["message"].startswith("must be never: policies.max_egress")
    async with running_gateway(tmp_path / "b", policy=policy, auth=AUTH) as gateway:
        refused = await ask(gateway, "POST", PROPOSALS, body, status=400)
        assert "no commercial endpoint" in refused["error"]["problems"][0]["message"]


async def until_file(gateway: Running, state: str) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while True:
            told = await ask(gateway, "GET", "/admin/v1/policy")
            if told["file"] == state:
                return told
            await asyncio.sleep(0.02)


async def test_a_file_that_does_not_go_with_the_overlay_is_told_and_the_version_goes_on(
    tmp_path: Path,
) -> None:
    policy = policy_file(tmp_path)
    async with running_gateway(tmp_path, policy=policy, auth=AUTH) as gateway:
        body = {"overlay": {"tasks": {"chat": {"floor": "local-70b"}}}, "reason": "r"}
        await ask(gateway, "POST", PROPOSALS, body)
        version = (await ask(gateway, "POST", f"{PROPOSALS}/1/apply"))["version"]
        document = parse_yaml(policy.read_bytes(), "policy.yaml").data
        document["tasks"]["chat"]["ceiling"] = "local-8b"
        policy.write_text(yaml.safe_dump(document, allow_unicode=True))
        told = await until_file(gateway, "conflict")
        assert "tasks.chat.floor" in told["file_problems"][0] and told["version"] == version
        assert await road(gateway) == ("local-70b", version)
        ready = (await gateway.client.get("/health/ready")).json()
        assert ready["parts"]["policy"] == {"ready": True, "version": version, "file": "conflict"}
    async with running_gateway(tmp_path, policy=policy, auth=AUTH) as gateway:
        assert (await until_file(gateway, "conflict"))["version"] == version
        assert await road(gateway) == ("local-70b", version)
        body = {"overlay": {"tasks": {"chat": {"floor": None}}}, "reason": "r"}
        await ask(gateway, "POST", PROPOSALS, body)
        await ask(gateway, "POST", f"{PROPOSALS}/2/apply")
        await until_file(gateway, "in_force")
        assert (await road(gateway))[0] == "local-8b"


def test_kills_lose_no_version_that_was_promised(tmp_path: Path) -> None:
    """kill -9 while changes land: what was answered is kept, and what is in force is the last of what is kept."""
    rng = random.Random(6)
    config = tmp_path / "settings.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "server": {"port": 0},
                "state_dir": str(tmp_path / "state"),
                "policies": {"file": str(policy_file(tmp_path))},
            }
        )
    )
    promised: dict[int, str] = {}
    seen = 0
    gateway = GatewayProcess(["-m", "tests.support.fake_gateway", str(config)], log=tmp_path / "log")
    gateway.start()
    for _ in range(3):
        enough = threading.Event()
        wanted = len(promised) + rng.randrange(3, 12)

        def change(url: str = gateway.url, wanted: int = wanted, enough: threading.Event = enough) -> None:
            with httpx.Client(base_url=url, timeout=30) as client:
                n = 0
                try:
                    while True:
                        n += 1
                        body = {"overlay": {"queue_lock_timeout_ms": rng.randrange(1, 5000)}, "reason": "r"}
                        made = client.post(PROPOSALS, json=body)
                        if made.status_code == 400:
                            continue  # the same as before
                        done = client.post(f"{PROPOSALS}/{made.json()['id']}/apply").json()
                        promised[done["id"]] = done["version"]
                        if len(promised) >= wanted:
                            enough.set()
                except (httpx.HTTPError, ValueError):
                    enough.set()

        caller = threading.Thread(target=change)
        caller.start()
        assert enough.wait(60)
        gateway.kill9()
        caller.join()
        gateway = GatewayProcess(["-m", "tests.support.fake_gateway", str(config)], log=tmp_path / "log")
        gateway.start()
        with httpx.Client(base_url=gateway.url, timeout=30) as client:
            told = client.get(VERSIONS, params={"limit": 200}).json()
            kept = {one["id"]: one["version"] for one in told["versions"]}
            assert promised.items() <= kept.items()
            assert told["in_force"] == told["versions"][-1]["version"]
            whole = client.get(f"{VERSIONS}/{told['in_force']}").json()
            assert client.get("/admin/v1/policy").json()["policy"] == whole["policy"]
            # A proposal is applied exactly where a version came of it.
            listed = client.get(PROPOSALS, params={"limit": 200}).json()["proposals"]
            applied = {one["applied"] for one in listed} - {None}
            assert applied == {one["id"] for one in told["versions"] if one["proposal"] is not None}
            assert len(kept) > seen
            seen = len(kept)
    assert gateway.stop() == 0
