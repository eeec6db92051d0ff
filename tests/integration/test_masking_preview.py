"""What an administrator sees of masking, and that nobody else does and nothing of it is kept."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway

KEY = "wb-admin-key-of-this-test"
ADMIN = {"authorization": f"Bearer {KEY}"}
AUTH = {"admin_keys": [{"id": "boss", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]}
TEXT = "전화 010-2345-6789, mail kim@corp.local"


async def preview(gateway: Running, **body: Any) -> Any:
    return await gateway.client.post("/admin/v1/masking/preview", json=body, headers=ADMIN)


async def test_a_text_is_shown_masked_and_kept_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        recording() as recorder,
        running_gateway(
            tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path), auth=AUTH
        ) as gateway,
    ):
        shown = (await preview(gateway, text=TEXT)).json()
        assert [TEXT[span["start"] : span["end"]] for span in shown["spans"]] == [
            "010-2345-6789",
            "kim@corp.local",
        ]
        assert [span["type"] for span in shown["spans"]] == ["PHONE", "EMAIL"]
        assert "2345" not in shown["masked"] and "kim" not in shown["masked"]
        assert (shown["refused"], shown["explanation"]) == (None, None)
        assert shown["policy_version"] == gateway.parts.policies.current.version
        assert "structured" in shown["layers"]
        assert not recorder.requests
        assert gateway.rows() == [] and gateway.egress() == []
    for file in (tmp_path / "state").iterdir():
        assert b"2345" not in file.read_bytes()
    assert "2345" not in caplog.text


@pytest.mark.parametrize(
    ("text", "refused", "kept"),
    [
        ("주민번호 900101-1234567", "refused_type", "RRN"),
        ("password: hunter2secret9", "credentials", "CREDENTIAL"),
        ("이 문서는 대외비입니다", "blocked_term", None),
    ],
)
async def test_a_refusal_is_told_with_its_reason(
    tmp_path: Path, text: str, refused: str, kept: str | None
) -> None:
    async with running_gateway(tmp_path, policy=policy_file(tmp_path), auth=AUTH) as gateway:
        shown = (await preview(gateway, text=text)).json()
    assert shown["refused"] == refused
    assert shown["explanation"]
    assert [span["type"] for span in shown["spans"]] == ([] if kept is None else [kept])
    assert "1234567" not in shown["masked"] and "hunter2" not in shown["masked"]


async def test_a_tenants_own_rules_and_values_count(tmp_path: Path) -> None:
    values = tmp_path / "values.txt"
    values.write_text("Project Nightjar\n", encoding="utf-8")
    policy = policy_file(tmp_path, tenants={"sales": {"free_text": "refuse"}})
    async with running_gateway(
        tmp_path, policy=policy, auth=AUTH, masking={"known_values": {"sales": str(values)}}
    ) as gateway:
        text = "All about Project Nightjar and where it went last summer"
        ours = (await preview(gateway, text=text, tenant="sales")).json()
        others = (await preview(gateway, text=text)).json()
    assert [span["type"] for span in ours["spans"]] == ["KNOWN"]
    assert ours["refused"] == "free_text"
    assert (others["spans"], others["refused"]) == ([], None)


@pytest.mark.parametrize(
    "body", [{}, {"text": 1}, {"text": "a", "more": "b"}, {"text": "a", "tenant": "no such/name"}]
)
async def test_a_wrong_body_is_told_without_its_text(tmp_path: Path, body: dict[str, Any]) -> None:
    async with running_gateway(tmp_path, auth=AUTH) as gateway:
        answer = await preview(gateway, **body)
    assert answer.status_code == 400
    assert "no such" not in answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_it_takes_an_admin_key(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, auth=AUTH) as gateway:
        answer = await gateway.client.post("/admin/v1/masking/preview", json={"text": TEXT})
    assert answer.status_code == 401
