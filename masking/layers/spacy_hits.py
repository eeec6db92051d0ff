"""What the layers with a spaCy model share: loading, cutting texts into pieces, types of the hits, widening them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import regex

from weighbridge.masking.entities import Span
from weighbridge.masking.layers.base import LayerMissing
from weighbridge.masking.layers.en_words import COMMON, TECH, TITLES

# Never needed to find names. `tok2vec` stays unless the model's finder has its own.
_UNNEEDED = (
    "tagger",
    "parser",
    "lemmatizer",
    "attribute_ruler",
    "senter",
    "morphologizer",
    "trainable_lemmatizer",
)
_FINDERS = frozenset({"ner", "beam_ner", "entity_ruler", "span_ruler"})

TYPES = {
    "PERSON": "PERSON",
    "PER": "PERSON",
    "PS": "PERSON",
    "GPE": "PLACE",
    "LOC": "PLACE",
    "FAC": "PLACE",
    "LC": "PLACE",
    "ORG": "ORG",
    "OG": "ORG",
}
"""Entity types of spaCy's own models that are masked. Dates, numbers, works of art and the like are not."""

PIECE = 2_000
"""Characters read at a time: memory and the cost of a text stay linear."""

_BREAKS = ("\n", ". ", " ")
_BATCH = 16


def load(path: Path) -> Any:
    """The model in a folder, with only what finding names needs.

    Raises:
        LayerMissing: spaCy or the model is not there or cannot be read.
    """
    # thinc takes torch when it is installed: seconds and hundreds of megabytes for nothing.
    if "torch" not in sys.modules:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        import spacy
    except ImportError:
        raise LayerMissing("the package spacy is not installed") from None
    try:
        nlp = spacy.load(path, exclude=list(_UNNEEDED))
    except Exception as exc:
        raise LayerMissing(f"the model in {path} cannot be read ({type(exc).__name__})") from None
    if not _FINDERS & set(nlp.pipe_names):
        raise LayerMissing(f"the model in {path} finds no names")
    if nlp.pipe_names == ["tok2vec", "ner"] and not _listens(nlp):
        nlp.remove_pipe("tok2vec")
    return nlp


def _listens(nlp: Any) -> bool:
    embedding = nlp.config["components"]["ner"].get("model", {}).get("tok2vec", {})
    return "Listener" in str(embedding.get("@architectures", "Listener"))


def pieces(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a stretch where a line, a sentence or a word ends."""
    while end - start > PIECE:
        cut = -1
        for sign in _BREAKS:
            cut = text.rfind(sign, start + PIECE // 2, start + PIECE)
            if cut >= 0:
                cut += len(sign)
                break
        cut = start + PIECE if cut < 0 else cut
        yield start, cut
        start = cut
    yield start, end


class Reader:
    """Puts a model to stretches of a text.

    Args:
        nlp: the model.
    """

    def __init__(self, nlp: Any) -> None:
        # Late: spaCy is not everywhere.
        from weighbridge.masking.layers.spacy_decode import decoder

        self._nlp = nlp
        self._decoder = decoder(nlp)

    def entities(self, text: str, stretches: list[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
        """What the model finds in stretches of `text`: start, end and the model's own label."""
        for first in range(0, len(stretches), _BATCH):
            batch = stretches[first : first + _BATCH]
            read = self._read([text[start:end] for start, end in batch])
            for (start, _), hits in zip(batch, read, strict=True):
                for begin, end, label in hits:
                    yield start + begin, start + end, label

    def _read(self, texts: list[str]) -> Iterator[list[tuple[int, int, str]]]:
        if self._decoder is not None:
            yield from self._decoder.entities([self._nlp.make_doc(text) for text in texts])
            return
        for doc in self._nlp.pipe(texts, batch_size=_BATCH):
            yield [(hit.start_char, hit.end_char, hit.label_) for hit in doc.ents]


_WORD = r"\p{Lu}(?:(?!\p{Hangul})[\p{L}\d'’&.-]){0,40}"
_LINK = (
    r"(?:(?:de|del|della|di|da|dos|das|du|la|le|las|los|van|von|der|den|bin|al|el|of|the|and|And|Of|&|y|e|af|av"
    r")[^\S\r\n]{1,2}){0,2}"
)
_BEFORE = regex.compile(rf"(?<![\p{{L}}\d])({_WORD})(?:[^\S\r\n]{{1,2}}{_LINK}|-)\Z")
_AFTER = regex.compile(rf"(?:[^\S\r\n]{{1,2}}{_LINK}|-)({_WORD})|[^\S\r\n]\((\p{{Lu}}[\p{{L}} ]{{1,30}}\))")
# A Korean particle is not part of the word it is glued to.
_LETTER = r"(?:(?!\p{Hangul})[\p{L}\d])"
_GLUED_BEFORE = regex.compile(rf"{_LETTER}(?:{_LETTER}|['’-]){{0,40}}\Z")
_GLUED_AFTER = regex.compile(rf"['’]?(?:{_LETTER}|-){{1,40}}")
_TITLE_BEFORE = regex.compile(rf"(?<!\p{{L}})(?i:{'|'.join(TITLES)})\.?[^\S\r\n]{{1,2}}\Z")
_POSSESSIVE = regex.compile(r"['’][sS]?\Z")
_FRINGE = ' \t\r\n,;:!?"“”()[]{}<>|*_`'
_MOST_WORDS, _REACH = 4, 48


def widen(text: str, start: int, end: int, entity: str) -> Span | None:
    """A hit with the rest of its words and the capitalised words beside it; None when nothing of it is a name."""
    while start < end and text[start] in _FRINGE:
        start += 1
    while end > start and text[end - 1] in _FRINGE:
        end -= 1
    if possessive := _POSSESSIVE.search(text, start, end):
        end = possessive.start()
    if start >= end:
        return None
    if glued := _GLUED_BEFORE.search(text, max(0, start - _REACH), start):
        start = glued.start()
    glued_after = _GLUED_AFTER.match(text, end)
    if glued_after and glued_after.group().lower() not in ("'s", "’s"):
        end = glued_after.end()
    for _ in range(_MOST_WORDS):
        before = _BEFORE.search(text, max(0, start - _REACH), start)
        if before is None or not _may_join(before[1]):
            break
        start = before.start(1)
    for _ in range(_MOST_WORDS):
        after = _AFTER.match(text, end)
        if after is None or text[end - 1] == "." or not _may_join(after[1] or after[2]):
            break
        if after[1] is None:
            end = after.end()
            break
        name = _POSSESSIVE.sub("", after[1].rstrip(".&-"))
        end = after.start(1) + len(name)
        if name != after[1].rstrip(".&-"):
            break
        if text[end : end + 1] == "." and len(after[1]) == 2:
            end += 1
    if entity == "PERSON" and (title := _TITLE_BEFORE.search(text, max(0, start - _REACH), start)):
        start = title.start()
    return start, end, entity


def _may_join(word: str) -> bool:
    bare = word.strip(".'’&-)").lower()
    return bool(bare) and bare not in COMMON and bare not in TECH
