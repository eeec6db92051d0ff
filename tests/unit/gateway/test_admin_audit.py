"""The audit log over the admin API: every route that changes something leaves its row, and it can be looked through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.gateway.test_api import ADMIN, AUDIT_KEY, KEY, World, world
from weighbridge.gateway.admin_access import RULES
from weighbridge.state.audit_verify import verify_file

AUDIT = "/admin/v1/audit"
SECRET = "wb-planted-secret"


@pytest.fixture
def here(tmp_path: Path) -> World:
    return world(tmp_path, keyed=True)


async def ask(here: World, method: str, path: str, **body: Any) -> Any:
    answer = await here.client.request(
        method, path, headers={"authorization": f"Bearer {ADMIN}"}, json=body or None
    )
    assert answer.status_code == 200, answer.text
    return answer


async def everything(here: World) -> dict[str, str]:
    """Calls every route that changes something; request ids by action."""
    done: dict[str, str] = {}

    async def do(action: str, method: str, path: str, **body: Any) -> Any:
        answer = await ask(here, method, path, **body)
        done[action] = answer.headers["x-weighbridge-request-id"]
        return answer.json()

    policies = "/admin/v1/policies"
    await do("thresholds.change", "PATCH", "/admin/v1/thresholds", bounds={"local_8b": 0.3}, reason="r1")
    proposal = await do(
        "policy.propose", "POST", f"{policies}/proposals", overlay={"queue_lock_timeout_ms": 900}, reason="r2"
    )
    await do("policy.apply", "POST", f"{policies}/proposals/{proposal['id']}/apply")
    await do("policy.rollback", "POST", f"{policies}/versions/1/rollback", reason="r3")
    await do("egress_switch.set", "PUT", "/admin/v1/egress/switch", egress="never", reason="r4")
    for name, path, body in (
        ("key", "/admin/v1/keys", {"name": "n"}),
        ("admin_key", "/admin/v1/admin-keys", {"name": "n", "role": "viewer"}),
    ):
        made = await do(f"{name}.create", "POST", path, **body)
        one = f"{path}/{made['id']}"
        await do(f"{name}.change", "PATCH", one, name="m")
        await do(f"{name}.rotate", "POST", f"{one}/rotate", overlap_s=60)
        await do(f"{name}.revoke", "POST", f"{one}/revoke", reason="r5")
    return done


async def test_every_route_that_changes_something_leaves_its_row(here: World, tmp_path: Path) -> None:
    done = await everything(here)
    rows = (await ask(here, "GET", f"{AUDIT}?who=root")).json()["rows"]
    assert [row["action"] for row in rows] == list(done)
    assert [row["request_id"] for row in rows] == list(done.values())
    assert {(row["role"], row["outcome"]) for row in rows} == {("admin", "done")}
    assert all(row["before"] != row["after"] for row in rows)
    changing = {rule.action for (method, _), rule in RULES.items() if method != "GET"}
    assert changing - set(done) == {"masking.preview", "thresholds.preview"}
    threshold = rows[0]
    assert (threshold["before"]["bounds"]["local_8b"], threshold["after"]["bounds"]["local_8b"]) == (
        0.45,
        0.3,
    )
    assert threshold["why"] == "r1"
    assert verify_file(tmp_path / "state.sqlite3", [AUDIT_KEY]).bad_seq is None


async def test_the_policy_of_the_file_is_there_as_nobodys(here: World) -> None:
    first = (await ask(here, "GET", AUDIT)).json()["rows"][0]
    assert (first["seq"], first["who"], first["action"], first["before"]) == (1, "", "policy.file", None)
    assert first["after"]["version"] == here.parts.policies.current.version


async def test_it_is_looked_through_by_key_action_and_time(here: World) -> None:
    await everything(here)
    everything_told = (await ask(here, "GET", AUDIT)).json()
    rows = everything_told["rows"]
    assert everything_told["head"] == {"seq": rows[-1]["seq"], "chain": rows[-1]["chain"]}

    async def found(query: str) -> list[int]:
        return [row["seq"] for row in (await ask(here, "GET", f"{AUDIT}?{query}")).json()["rows"]]

    assert await found("action=key.revoke") == [row["seq"] for row in rows if row["action"] == "key.revoke"]
    assert await found("who=nobody") == []
    at = rows[0]["at_ns"]
    assert await found(f"since_ns={at + 1}") == [] and await found(f"before_ns={at}") == []
    assert len(await found(f"since_ns={at}&before_ns={at + 1}")) == len(rows)
    seen, after = [], 0
    while after is not None:
        page = (await ask(here, "GET", f"{AUDIT}?limit=3&after={after}")).json()
        seen += [row["seq"] for row in page["rows"]]
        after = page["next_after"]
    assert seen == [row["seq"] for row in rows]


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "after=-1",
        "who=",
        "who=a&who=b",
        "who=planted%20x",
        "who=root%0A",
        "action=PLANTED",
        "action=a.b.c",
        "since_ns=x",
    ],
)
async def test_a_wrong_question_is_refused(here: World, query: str) -> None:
    answer = await here.client.get(f"{AUDIT}?{query}", headers={"authorization": f"Bearer {ADMIN}"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_parameter")
    assert "planted" not in answer.text.lower()


async def test_it_holds_no_key_and_no_text_of_a_request(here: World) -> None:
    await everything(here)
    headers = {"authorization": f"Bearer {ADMIN}", "x-planted": SECRET}
    await here.client.patch("/admin/v1/thresholds", content=SECRET, headers=headers)
    await here.client.post("/admin/v1/keys", json={"name": "n", SECRET: 1}, headers=headers)
    log = (await ask(here, "GET", f"{AUDIT}?limit=1000")).text
    for text in (SECRET, ADMIN + '"', KEY + '"', "wb-"):
        assert text not in log


async def test_a_damaged_log_is_told_and_nothing_is_changed(here: World) -> None:
    with here.parts.state.writing() as conn:
        conn.execute("UPDATE audit SET chain = 'x'")
    answer = await here.client.get(AUDIT, headers={"authorization": f"Bearer {ADMIN}"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "audit_unreadable")
    before = here.parts.policies.current
    patch = {"bounds": {"local_8b": 0.2}, "reason": "r"}
    answer = await here.client.patch(
        "/admin/v1/thresholds", json=patch, headers={"authorization": f"Bearer {ADMIN}"}
    )
    assert answer.status_code == 503 and here.parts.policies.current is before
    # The kill switch works all the same: what is safe never waits for a record.
    body = {"egress": "never", "reason": "r"}
    answer = await here.client.put(
        "/admin/v1/egress/switch", json=body, headers={"authorization": f"Bearer {ADMIN}"}
    )
    assert answer.status_code == 503 and here.parts.switch.thrown()
