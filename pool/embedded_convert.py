"""The conversion of the embedded model, run as a process of its own: `... embedded_convert FILE.gguf FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path


def convert(source: Path, folder: Path) -> None:
    """Write a Hugging Face model folder (bfloat16 weights, tokenizer, chat template) from a GGUF file."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        local_files_only=True,
    )
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, local_files_only=True)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
