"""A fine-tuned adapter is a model by its own name: listed, answered by its tier, recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.running import running_gateway


def adapter(folder: Path) -> str:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": 8, "peft_type": "LORA"}))
    (folder / "adapter_model.safetensors").write_bytes(b"")
    return str(folder)


@pytest.mark.parametrize("stream", [True, False])
async def test_an_adapter_answers_under_its_name(tmp_path: Path, stream: bool) -> None:
    engine = FakeEngine("local-70b", adapters=("legal-ko",))
    async with running_gateway(
        tmp_path,
        engines={"local-8b": FakeEngine(), "local-70b": engine},
        tiers={"local-70b": {"lora_adapters": {"legal-ko": adapter(tmp_path / "legal-ko")}}},
    ) as gateway:
        listed = [model["id"] for model in (await gateway.client.get("/v1/models")).json()["data"]]
        assert listed == ["auto", "local-8b", "local-70b", "legal-ko"]
        answer = await gateway.chat(model="legal-ko", stream=stream)
        assert answer.status_code == 200
        assert answer.headers["x-weighbridge-road"] == "local-70b"
        assert '"model":"legal-ko"' in answer.text.replace('": "', '":"')
        await gateway.chat(model="local-70b")
        assert [call.adapter for call in engine.calls] == ["legal-ko", None]
        assert [row["model_requested"] for row in gateway.rows()] == ["legal-ko", "local-70b"]
        unknown = await gateway.chat(model="legal-en")
        assert unknown.status_code == 404 and "legal-ko" in unknown.json()["error"]["message"]
