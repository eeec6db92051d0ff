"""A LoRA adapter for the embedded model, made of random numbers: small, and plain to see in the answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

LAYERS, HIDDEN = 30, 576


def write_adapter(folder: Path, *, rank: int = 8) -> Path:
    """Write an adapter that changes every layer's queries and returns its folder."""
    from safetensors.numpy import save_file

    numbers = np.random.default_rng(7)
    weights = {}
    for layer in range(LAYERS):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        for part, shape in (("lora_A", (rank, HIDDEN)), ("lora_B", (HIDDEN, rank))):
            weights[f"{name}.{part}.weight"] = numbers.normal(0, 0.2, shape).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, str(folder / "adapter_model.safetensors"))
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": ["q_proj"],
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config), "utf-8")
    return folder
