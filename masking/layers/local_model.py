"""The operator's own spaCy model, of any language."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import Any

from weighbridge.masking.entities import Span, merge
from weighbridge.masking.layers import spacy_hits
from weighbridge.masking.layers.base import LayerMissing, LayerOptions

# A model may have types of its own; whatever it calls them, these words tell.
_CALLED = (
    ("PERSON", "PERSON"),
    ("PER", "PERSON"),
    ("NAME", "PERSON"),
    ("LOC", "PLACE"),
    ("ORG", "ORG"),
    ("ADDR", "ADDRESS"),
)


class LocalModel:
    """The layer."""

    decoded = False

    def __init__(self, nlp: Any, folder: Path) -> None:
        self._reader = spacy_hits.Reader(nlp)
        self.names = frozenset({str(nlp.lang)})
        meta = nlp.meta
        # Two models of one name and version are told apart by what they say of themselves.
        told = hashlib.sha256((folder / "meta.json").read_bytes()).hexdigest()[:12]
        self.version = f"spacy-{version('spacy')}+{meta['lang']}_{meta['name']}-{meta['version']}-{told}"

    def find(self, text: str) -> list[Span]:
        """Merged spans."""
        if not any(map(str.isalpha, text)):
            return []
        stretches = list(spacy_hits.pieces(text, 0, len(text)))
        spans: list[Span] = []
        for start, end, label in self._reader.entities(text, stretches):
            entity = _entity(label)
            wide = None if entity is None else spacy_hits.widen(text, start, end, entity)
            if wide is not None:
                spans.append(wide)
        return merge(spans)


def _entity(label: str) -> str | None:
    label = label.upper()
    if label in spacy_hits.TYPES:
        return spacy_hits.TYPES[label]
    return next((entity for word, entity in _CALLED if label.startswith(word)), None)


def build(options: LayerOptions) -> LocalModel:
    """The layer with the model in `options.local_model`.

    Raises:
        LayerMissing: none is named, or it cannot be read, or it finds no names.
    """
    if not options.local_model:
        raise LayerMissing("masking.local_model names no folder")
    folder = Path(options.local_model)
    if not (folder / "meta.json").is_file():
        raise LayerMissing(f"{folder} holds no spaCy model")
    return LocalModel(spacy_hits.load(folder), folder)
