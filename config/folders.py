"""Folders of this user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_folder(env: Mapping[str, str] | None = None) -> Path:
    """This user's cache folder for Weighbridge."""
    env = os.environ if env is None else env
    base = env.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "weighbridge"


def models_folder() -> Path:
    """Where models lie that were fetched or prepared."""
    return cache_folder() / "models"
