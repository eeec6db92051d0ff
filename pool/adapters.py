"""A tier's LoRA adapters: what can be known to be wrong with their folders before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import TierSettings

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"


def check_adapters(road: str, settings: TierSettings) -> None:
    """Check the folders of a tier's adapters.

    Raises:
        ConfigError: the first thing that is wrong, in one line that names the field.
    """
    for name, folder in settings.lora_adapters.items():
        where = f"tiers.{road}.lora_adapters.{name}"
        rank = _rank(where, folder)
        if not (folder / WEIGHTS).is_file():
            raise ConfigError(f"{where}: no {WEIGHTS} in {folder}")
        if rank > settings.max_lora_rank:
            raise ConfigError(
                f"{where}: its rank is {rank}, above tiers.{road}.max_lora_rank ({settings.max_lora_rank})"
            )


def _rank(where: str, folder: Path) -> int:
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text("utf-8"))
    except OSError:
        raise ConfigError(f"{where}: no {CONFIG} in {folder}, so it is not an adapter's folder") from None
    except ValueError:
        raise ConfigError(f"{where}: {path} is not valid JSON") from None
    rank = config.get("r") if isinstance(config, dict) else None
    if not isinstance(rank, int) or rank < 1:
        raise ConfigError(f"{where}: {path} has no rank (r), so it is not a LoRA adapter's configuration")
    # Single layers may have a rank of their own.
    pattern = config.get("rank_pattern")
    own = pattern.values() if isinstance(pattern, dict) else ()
    return max([rank, *(value for value in own if isinstance(value, int))])
