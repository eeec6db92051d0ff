"""The names we call legal are those of the installed vLLM; its source is read, not imported."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import pytest

from weighbridge.config.legal import LORA_RANKS, Dtype, Quantization

pytestmark = pytest.mark.engine


def _assigned(file: str, name: str) -> list[Any]:
    spec = find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse((Path(spec.origin).parent / file).read_text())
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == name
        ):
            return [item.value for item in ast.walk(node.value) if isinstance(item, ast.Constant)]
    raise AssertionError(f"{name} is not in {file}")


def test_quantization_methods() -> None:
    file = "model_executor/layers/quantization/__init__.py"
    named = set(_assigned(file, "QuantizationMethods"))
    deprecated = set(_assigned(file, "DEPRECATED_QUANTIZATION_METHODS"))
    assert deprecated < named
    assert set(get_args(Quantization)) == named - deprecated


def test_dtypes() -> None:
    assert set(get_args(Dtype)) == set(_assigned("config/model.py", "ModelDType"))


def test_lora_ranks() -> None:
    assert list(LORA_RANKS) == _assigned("config/lora.py", "MaxLoRARanks")
