"""Loads settings from a text, an environment and overrides, for the tests of this folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from weighbridge.config.errors import ConfigError
from weighbridge.config.problems import ConfigProblems
from weighbridge.config.settings import Settings, load_settings

ENV = {"HOME": "/home/x"}
HASH = hashlib.sha256(b"key").hexdigest()


def load(
    tmp_path: Path,
    text: str | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    path = None
    if text is not None:
        path = tmp_path / "s.yaml"
        path.write_text(text)
    return load_settings(path, {**ENV, **(env or {})}, overrides)


def wrong(
    tmp_path: Path,
    text: str | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        load(tmp_path, text, env, overrides)
    assert isinstance(caught.value, ConfigError)
    return str(caught.value).replace(f"{tmp_path}/", "").split("\n")
