"""The masking section of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from weighbridge.config.legal import NAME_LEGAL, NAME_PATTERN, AnyPath, Count, Real, Secret
from weighbridge.config.problems import wrong
from weighbridge.config.section import Section, fill_secret
from weighbridge.config.shipped import shipped

LayerName = Literal["ko-rules", "ko-pii", "maskingtape", "kiwi", "en-rules", "spacy-en", "local-model"]
"""Layers of detection beyond those that always look; `masking.layers.registry` has the module of each."""


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
        keys=NAME_LEGAL,
    )
    secret: Secret | None = Field(
        default=None,
        description="Key the placeholders are derived from, 16 characters or more. Environment only; in files use "
        "`secret_file`. None: a new random one in every process.",
    )
    secret_file: Path | None = shipped("masking.secret_file", "File that holds `masking.secret`.")

    @model_validator(mode="after")
    def _long_enough(self) -> MaskingSettings:
        fill_secret(self, "secret", "secret_file")
        if self.secret is not None and len(self.secret.get_secret_value()) < 16:
            raise wrong(
                "secret" if self.secret_file is None else "secret_file", "must hold 16 characters or more"
            )
        return self
