"""The layers by name, built where a detector process runs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from weighbridge.masking.layers.base import Layer, LayerMissing, LayerOptions

# Each module has `build(options) -> Layer`, which raises LayerMissing. They are imported in the detector process alone.
_ALWAYS = ("structured", "credentials", "encoded", "mixed_script", "language")
"""Layers that no configuration takes away."""

OPTIONAL: dict[str, str] = {
    "ko-rules": "ko_rules",
    "ko-pii": "ko_pii",
    "maskingtape": "tape",
    "kiwi": "kiwi",
    "en-rules": "en_rules",
    "spacy-en": "spacy_en",
    "local-model": "local_model",
}
"""Layers that `masking.layers` may name, and their modules."""


def build_layers(wanted: Sequence[str], options: LayerOptions) -> tuple[dict[str, Layer], dict[str, str]]:
    """The layers by name, and why each of the others is missing.

    Raises:
        KeyError: there is no layer of that name.
    """
    built: dict[str, Layer] = {}
    missing: dict[str, str] = {}
    for name, module in [*((name, name) for name in _ALWAYS), *((name, OPTIONAL[name]) for name in wanted)]:
        try:
            built[name] = import_module(f"weighbridge.masking.layers.{module}").build(options)
        except LayerMissing as why:
            missing[name] = str(why)
    return built, missing
