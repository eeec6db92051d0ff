"""LoRA adapters that cannot be right are refused before a model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import TierSettings
from weighbridge.pool.preflight import check_tier


def adapter(folder: Path, config: Any, *, weights: bool = True) -> Path:
    folder.mkdir()
    text = config if isinstance(config, str) else json.dumps(config)
    (folder / "adapter_config.json").write_text(text, "utf-8")
    if weights:
        (folder / "adapter_model.safetensors").write_bytes(b"")
    return folder


def check(folder: Path, **fields: Any) -> None:
    check_tier("local-8b", TierSettings(lora_adapters={"law": folder}, **fields), cpu=True)


def test_an_adapter_that_fits(tmp_path: Path) -> None:
    check(adapter(tmp_path / "a", {"r": 16, "rank_pattern": {"q_proj": 8}}))
    check(adapter(tmp_path / "b", {"r": 32}), max_lora_rank=32)


@pytest.mark.parametrize(
    ("config", "weights", "says"),
    [
        ({"r": 8}, False, "no adapter_model.safetensors in "),
        ({"r": 17}, True, "its rank is 17, above tiers.local-8b.max_lora_rank (16)"),
        ({"r": 8, "rank_pattern": {"q_proj": 64}}, True, "its rank is 64, above"),
        ({"peft_type": "LORA"}, True, "has no rank (r)"),
        ({"r": "8"}, True, "has no rank (r)"),
        ([8], True, "has no rank (r)"),
        ("{", True, "is not valid JSON"),
    ],
)
def test_an_adapter_that_does_not(tmp_path: Path, config: Any, weights: bool, says: str) -> None:
    folder = adapter(tmp_path / "law", config, weights=weights)
    with pytest.raises(ConfigError) as caught:
        check(folder)
    assert str(caught.value).startswith("tiers.local-8b.lora_adapters.law: ")
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_an_adapter_that_has_gone_since_the_settings_were_read(tmp_path: Path) -> None:
    folder = adapter(tmp_path / "law", {"r": 8})
    settings = TierSettings(lora_adapters={"law": folder})
    (folder / "adapter_config.json").unlink()
    with pytest.raises(ConfigError, match=r"lora_adapters\.law: no adapter_config\.json in "):
        check_tier("local-8b", settings, cpu=True)
