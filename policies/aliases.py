"""Other names for models: what a policy may call them, and what they may stand for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Final

from pydantic import StringConstraints

from weighbridge.config.legal import MODEL_NAME_PATTERN
from weighbridge.config.roads import MODEL_NAMES
from weighbridge.config.shape import Step

ALIAS_LEGAL: Final = "text of 1 to 256 printable ASCII characters without spaces"
TARGETS_LEGAL: Final = "a mapping from names to auto, a road or an adapter of a tier"

AliasName = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]{1,256}$")]
AliasTarget = Annotated[str, StringConstraints(pattern=MODEL_NAME_PATTERN)]


def alias_problems(
    aliases: Mapping[str, str], adapters: Collection[str] | None
) -> Iterator[tuple[tuple[Step, ...], str]]:
    """What is wrong with a policy's aliases, as path and sentence.

    Args:
        adapters: the adapters that the settings have; None where the settings are not known.
    """
    for name, target in aliases.items():
        at: tuple[Step, ...] = ("aliases", name)
        if name in MODEL_NAMES:
            yield at, "is a model's own name already"
        elif adapters is not None and name in adapters:
            yield at, "is an adapter's name already"
        elif target in aliases:
            yield at, "must not stand for another alias"
        elif adapters is not None and target not in MODEL_NAMES and target not in adapters:
            yield at, f"must be one of {', '.join((*MODEL_NAMES, *adapters))}"
