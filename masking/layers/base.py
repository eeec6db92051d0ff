"""What a layer of detection is."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from weighbridge.masking.entities import Span


class LayerOptions(msgspec.Struct, frozen=True):
    """What a layer may be told when it is built.

    Args:
        score_threshold: presidio hits below it are dropped, save those whose shape alone tells.
        models_dir: folder with the models that `weighbridge models fetch` brought.
        local_model: folder of a spaCy model of the operator's own; empty when there is none.
    """

    score_threshold: float = 0.35
    models_dir: str = ""
    local_model: str = ""

    def model(self, name: str) -> Path | None:
        """The folder of a fetched model, if it is there."""
        folder = Path(self.models_dir) / name
        return folder if self.models_dir and folder.is_dir() else None


class LayerMissing(Exception):
    """The layer cannot work here, for want of a package or a model. The message names it and is fit for a log."""


class Layer(Protocol):
    """One way of finding personal data in a text. Not thread-safe; lives in a detector process.

    Attributes:
        version: names the rules and models, for the egress rows. Changes with every change of what is found.
        names: languages (`ko`, `en`) in whose prose it finds the names of people.
        decoded: whether it is also shown what escapes hide (percent signs, entities, backslashes).
    """

    version: str
    names: frozenset[str]
    decoded: bool

    def find(self, text: str) -> list[Span]:
        """Spans in a folded text, in any order, overlapping or not; types are those of `entities`.

        Must cost time linear in the length of the text, whatever it holds. Raising refuses the request.
        """
        ...
