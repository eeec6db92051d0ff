"""The masking section of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, model_validator

from weighbridge.config.legal import NAME_LEGAL, NAME_PATTERN, AnyPath, Count, Real, check_secret
from weighbridge.config.problems import wrong
from weighbridge.config.section import Section, fill_secret
from weighbridge.config.shipped import shipped

LayerName = Literal["ko-rules", "ko-pii", "maskingtape", "kiwi", "en-rules", "spacy-en", "local-model"]
"""Layers of detection beyond those that always look; `masking.layers.registry` has the module of each."""

_SHORTEST_SECRET = 16


def check_masking_secrets(text: SecretStr) -> SecretStr:
    """`text` with one secret a line and nothing else.

    Raises:
        ValueError: none there, or one that is too short or not printable ASCII.
    """
    lines = [line.rstrip("\r") for line in text.get_secret_value().split("\n")]
    lines = [line for line in lines if line]
    for line in lines or [""]:
        check_secret(SecretStr(line))
        if len(line) < _SHORTEST_SECRET:
            raise ValueError(f"must hold {_SHORTEST_SECRET} characters or more")
    return SecretStr("\n".join(lines))


class MaskingSettings(Section):
    """The detectors that stand before everything that leaves."""

    workers: Count = shipped("masking.workers", "Masking processes.", ge=1, le=64)
    task_timeout_s: Real = shipped(
        "masking.task_timeout_s",
        "Seconds one request may take to mask; after that it does not leave.",
        gt=0,
        le=600,
    )
    max_queue: Count = shipped(
        "masking.max_queue",
        "Requests that may wait for a masking process; the next one does not leave.",
        ge=1,
        le=100_000,
    )
    max_chars: Count = shipped(
        "masking.max_chars",
        "Characters of text in one request; a longer one does not leave.",
        ge=1,
        le=100_000_000,
    )
    score_threshold: Real = shipped(
        "masking.score_threshold", "Detector confidence from which a finding is masked.", ge=0, le=1
    )
    layers: list[LayerName] = shipped(
        "masking.layers",
        "Layers of detection beyond the structured rules, the credentials and the encodings, which always look. One "
        "whose package or model is not installed is left out, and the start says so.",
        legal=f"a list of different names out of {', '.join(get_args(LayerName))}",
    )
    without_names: Literal["refuse", "mask"] = shipped(
        "masking.without_names",
        "What becomes of prose in a language in which no layer finds names: `refuse`, it does not leave; `mask`, it "
        "leaves with the names that are in it.",
    )
    models_dir: AnyPath | None = shipped(
        "masking.models_dir",
        "Folder of the models that `weighbridge models fetch` brings. Null: the cache folder of this user.",
    )
    local_model: AnyPath | None = shipped(
        "masking.local_model",
        "Folder of a spaCy model of your own for the layer `local-model`.",
    )
    known_values: dict[Annotated[str, StringConstraints(pattern=NAME_PATTERN)], AnyPath] = shipped(
        "masking.known_values",
        "Files of values to mask wherever they stand, by tenant, one value a line; `default` is for every tenant.",
        legal="a mapping from tenants to paths",
        keys=NAME_LEGAL,
    )
    secret: Annotated[SecretStr, AfterValidator(check_masking_secrets)] | None = Field(
        default=None,
        description="What the placeholders and the chain over the egress record are derived from, 16 characters or "
        "more; the same one for every replica. Further lines hold older ones, which only prove older records. "
        "Environment only; in files use `secret_file`. None: the file `masking.secret` in the state folder, made at "
        "the first start.",
    )
    secret_file: Path | None = shipped(
        "masking.secret_file", "File that holds `masking.secret`, one a line, the one in use first."
    )

    @model_validator(mode="after")
    def _no_layer_twice(self) -> MaskingSettings:
        for n, name in enumerate(self.layers):
            if name in self.layers[:n]:
                raise wrong(f"layers.{n}", "this layer is given twice")
        if "local-model" in self.layers and self.local_model is None:
            raise wrong("local_model", "must name a folder, as layers names local-model")
        return self

    @model_validator(mode="after")
    def _read_secret(self) -> MaskingSettings:
        fill_secret(self, "secret", "secret_file", check_masking_secrets)
        return self
