"""The shipped defaults: `defaults.yaml` is their only home, and the models take their defaults from it."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from weighbridge.config.yamlsource import YamlFile, read_yaml

DEFAULTS_FILE = Path(__file__).with_name("defaults.yaml")


@cache
def shipped_file() -> YamlFile:
    """The parsed `defaults.yaml`; not to be changed by the caller."""
    return read_yaml(DEFAULTS_FILE)


def shipped_tree() -> dict[str, Any]:
    """A copy of the shipped defaults as one nested mapping."""
    return copy.deepcopy(shipped_file().data)


def shipped(
    path: str, description: str, *, legal: str | None = None, keys: str | None = None, **limits: Any
) -> Any:
    """A pydantic field whose default is what `defaults.yaml` says at `path` (dotted).

    Args:
        legal: what the field takes, to be read after "must be", where type and limits do not say it.
        keys: the same for the keys of a mapping.
        limits: pydantic's own (`ge`, `gt`, `le`, `lt`, `pattern`).
    """
    value: Any = shipped_file().data
    for step in path.split("."):
        value = value[step]
    said = {"legal": legal, "keys": keys}
    extra: dict[str, Any] = {name: words for name, words in said.items() if words is not None}
    if isinstance(value, dict | list):
        return Field(
            default_factory=lambda: copy.deepcopy(value),
            description=description,
            json_schema_extra=extra or None,
            **limits,
        )
    return Field(default=value, description=description, json_schema_extra=extra or None, **limits)
