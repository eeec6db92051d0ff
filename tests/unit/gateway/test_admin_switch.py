"""The kill switch in the admin API, and what health says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.ledger_rows import broken_disk
from tests.unit.gateway.test_api import ADMIN, KEY, World, world

PATH = "/admin/v1/egress/switch"


async def put(here: World, **body: Any) -> Any:
    return await here.client.put(PATH, json=body)


async def commercial(here: World) -> dict[str, Any]:
    told: dict[str, Any] = (await here.get("/health/ready")).json()["parts"]["commercial"]
    return told


async def test_it_is_thrown_shown_and_lifted(tmp_path: Path) -> None:
    here = world(tmp_path)
    assert (await here.get(PATH)).json() == {
        "egress": "policy",
        "by": None,
        "history": [],
        "next_after": None,
    }
    assert await commercial(here) == {
        "configured": True,
        "egress": "masked",
        "switched_off": None,
        "endpoints": {},
        "ready": True,
    }
    thrown = (await put(here, egress="never", reason="incident 42")).json()
    assert (thrown["egress"], thrown["by"]) == ("never", "admin")
    told = await commercial(here)
    assert (told["switched_off"], told["ready"]) == ("admin", False)
    lifted = (await put(here, egress="policy", reason="over")).json()
    assert (lifted["egress"], lifted["by"]) == ("policy", None)
    history = (await here.get(PATH)).json()["history"]
    assert [(row["who"], row["why"], row["egress"]) for row in history] == [
        ("loopback", "incident 42", "never"),
        ("loopback", "over", "policy"),
    ]
    assert all(row["at_ns"] for row in history)


async def test_a_file_shows(tmp_path: Path) -> None:
    file = tmp_path / "no-egress"
    here = world(
        tmp_path,
        commercial={"base_url": "http://127.0.0.1:1/v1", "model": "m", "kill_switch_file": str(file)},
    )
    assert (await commercial(here))["ready"] is True
    file.touch()
    assert (await commercial(here))["switched_off"] == "file"
    assert (await here.get(PATH)).json() == {
        "egress": "never",
        "by": "file",
        "history": [],
        "next_after": None,
    }


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"egress": "never"},
        {"reason": "r"},
        {"egress": "off", "reason": "r"},
        {"egress": "masked", "reason": "r"},
        {"egress": True, "reason": "r"},
        {"egress": "never", "reason": ""},
        {"egress": "never", "reason": "  "},
        {"egress": "never", "reason": "two\nlines"},
        {"egress": "never", "reason": "r" * 501},
        {"egress": "never", "reason": "r", "planted": 1},
    ],
)
async def test_what_is_no_setting_changes_nothing(tmp_path: Path, body: dict[str, Any]) -> None:
    here = world(tmp_path)
    answer = await put(here, **body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_switch")
    assert "planted" not in answer.text
    assert (await here.get(PATH)).json() == {
        "egress": "policy",
        "by": None,
        "history": [],
        "next_after": None,
    }


async def test_it_needs_an_admin_key(tmp_path: Path) -> None:
    here = world(tmp_path, keyed=True)
    body = {"egress": "never", "reason": "r"}
    for key in (None, KEY):
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        assert (await here.client.put(PATH, json=body, headers=headers)).status_code == 401
        assert (await here.client.get(PATH, headers=headers)).status_code == 401
    assert not here.parts.switch.thrown()
    admin = {"authorization": f"Bearer {ADMIN}"}
    thrown = await here.client.put(PATH, json=body, headers=admin)
    assert thrown.status_code == 200 and thrown.json()["history"][0]["who"] == "root"


async def test_a_disk_that_refuses_is_told(tmp_path: Path) -> None:
    here = world(tmp_path)
    with broken_disk():
        answer = await put(here, egress="never", reason="now")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "state_unavailable")
    assert "a restart would lift it" in answer.json()["error"]["message"]
    assert here.parts.switch.thrown()
    with broken_disk():
        answer = await put(here, egress="policy", reason="over")
    assert answer.status_code == 503 and here.parts.switch.thrown()
